//! Counters of the watched allocator: our own, or those of a live PyTorch process.

use std::sync::Arc;
use std::time::Duration;

use crate::attach::{Attached, DeviceRead, ProcRoot, Process, Read, Search, refusal};
use crate::clock::{Clock, Moment};
use crate::reading::{Reading, WhyKind};
use crate::sample::sampler::{CounterSource, CounterSources, CountersRead, Target};
use crate::source::DeviceIdentity;
use crate::worker::State;

/// A process whose allocator could not be found is looked at again this often: it may import torch or use CUDA later.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Slow facts (which card, limits, largest free block) are looked at this often.
const SURVEY: Duration = Duration::from_secs(1);

/// Makes the counter sources of a sampler; `own` reads the state of our own allocator, where there is one.
pub fn sources<F>(own: Option<F>, root: ProcRoot, clock: Arc<dyn Clock>) -> CounterSources
where
    F: Fn() -> Arc<State> + Send + Sync + Clone + 'static,
{
    Box::new(move |target| match (target, own.clone()) {
        (Target::Own, Some(read)) => Box::new(OwnCounters(read)),
        (Target::Own, None) => Box::new(NoCounters),
        (Target::Process(pid), _) => Box::new(TorchCounters::new(pid, root.clone(), clock.clone())),
    })
}

struct OwnCounters<F>(F);

impl<F: Fn() -> Arc<State> + Send> CounterSource for OwnCounters<F> {
    fn read(&mut self, _: Option<&DeviceIdentity>) -> CountersRead {
        CountersRead {
            counters: Reading::Is(Arc::new((self.0)().stats.clone())),
            stale: false,
            cuda_index: None,
        }
    }
}

struct NoCounters;

impl CounterSource for NoCounters {
    fn read(&mut self, _: Option<&DeviceIdentity>) -> CountersRead {
        missing(Reading::missing(
            WhyKind::Absent,
            "our own allocator is off while a process is watched",
        ))
    }
}

fn missing(counters: Reading<Arc<crate::allocator::stats::DeviceStats>>) -> CountersRead {
    CountersRead {
        counters,
        stale: false,
        cuda_index: None,
    }
}

/// The counters of one process, found when it has some and found again when it has changed. The process that had the PID
/// at the first look is meant for ever: exec keeps its start time, another process has another one.
pub struct TorchCounters {
    pid: u32,
    /// When the process started, in clock ticks after the boot.
    start: Option<u64>,
    root: ProcRoot,
    clock: Arc<dyn Clock>,
    search: Search,
    attached: Option<Attached>,
    looked_at: Option<Moment>,
    surveyed_at: Option<Moment>,
    why: Reading<()>,
}

impl TorchCounters {
    /// A source for `pid`; nothing is read yet.
    pub fn new(pid: u32, root: ProcRoot, clock: Arc<dyn Clock>) -> Self {
        TorchCounters {
            pid,
            start: None,
            root,
            clock,
            search: Search::default(),
            attached: None,
            looked_at: None,
            surveyed_at: None,
            why: Reading::not_yet(),
        }
    }

    /// Finds the allocator, at most once a second; the last reason stands in between.
    fn find(&mut self, now: Moment) {
        if self.looked_at.is_some_and(|at| now.since(at) < LOOK_AGAIN) {
            return;
        }
        self.looked_at = Some(now);
        if let Ok(process) = Process::open(&self.root, self.pid)
            && *self.start.get_or_insert(process.start) != process.start
        {
            self.why = Reading::Missing(refusal::reused(self.pid));
            return;
        }
        match self.search.find(&self.root, self.pid) {
            // The number may have changed hands since that look.
            Reading::Is(attached) if Some(attached.start_time()) != self.start => {
                self.why = Reading::Missing(refusal::reused(self.pid));
            }
            Reading::Is(attached) => {
                tracing::info!(pid = self.pid, "attached");
                self.attached = Some(attached);
                self.surveyed_at = None;
            }
            Reading::Missing(why) => self.why = Reading::Missing(why),
        }
    }

    fn survey(&mut self, now: Moment, shown: Option<&DeviceIdentity>) {
        if self.surveyed_at.is_some_and(|at| now.since(at) < SURVEY) {
            return;
        }
        self.surveyed_at = Some(now);
        if let Some(attached) = &mut self.attached {
            if let Some(device) = shown {
                attached.identify(std::slice::from_ref(device));
            }
            attached.survey();
        }
    }
}

impl TorchCounters {
    /// The counters of all devices of the process.
    pub fn read_all(&mut self, shown: Option<&DeviceIdentity>) -> Reading<Read> {
        let now = self.clock.now();
        if self.attached.is_none() {
            self.find(now);
        }
        self.survey(now, shown);
        let Some(attached) = &mut self.attached else {
            let why = self.why.why().cloned();
            return why.map_or_else(Reading::not_yet, Reading::Missing);
        };
        let read = attached.read();
        if let Reading::Missing(why) = &read {
            // Gone, replaced by exec, or of a changed layout: it has to be found anew.
            self.attached = None;
            self.why = Reading::Missing(why.clone());
        }
        read
    }
}

impl CounterSource for TorchCounters {
    fn read(&mut self, shown: Option<&DeviceIdentity>) -> CountersRead {
        match self.read_all(shown) {
            Reading::Is(read) => of_shown(&read.devices, shown),
            Reading::Missing(why) => missing(Reading::Missing(why)),
        }
    }
}

/// The counters of the device that is shown. Where the process has one device only, or does not say which card is which,
/// its first device that holds memory is taken.
fn of_shown(devices: &[DeviceRead], shown: Option<&DeviceIdentity>) -> CountersRead {
    let known = devices.iter().any(|d| d.uuid.value().is_some());
    let found = match shown {
        Some(shown) if known => devices.iter().find(|d| d.uuid.value() == Some(&shown.uuid)),
        _ => devices
            .iter()
            .find(|d| d.stats.reserved_bytes.all.current > 0)
            .or(devices.first()),
    };
    match found {
        Some(device) => CountersRead {
            counters: Reading::Is(Arc::new(device.stats.clone())),
            stale: !device.fresh,
            cuda_index: Some(device.ordinal),
        },
        None => missing(Reading::missing(
            WhyKind::Absent,
            "this process has used no allocator on the GPU that is shown: v shows the next one",
        )),
    }
}
