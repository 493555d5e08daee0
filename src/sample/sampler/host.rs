//! The host's side of a tick: the watched process, what bounds it, and what this program itself costs (AC-19).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use procfs::process::Stat;

use crate::clock::{Clock, Moment};
use crate::reading::Reading;
use crate::sample::OwnCost;
use crate::source::host::HostSource;
use crate::source::{HostCeiling, HostMemory};

/// What bounds a process and what we cost change slowly: read this often.
const SLOWLY: Duration = Duration::from_secs(1);
/// Measurements of our own CPU time that are kept: the share is taken over up to ten seconds, because the kernel counts in
/// hundredths of a second.
const CPU_WINDOW: usize = 11;

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostQuestion {
    /// The process.
    pub(super) pid: u32,
    /// Counts how often a process was chosen: choosing a PID again takes whoever has it now.
    pub(super) choice: u64,
}

/// What was read of the host.
#[derive(Debug)]
pub(super) struct HostAnswer {
    pub(super) question: HostQuestion,
    pub(super) at: Moment,
    pub(super) memory: Reading<HostMemory>,
    pub(super) ceiling: Reading<HostCeiling>,
    pub(super) own: OwnCost,
}

/// The host source with what it said of slow things.
pub(super) struct HostReader {
    source: HostSource,
    clock: Arc<dyn Clock>,
    choice: u64,
    slow: Option<(u32, Moment, Reading<HostCeiling>)>,
    own: OwnCost,
    cpu: VecDeque<(Moment, Duration)>,
}

impl HostReader {
    pub(super) fn new(source: HostSource, clock: Arc<dyn Clock>) -> Self {
        HostReader {
            source,
            clock,
            choice: 0,
            slow: None,
            own: OwnCost::default(),
            cpu: VecDeque::with_capacity(CPU_WINDOW),
        }
    }

    pub(super) fn read(&mut self, question: HostQuestion) -> HostAnswer {
        let at = self.clock.now();
        if self.choice != question.choice {
            self.choice = question.choice;
            self.source.forget();
        }
        let memory = self.source.memory(question.pid);
        HostAnswer {
            question,
            at,
            memory,
            ceiling: self.slow_part(question.pid, at),
            own: self.own,
        }
    }

    /// The ceiling of `pid`; our own cost is measured in the same rhythm.
    fn slow_part(&mut self, pid: u32, now: Moment) -> Reading<HostCeiling> {
        if let Some((of, at, ceiling)) = &self.slow
            && *of == pid
            && now.since(*at) < SLOWLY
        {
            return ceiling.clone();
        }
        self.measure_ourselves(now);
        let ceiling = self.source.ceiling(pid);
        self.slow = Some((pid, now, ceiling.clone()));
        ceiling
    }

    fn measure_ourselves(&mut self, now: Moment) {
        let pid = std::process::id();
        self.own.rss = self.source.rss(pid).value().copied();
        let Reading::Is(stat) = self.source.read::<Stat>(pid, "stat") else {
            return;
        };
        let ticks = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
        let used = Duration::try_from_secs_f64(ticks).unwrap_or_default();
        if self.cpu.len() == CPU_WINDOW {
            self.cpu.pop_front();
        }
        self.cpu.push_back((now, used));
        self.own.cpu_percent = self.cpu.front().and_then(|(since, before)| {
            let time = now.since(*since).as_secs_f32();
            (time > 0.5).then(|| used.saturating_sub(*before).as_secs_f32() / time * 100.0)
        });
    }
}
