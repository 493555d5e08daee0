//! An allocator's counters: where they come from, and the reader that answers the sampler's questions about them.

use std::sync::Arc;

use super::Target;
use crate::allocator::stats::DeviceStats;
use crate::clock::{Clock, Moment};
use crate::reading::Reading;
use crate::source::DeviceIdentity;

/// One read of an allocator's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersRead {
    /// The counters of the device that is shown.
    pub counters: Reading<Arc<DeviceStats>>,
    /// They are the last good ones and not of this read (allocator-spec 7.7).
    pub stale: bool,
    /// The process's own number of the device.
    pub cuda_index: Option<u32>,
}

/// Where an allocator's counters come from: our own allocator, or an attached process. Called on a thread of its own.
pub trait CounterSource: Send {
    /// The counters for the device that is shown, if that is known.
    fn read(&mut self, shown: Option<&DeviceIdentity>) -> CountersRead;
}

/// Makes the counter source of a target; called on the counters' thread when the target changes, so it may take its time.
pub type CounterSources = Box<dyn FnMut(Target) -> Box<dyn CounterSource> + Send>;

/// What to read.
#[derive(Debug)]
pub(super) struct CounterQuestion {
    pub(super) target: Target,
    /// Counts how often a process was chosen: choosing a PID again takes whoever has it now.
    pub(super) choice: u64,
    pub(super) shown: Option<DeviceIdentity>,
}

/// What was read, and for which question.
#[derive(Debug)]
pub(super) struct CounterAnswer {
    pub(super) target: Target,
    pub(super) choice: u64,
    pub(super) at: Moment,
    pub(super) read: CountersRead,
}

/// Answers questions about counters; makes a new source whenever a target is chosen.
pub(super) fn counter_reader(
    mut sources: CounterSources,
    clock: Arc<dyn Clock>,
) -> impl FnMut(CounterQuestion) -> CounterAnswer + Send {
    let mut current: Option<((Target, u64), Box<dyn CounterSource>)> = None;
    move |question| {
        let asked = (question.target, question.choice);
        current.take_if(|(of, _)| *of != asked);
        let (_, source) = current.get_or_insert_with(|| (asked, sources(question.target)));
        let at = clock.now();
        CounterAnswer {
            target: question.target,
            choice: question.choice,
            at,
            read: source.read(question.shown.as_ref()),
        }
    }
}
