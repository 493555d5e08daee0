//! One tier of the history: smallest, largest and last value per bucket of fixed width, in a ring without time stamps
//! (the place in the ring is the time).

use std::collections::VecDeque;
use std::time::Duration;

use super::grid::{Grid, Stored};
use super::{METRICS, Values};

/// Buckets by which the ring grows.
const STEP: usize = 256;

/// What all curves did within one bucket.
type Slot = [Stored; METRICS];

/// A ring of buckets.
#[derive(Debug)]
pub(super) struct Tier {
    width: Duration,
    capacity: usize,
    /// Number of the first bucket in the ring, counted from moment 0.
    first: u64,
    slots: VecDeque<Slot>,
}

impl Tier {
    /// An empty tier of `capacity` buckets of `width`.
    pub(super) fn new(width: Duration, capacity: usize) -> Self {
        Tier {
            width,
            capacity,
            first: 0,
            slots: VecDeque::new(),
        }
    }

    /// Width of a bucket.
    pub(super) fn width(&self) -> Duration {
        self.width
    }

    /// Start of the oldest bucket.
    pub(super) fn start(&self) -> Option<Duration> {
        (!self.slots.is_empty()).then(|| self.start_of(self.first))
    }

    /// Adds one row.
    pub(super) fn add(&mut self, at: Duration, values: &Values) {
        let bucket = self.bucket_of(at);
        self.reach(bucket);
        self.take(bucket, values);
    }

    /// Lets the values that were read at `from` hold in the buckets after theirs, up to the one of `to`.
    pub(super) fn hold(&mut self, from: Duration, to: Duration, values: &Values) {
        let (first, last) = (self.bucket_of(from) + 1, self.bucket_of(to));
        if first > last || values.iter().all(|v| *v == super::HOLE) {
            return;
        }
        self.reach(last);
        for bucket in first.max(self.first)..=last {
            self.take(bucket, values);
        }
    }

    /// Draws the buckets that touch `from` to `to`.
    pub(super) fn visit(&self, metric: usize, from: Duration, to: Duration, out: &mut Grid) {
        if from >= to || self.slots.is_empty() {
            return;
        }
        let end = self.first + self.slots.len() as u64;
        let mut bucket = self.bucket_of(from).max(self.first);
        while bucket < end && self.start_of(bucket) < to {
            let stored = self.slots[(bucket - self.first) as usize][metric];
            if !stored.is_empty() {
                out.add(
                    self.start_of(bucket).max(from),
                    self.start_of(bucket + 1).min(to),
                    stored,
                );
            }
            bucket += 1;
        }
    }

    /// Bytes held.
    pub(super) fn footprint(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    fn bucket_of(&self, at: Duration) -> u64 {
        (at.as_nanos() / self.width.as_nanos()) as u64
    }

    fn start_of(&self, bucket: u64) -> Duration {
        // Buckets are counted in u64 and moments reach 2^64 seconds: this cannot overflow for a bucket of a moment.
        Duration::from_secs(bucket.saturating_mul(self.width.as_secs()))
    }

    /// Makes the ring reach `bucket`: empty buckets for a jump, the oldest dropped.
    fn reach(&mut self, bucket: u64) {
        if self.slots.is_empty() || bucket >= self.first + (self.slots.len() + self.capacity) as u64 {
            self.slots.clear();
            self.first = bucket;
        }
        while self.first + (self.slots.len() as u64) <= bucket {
            if self.slots.len() == self.capacity {
                self.slots.pop_front();
                self.first += 1;
            } else if self.slots.len() == self.slots.capacity() {
                self.slots.reserve_exact(STEP.min(self.capacity - self.slots.len()));
            }
            self.slots.push_back([Stored::EMPTY; METRICS]);
        }
    }

    fn take(&mut self, bucket: u64, values: &Values) {
        let Some(slot) = bucket
            .checked_sub(self.first)
            .and_then(|n| self.slots.get_mut(n as usize))
        else {
            return;
        };
        for (stored, value) in slot.iter_mut().zip(values) {
            if *value != super::HOLE {
                stored.take(Stored::of(*value));
            }
        }
    }
}
