//! The one place that reads the clock (design rule 4). Everything else takes times as values, so that a recording or a
//! test replays to identical frames.

use std::time::{Duration, Instant};

/// A moment: time since the program (or the recording) started, on a clock that never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub Duration);

impl Moment {
    /// Seconds since the start.
    pub fn secs(self) -> f64 {
        self.0.as_secs_f64()
    }

    /// How long `earlier` was before this moment; zero if it was not.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where moments come from.
pub trait Clock: Send + Sync {
    /// The moment now.
    fn now(&self) -> Moment;
}

/// The real, monotonic clock, counted from its making.
#[derive(Clone, Copy, Debug)]
pub struct RealClock(Instant);

impl RealClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        RealClock(Instant::now())
    }
}

impl Clock for RealClock {
    fn now(&self) -> Moment {
        Moment(self.0.elapsed())
    }
}

/// Measures how long `f` took.
pub fn timed<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = f();
    (value, start.elapsed())
}
