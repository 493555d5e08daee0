//! When the next tick is due, and how late this one came: plain arithmetic on moments, so that jumps of the clock and a
//! stopped program can be tested (AC-35).

use std::time::Duration;

use crate::clock::Moment;

/// Shortest interval.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// Longest interval.
pub const LONGEST: Duration = Duration::from_secs(10);

/// Keeps ticks in phase: a late tick does not move the ones after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    interval: Duration,
    due: Moment,
}

/// How a tick came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tick {
    /// Time after the moment for which it was due.
    pub(super) late_by: Duration,
    /// Ticks that should have come before it and did not.
    pub(super) lost: u32,
}

impl Pacer {
    /// The first tick is due now.
    pub(super) fn new(interval: Duration, now: Moment) -> Self {
        Pacer {
            interval: interval.clamp(SHORTEST, LONGEST),
            due: now,
        }
    }

    /// The interval that holds.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Another interval, from now on.
    pub(super) fn set_interval(&mut self, interval: Duration, now: Moment) {
        self.interval = interval.clamp(SHORTEST, LONGEST);
        self.due = Moment(now.0 + self.interval);
    }

    /// How long to wait for the next tick.
    pub(super) fn wait(&self, now: Moment) -> Duration {
        // A clock that went back must not make the wait longer than an interval.
        self.due.since(now).min(self.interval)
    }

    /// A tick comes at `now`.
    pub(super) fn tick(&mut self, now: Moment) -> Tick {
        if now < self.due {
            self.due = Moment(now.0 + self.interval);
            return Tick {
                late_by: Duration::ZERO,
                lost: 0,
            };
        }
        let late = now.since(self.due);
        let lost = late.as_nanos() / self.interval.as_nanos();
        let late_by = Duration::from_nanos((late.as_nanos() % self.interval.as_nanos()) as u64);
        self.due = Moment(now.0.saturating_sub(late_by) + self.interval);
        Tick {
            late_by,
            lost: u32::try_from(lost).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    fn tick(late_ms: u64, lost: u32) -> Tick {
        Tick {
            late_by: Duration::from_millis(late_ms),
            lost,
        }
    }

    #[test]
    fn late_ticks_keep_the_phase() {
        let mut pacer = Pacer::new(Duration::from_millis(100), at(0));
        assert_eq!(pacer.tick(at(0)), tick(0, 0));
        assert_eq!(pacer.wait(at(30)), Duration::from_millis(70));
        assert_eq!(pacer.tick(at(107)), tick(7, 0));
        assert_eq!(pacer.wait(at(107)), Duration::from_millis(93));
        assert_eq!(pacer.tick(at(200)), tick(0, 0));
    }

    #[test]
    fn a_stopped_program_loses_ticks_and_says_how_many() {
        let mut pacer = Pacer::new(Duration::from_millis(100), at(0));
        pacer.tick(at(0));
        assert_eq!(pacer.tick(at(20_130)), tick(30, 200));
        assert_eq!(pacer.wait(at(20_130)), Duration::from_millis(70));
    }

    #[test]
    fn a_clock_that_jumps_neither_stalls_nor_overflows() {
        let mut pacer = Pacer::new(Duration::from_millis(100), at(1_000_000));
        pacer.tick(at(1_000_000));
        assert_eq!(pacer.wait(at(0)), Duration::from_millis(100));
        assert_eq!(pacer.tick(at(100)), tick(0, 0));
        assert_eq!(pacer.wait(at(100)), Duration::from_millis(100));
        let far = Moment(Duration::from_secs(u64::from(u32::MAX) * 1000));
        assert_eq!(pacer.tick(far).lost, u32::MAX);
    }

    #[test]
    fn the_interval_stays_within_its_limits() {
        let mut pacer = Pacer::new(Duration::ZERO, at(0));
        assert_eq!(pacer.interval(), SHORTEST);
        pacer.set_interval(Duration::from_secs(1000), at(5));
        assert_eq!(pacer.interval(), LONGEST);
        assert_eq!(pacer.wait(at(5)), LONGEST);
    }
}
