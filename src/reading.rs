//! A figure that was read from somewhere, or the reason why it is missing. Unknown is never 0 (design rule 5).

use std::fmt;

/// A value that a source gave, or why it could not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    /// The source answered with this.
    Is(T),
    /// The source did not answer; the reason goes to the screen as it is.
    Missing(Why),
}

/// Why a figure is missing: one sentence for people, with its next step where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// What kind of absence this is; panes and exit codes go by it.
    pub kind: WhyKind,
    /// The sentence, free of control characters.
    pub text: std::borrow::Cow<'static, str>,
}

/// The kinds of absence that the program tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhyKind {
    /// Nothing has been read yet.
    NotYet,
    /// The thing asked for does not exist here (no GPU, no library, no such field).
    Absent,
    /// It exists and the system refuses it.
    Refused,
    /// The source is too slow: its deadline passed.
    Late,
    /// The answer contradicts itself or the hardware; it is not shown (AC-2).
    Impossible,
    /// The memory layout or value is of a kind that was never examined.
    Unknown,
    /// The process or the device is gone.
    Gone,
}

impl Why {
    /// A reason of `kind` with its sentence.
    pub fn new(kind: WhyKind, text: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Why {
            kind,
            text: text.into(),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> Reading<T> {
    /// Nothing has been read yet.
    pub fn not_yet() -> Self {
        Reading::Missing(Why::new(WhyKind::NotYet, "not read yet"))
    }

    /// Missing, with a kind and a sentence.
    pub fn missing(kind: WhyKind, text: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Reading::Missing(Why::new(kind, text))
    }

    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Reading::Is(v) => Some(v),
            Reading::Missing(_) => None,
        }
    }

    /// The reason, if there is no value.
    pub fn why(&self) -> Option<&Why> {
        match self {
            Reading::Is(_) => None,
            Reading::Missing(why) => Some(why),
        }
    }

    /// Applies `f` to the value; a reason stays as it is.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Is(v) => Reading::Is(f(v)),
            Reading::Missing(why) => Reading::Missing(why),
        }
    }

    /// Applies a further reading to the value; the first reason wins.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Reading<U>) -> Reading<U> {
        match self {
            Reading::Is(v) => f(v),
            Reading::Missing(why) => Reading::Missing(why),
        }
    }

    /// A reading of a reference.
    pub fn as_ref(&self) -> Reading<&T> {
        match self {
            Reading::Is(v) => Reading::Is(v),
            Reading::Missing(why) => Reading::Missing(why.clone()),
        }
    }
}

impl<T> From<Result<T, Why>> for Reading<T> {
    fn from(result: Result<T, Why>) -> Self {
        match result {
            Ok(v) => Reading::Is(v),
            Err(why) => Reading::Missing(why),
        }
    }
}
