//! The columns of a graph while they are filled from stored values.

use std::time::Duration;

use super::HOLE;
use crate::units::Bytes;

/// One column of a graph: what the curve did within its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Smallest value.
    pub min: Bytes,
    /// Largest value.
    pub max: Bytes,
    /// Last value.
    pub last: Bytes,
}

/// Smallest, largest and last value within some time, compactly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    min: u64,
    max: u64,
    last: u64,
}

impl Stored {
    pub(super) const EMPTY: Stored = Stored {
        min: HOLE,
        max: 0,
        last: HOLE,
    };

    pub(super) fn of(value: u64) -> Self {
        Stored {
            min: value,
            max: value,
            last: value,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.last == HOLE
    }

    /// Takes a later value.
    pub(super) fn take(&mut self, later: Stored) {
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        self.last = later.last;
    }
}

/// The columns being drawn.
pub(super) struct Grid {
    pub(super) from: Duration,
    pub(super) to: Duration,
    /// Width of a column in nanoseconds.
    pub(super) width: f64,
    pub(super) columns: Vec<Option<Column>>,
}

impl Grid {
    pub(super) fn new(from: Duration, to: Duration, columns: usize) -> Self {
        let to = to.max(from + Duration::from_nanos(1));
        Grid {
            from,
            to,
            width: nanoseconds(to.saturating_sub(from)) / columns.max(1) as f64,
            columns: vec![None; columns],
        }
    }

    /// The column that holds a moment.
    fn column_of(&self, at: Duration) -> usize {
        (nanoseconds(at.saturating_sub(self.from)) / self.width) as usize
    }

    /// Adds what the curve did from `start` to `end` (not included) to each column that this time touches.
    pub(super) fn add(&mut self, start: Duration, end: Duration, what: Stored) {
        let end = end.max(start + Duration::from_nanos(1)).min(self.to);
        if end <= self.from || start >= self.to || self.columns.is_empty() {
            return;
        }
        let last = self
            .column_of(end.saturating_sub(Duration::from_nanos(1)))
            .min(self.columns.len() - 1);
        for column in
            &mut self.columns[(start.saturating_sub(self.from).as_nanos() as f64 / self.width) as usize..=last]
        {
            let mut stored = column.map_or(Stored::EMPTY, |c| Stored {
                min: c.min.0,
                max: c.max.0,
                last: c.last.0,
            });
            stored.take(what);
            *column = Some(Column {
                min: Bytes(stored.min),
                max: Bytes(stored.max),
                last: Bytes(stored.last),
            });
        }
    }
}

/// Nanoseconds as a float; by way of u64 (585 years), because u128 is slow in the innermost loop of a series.
fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as u64 as f64
}
