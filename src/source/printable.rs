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

/// Characters that act on the terminal or on their neighbours instead of standing for themselves.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}'
            | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
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
