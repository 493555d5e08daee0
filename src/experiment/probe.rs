//! What is read after a step: this process on the host, and on the device.

use std::collections::BTreeSet;
use std::time::Duration;

use super::step::{Step, StepReading};
use crate::reading::{Reading, Why, WhyKind};
use crate::source::DeviceMonitor;
use crate::source::host::HostSource;
use crate::units::KIB;
use crate::worker::State;

/// Readings are taken until two in a row are equal, at most so often.
const READS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);
/// RSS counts as equal within this: the kernel counts it in batches.
const RSS_STILL: u64 = 256 * KIB;

/// Reads this process and the device.
pub(super) struct Probe {
    host: HostSource,
    monitor: Box<dyn DeviceMonitor>,
    index: u32,
    /// A context exists: from now on the process must be in the device's list.
    context_made: bool,
    /// Who was in the list before.
    others: BTreeSet<u32>,
}

/// The figures from outside the allocator.
struct Outside {
    rss: Reading<u64>,
    vram: Reading<u64>,
    used: Reading<u64>,
}

impl Outside {
    fn equals(&self, other: &Outside) -> bool {
        let still = match (&self.rss, &other.rss) {
            (Reading::Is(a), Reading::Is(b)) => a.abs_diff(*b) <= RSS_STILL,
            (a, b) => a == b,
        };
        still && self.vram == other.vram && self.used == other.used
    }
}

impl Probe {
    /// Reads this process and device `index` of `monitor`.
    pub fn new(monitor: Box<dyn DeviceMonitor>, index: u32) -> Self {
        Probe {
            host: HostSource::new("/proc"),
            monitor,
            index,
            context_made: false,
            others: BTreeSet::new(),
        }
    }

    fn outside(&mut self) -> Outside {
        let me = std::process::id();
        Outside {
            rss: self.host.memory(me).map(|m| m.rss.0),
            vram: self.vram(me),
            used: self.monitor.memory(self.index).map(|m| m.used.0),
        }
    }

    /// What the driver charges to this process. Without a context it is in no list and holds nothing.
    fn vram(&mut self, me: u32) -> Reading<u64> {
        let list = match self.monitor.processes(self.index) {
            Reading::Is(list) => list,
            Reading::Missing(why) => return Reading::Missing(why),
        };
        let listed = |pid: u32| list.iter().any(|p| p.pid == pid);
        if !self.context_made && !listed(me) {
            self.others = list.iter().map(|p| p.pid).collect();
            return Reading::Is(0);
        }
        let mut newcomers: Vec<u32> = list
            .iter()
            .map(|p| p.pid)
            .filter(|pid| !self.others.contains(pid))
            .collect();
        newcomers.dedup();
        let pid = match newcomers[..] {
            _ if listed(me) => me,
            // Another PID namespace (a container): the driver knows this process under another number. Only one
            // process came since the last look without a context, and it came with our context.
            [only] => only,
            _ => {
                return Reading::missing(
                    WhyKind::Refused,
                    "this process has a context but is not in the device's list: its PID namespace differs from the \
                     driver's (start the container with --pid=host)",
                );
            }
        };
        let mut charged = Reading::Is(0);
        for process in list.into_iter().filter(|p| p.pid == pid) {
            match (process.vram, &charged) {
                (Reading::Is(bytes), Reading::Is(most)) => charged = Reading::Is(bytes.0.max(*most)),
                (Reading::Missing(why), _) => charged = Reading::Missing(why),
                (Reading::Is(_), Reading::Missing(_)) => {}
            }
        }
        charged
    }

    /// Reads until two readings in a row are equal.
    fn settled(&mut self) -> Outside {
        let mut last = self.outside();
        for _ in 0..READS {
            std::thread::sleep(PAUSE);
            let next = self.outside();
            if next.equals(&last) {
                return next;
            }
            last = next;
        }
        let moving = || {
            Reading::Missing(Why::new(
                WhyKind::Late,
                "the readings did not settle within two seconds",
            ))
        };
        Outside {
            rss: moving(),
            vram: moving(),
            used: moving(),
        }
    }

    /// What can be read after a step, with the allocator's counters of `state`.
    pub fn read(&mut self, state: &State, step: Step, cost_us: Option<f64>, failed: Option<String>) -> StepReading {
        self.context_made |= state.context_made;
        let outside = self.settled();
        let counter = |n: i64| state.ended.is_none().then(|| u64::try_from(n).ok()).flatten();
        let mut missing = Vec::new();
        let mut known = |name: &str, reading: Reading<u64>| match reading {
            Reading::Is(value) => Some(value),
            Reading::Missing(why) => {
                missing.push(format!("{name}: {why}"));
                None
            }
        };
        StepReading {
            step,
            rss: known("RSS", outside.rss),
            process_vram: known("the process's VRAM", outside.vram),
            device_used: known("the device", outside.used),
            allocated: counter(state.stats.allocated_bytes.all.current),
            reserved: counter(state.stats.reserved_bytes.all.current),
            allocated_peak: counter(state.stats.allocated_bytes.all.peak),
            reserved_peak: counter(state.stats.reserved_bytes.all.peak),
            cost_us,
            failed,
            missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{DeviceActivity, DeviceIdentity, DeviceMemory, DeviceProcess, ProcessKind};
    use crate::units::Bytes;

    /// A monitor that gives these lists of (pid, bytes), one after the other.
    struct Lists(Vec<Vec<(u32, u64)>>);

    impl DeviceMonitor for Lists {
        fn devices(&mut self) -> Reading<Vec<DeviceIdentity>> {
            Reading::not_yet()
        }
        fn memory(&mut self, _: u32) -> Reading<DeviceMemory> {
            Reading::not_yet()
        }
        fn processes(&mut self, _: u32) -> Reading<Vec<DeviceProcess>> {
            let list = self.0.remove(0).into_iter();
            let process = |(pid, bytes)| DeviceProcess {
                pid,
                vram: Reading::Is(Bytes(bytes)),
                kind: ProcessKind::Compute,
            };
            Reading::Is(list.map(process).collect())
        }
        fn activity(&mut self, _: u32) -> Reading<DeviceActivity> {
            Reading::not_yet()
        }
        fn driver_version(&mut self) -> Reading<String> {
            Reading::not_yet()
        }
    }

    const ME: u32 = 100;

    /// What is read as this process's VRAM before and after its context.
    fn before_and_after(before: &[(u32, u64)], after: &[(u32, u64)]) -> (Reading<u64>, Option<u64>) {
        let mut probe = Probe::new(Box::new(Lists(vec![before.to_vec(), after.to_vec()])), 0);
        let first = probe.vram(ME);
        probe.context_made = true;
        (first, probe.vram(ME).value().copied())
    }

    #[test]
    fn a_process_without_a_context_holds_nothing() {
        assert_eq!(
            before_and_after(&[(7, 5)], &[(7, 5), (ME, 9)]),
            (Reading::Is(0), Some(9))
        );
    }

    #[test]
    fn two_kinds_of_context_are_one_figure() {
        assert_eq!(before_and_after(&[], &[(ME, 9), (ME, 9)]).1, Some(9));
    }

    #[test]
    fn in_a_container_the_one_newcomer_is_this_process() {
        assert_eq!(before_and_after(&[(7, 5)], &[(7, 5), (4242, 9)]).1, Some(9));
        assert_eq!(
            before_and_after(&[(7, 5)], &[(7, 5), (4242, 9), (4243, 1)]).1,
            None,
            "two came"
        );
        assert_eq!(
            before_and_after(&[(7, 5)], &[(7, 5)]).1,
            None,
            "none came: hidden is not zero"
        );
    }
}
