//! The process table's filter.

/// A filter: a part of the text without regard to case, or a regular expression after `~`.
pub(super) enum Pattern {
    /// No filter.
    All,
    /// In lower case.
    Part(String),
    /// As it was typed.
    Expression(regex_lite::Regex),
    /// An expression that is not complete yet hides nothing.
    Incomplete,
}

impl Pattern {
    /// Reads what was typed.
    pub(super) fn new(text: &str) -> Self {
        match text.strip_prefix('~') {
            Some(expression) => regex_lite::Regex::new(expression).map_or(Pattern::Incomplete, Pattern::Expression),
            None if text.is_empty() => Pattern::All,
            None => Pattern::Part(text.to_lowercase()),
        }
    }

    /// The filter is an expression that cannot be read.
    pub(super) fn is_incomplete(&self) -> bool {
        matches!(self, Pattern::Incomplete)
    }

    /// Does a row with this text stay?
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Pattern::All | Pattern::Incomplete => true,
            Pattern::Part(part) => text.to_lowercase().contains(part),
            Pattern::Expression(expression) => expression.is_match(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_parts_or_expressions() {
        assert!(Pattern::new("TRAIN").matches("python3 train.py"));
        assert!(Pattern::new("~^py.*py$").matches("python3 train.py"));
        assert!(!Pattern::new("~^train").matches("python3 train.py"));
        assert!(
            Pattern::new("~(").matches("anything"),
            "an incomplete expression hides nothing"
        );
    }
}
