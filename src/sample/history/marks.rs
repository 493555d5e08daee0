//! Events on the time axis.

use std::collections::VecDeque;

use crate::clock::Moment;
use crate::source::printable::printable;

/// Most events that are kept.
pub const MARK_LIMIT: usize = 1000;
/// Longest text of an event, in characters.
const TEXT_LIMIT: usize = 200;

/// One event: a letter on the axis and its sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Moment,
    /// Its letter: the key that caused it, or `!` for what happened by itself.
    pub letter: char,
    /// What happened, free of control characters.
    pub text: String,
}

/// The newest [`MARK_LIMIT`] events, oldest first.
#[derive(Debug, Default)]
pub struct Marks(VecDeque<Mark>);

impl Marks {
    /// All events, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Mark> + ExactSizeIterator {
        self.0.iter()
    }

    /// The events from `from` up to, not including, `to`, oldest first.
    pub fn between(&self, from: Moment, to: Moment) -> impl DoubleEndedIterator<Item = &Mark> {
        let start = self.0.partition_point(|m| m.at < from);
        let end = self.0.partition_point(|m| m.at < to).max(start);
        self.0.range(start..end)
    }

    /// The newest event.
    pub fn last(&self) -> Option<&Mark> {
        self.0.back()
    }

    /// Adds an event; one that comes late is sorted in.
    pub(super) fn push(&mut self, at: Moment, letter: char, text: &str) {
        if self.0.len() == MARK_LIMIT {
            self.0.pop_front();
        }
        let place = self.0.partition_point(|m| m.at <= at);
        let text = printable(text.as_bytes(), TEXT_LIMIT);
        let letter = if letter.is_control() { '?' } else { letter };
        self.0.insert(place, Mark { at, letter, text });
    }

    /// Bytes held.
    pub(super) fn footprint(&self) -> usize {
        self.0.capacity() * size_of::<Mark>() + self.0.iter().map(|m| m.text.capacity()).sum::<usize>()
    }
}
