//! What a comparison found: how much was compared, how much differed, and the first difference in its context.

use std::collections::HashMap;

use crate::allocator::{DeviceStats, Rules, keys};

/// The result for one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Recorded operations that were replayed.
    pub operations: u64,
    /// Values compared.
    pub compared: u64,
    /// Values that differed.
    pub differences: u64,
    /// The first difference, with what came before it.
    pub first: Option<String>,
    /// What the reader should know: whose rules, what the recording leaves open, upstream defects.
    pub notes: Vec<String>,
}

impl Tally {
    /// Compares one value; `what` is only called on a difference.
    pub(super) fn same<T: PartialEq + std::fmt::Debug>(
        &mut self,
        ours: &T,
        recorded: &T,
        what: impl FnOnce() -> String,
    ) {
        self.compared += 1;
        if ours != recorded {
            self.differ(|| format!("{}: recorded {recorded:?}, here {ours:?}", what()));
        }
    }

    /// Counts a difference.
    pub(super) fn differ(&mut self, what: impl FnOnce() -> String) {
        self.differences += 1;
        if self.first.is_none() {
            self.first = Some(printable(&what()));
        }
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        let text = printable(&text.into());
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

/// Foreign text without what acts on a terminal, cut at a length that a line of it bears.
pub(super) fn printable(text: &str) -> String {
    crate::source::printable::printable(text.as_bytes(), 2_000)
}

/// The recorded counters, kept up to date change by change, beside ours.
pub(super) struct Counters {
    names: Vec<String>,
    places: HashMap<String, usize>,
    recorded: Vec<i64>,
    /// Recorded keys that we do not have (yet).
    unknown: HashMap<String, i64>,
    ours: Vec<i64>,
}

impl Counters {
    pub fn new() -> Self {
        Counters {
            names: Vec::new(),
            places: HashMap::new(),
            recorded: Vec::new(),
            unknown: HashMap::new(),
            ours: Vec::new(),
        }
    }

    /// A recorded key has this value from now on.
    pub fn set(&mut self, key: &str, value: i64) {
        match self.places.get(key) {
            Some(place) => self.recorded[*place] = value,
            None => drop(self.unknown.insert(key.to_owned(), value)),
        }
    }

    /// Compares every key of ours with the recording, and finds recorded keys that we lack.
    pub fn compare(&mut self, stats: &DeviceStats, rules: &Rules, tally: &mut Tally, context: impl Fn() -> String) {
        keys::values(stats, rules, &mut self.ours);
        if self.ours.len() != self.names.len() {
            self.learn_names(stats, rules);
        }
        for place in 0..self.ours.len() {
            tally.same(&self.ours[place], &self.recorded[place], || {
                format!("{}: {}", context(), self.names[place])
            });
        }
        for (key, value) in &self.unknown {
            if *value != 0 {
                tally.differ(|| format!("{}: {key}: recorded {value}, here there is no such key", context()));
            }
        }
    }

    /// Our keys changed: a private pool got memory.
    fn learn_names(&mut self, stats: &DeviceStats, rules: &Rules) {
        let known: HashMap<String, i64> = self.names.drain(..).zip(self.recorded.drain(..)).collect();
        self.names = keys::names(stats, rules);
        for name in &self.names {
            let value = known.get(name).copied().or_else(|| self.unknown.remove(name));
            // A key that the recording has not mentioned was 0 at its start.
            self.recorded.push(value.unwrap_or_default());
        }
        self.places = self.names.iter().cloned().enumerate().map(|(i, n)| (n, i)).collect();
    }
}
