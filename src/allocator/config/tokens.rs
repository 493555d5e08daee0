//! The tokenizer of PyTorch's allocator settings (allocator-spec 1.5).

/// Splits at `,` `:` `[` `]`, which are tokens of their own, and drops white space, also inside words.
pub(super) fn split(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut word = String::new();
    for c in text.chars() {
        if matches!(c, ',' | ':' | '[' | ']') {
            if !word.is_empty() {
                tokens.push(std::mem::take(&mut word));
            }
            tokens.push(c.to_string());
        } else if !c.is_whitespace() {
            word.push(c);
        }
    }
    if !word.is_empty() {
        tokens.push(word);
    }
    tokens
}

/// C's stoull: an optional sign, then as many digits as there are; a minus sign wraps.
pub(super) fn unsigned(word: &str) -> Result<u64, &'static str> {
    let (negative, digits) = match word.as_bytes().first() {
        Some(b'-') => (true, &word[1..]),
        Some(b'+') => (false, &word[1..]),
        _ => (false, word),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return Err("stoull");
    }
    let n: u64 = digits[..end].parse().map_err(|_| "stoull")?;
    Ok(if negative { n.wrapping_neg() } else { n })
}

/// C's stod: the longest prefix that is a number.
pub(super) fn float(word: &str) -> Result<f64, &'static str> {
    let end = word
        .find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c)))
        .unwrap_or(word.len());
    (1..=end).rev().find_map(|n| word[..n].parse().ok()).ok_or("stod")
}
