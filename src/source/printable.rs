//! Foreign text made safe for a terminal (design rule 13): process names, command lines and product names are written by
//! others and may hold escape sequences or text that reorders what is drawn after it.

/// `bytes` as text of at most `limit` characters without control, bidirectional and invisible formatting characters: each
/// of those becomes one `?`. Bytes that are not UTF-8 become U+FFFD; what is cut off ends in `…`.
pub fn printable(bytes: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len().min(limit * 4));
    for (n, c) in text.chars().enumerate() {
        if n == limit {
            out.pop();
            out.push('…');
            break;
        }
        out.push(if is_harmful(c) { '?' } else { c });
    }
    out
}

/// Characters that act on the terminal or on their neighbours instead of standing for themselves: controls, line and
/// paragraph separators, all of category Cf (Unicode 16), fillers that draw nothing, and variation selectors.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{AD}' | '\u{34F}' | '\u{600}'..='\u{605}' | '\u{61C}' | '\u{6DD}' | '\u{70F}' | '\u{890}'..='\u{891}'
            | '\u{8E2}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}' | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{2800}' | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{110BD}' | '\u{110CD}'
            | '\u{13430}'..='\u{1343F}' | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E0FFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_plain_text_and_replaces_what_acts() {
        assert_eq!(
            printable("python3 träin.py 日本".as_bytes(), 80),
            "python3 träin.py 日本"
        );
        assert_eq!(printable(b"\x1b[2Jevil\x07\n", 80), "?[2Jevil??");
        assert_eq!(printable("a\u{202E}b\u{2066}c\u{200B}".as_bytes(), 80), "a?b?c?");
        for c in
            "\u{AD}\u{115F}\u{1160}\u{180E}\u{3164}\u{FE00}\u{FE0F}\u{FFA0}\u{2028}\u{1D173}\u{E0100}\u{E007F}\u{FFF9}"
                .chars()
        {
            assert_eq!(printable(c.to_string().as_bytes(), 80), "?", "{:x}", u32::from(c));
        }
        assert_eq!(printable(b"\xff\xfe", 80), "\u{FFFD}\u{FFFD}");
        assert_eq!(printable(b"\xc2\x9b31m", 80), "?31m");
    }

    #[test]
    fn cuts_at_the_limit() {
        assert_eq!(printable(b"abcdef", 4), "abc…");
        assert_eq!(printable(b"abcd", 4), "abcd");
        assert_eq!(printable(b"", 0), "");
    }
}
