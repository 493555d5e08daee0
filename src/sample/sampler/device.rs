//! One read of a device: its memory before and after its process list, read again if it moved meanwhile (issue 2, point
//! 4), so that the bill's lines are of one moment or are marked as moving.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::reading::{Reading, WhyKind};
use crate::sample::{DeviceSample, Fleet};
use crate::source::processes::DeviceSurvey;
use crate::source::{DeviceActivity, DeviceMemory, DeviceMonitor, DeviceProcess};

/// Slow figures are read at most this often.
const ACTIVITY_EVERY: Duration = Duration::from_secs(1);
/// The list of devices is read again this often while it is missing, and on every change of device.
const FLEET_EVERY: Duration = Duration::from_secs(5);

/// What to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceQuestion {
    /// The device that is shown.
    pub(super) index: u32,
    /// Also survey all devices for the process table.
    pub(super) survey: bool,
}

/// What was read.
#[derive(Debug)]
pub(super) struct DeviceAnswer {
    pub(super) index: u32,
    pub(super) sample: Arc<DeviceSample>,
    pub(super) survey: Option<Vec<DeviceSurvey>>,
}

/// The monitor with what it said of slow things.
pub(super) struct DeviceReader {
    monitor: Box<dyn DeviceMonitor>,
    clock: Arc<dyn Clock>,
    fleet: Reading<Arc<Fleet>>,
    fleet_at: Option<Moment>,
    activity: Option<(u32, Moment, Reading<DeviceActivity>)>,
}

impl DeviceReader {
    pub(super) fn new(monitor: Box<dyn DeviceMonitor>, clock: Arc<dyn Clock>) -> Self {
        DeviceReader {
            monitor,
            clock,
            fleet: Reading::not_yet(),
            fleet_at: None,
            activity: None,
        }
    }

    pub(super) fn read(&mut self, question: DeviceQuestion) -> DeviceAnswer {
        let index = question.index;
        let at = self.clock.now();
        self.refresh_fleet(at, index);
        let (memory, processes, moving) = read_steady(&mut *self.monitor, index);
        let activity = self.activity(index, at);
        let took = self.clock.now().since(at);
        let sample = Arc::new(DeviceSample {
            at,
            took,
            identity: self.fleet.as_ref().and_then(|fleet| {
                fleet.devices.iter().find(|d| d.index == index).cloned().map_or_else(
                    || {
                        Reading::missing(
                            WhyKind::Absent,
                            format!("there is no GPU {index} here: choose one with --gpu or v"),
                        )
                    },
                    Reading::Is,
                )
            }),
            memory,
            processes,
            moving,
            activity,
            fleet: self.fleet.clone(),
        });
        let survey = question.survey.then(|| self.survey(&sample));
        DeviceAnswer { index, sample, survey }
    }

    /// Reads the list of devices when it was never read, is missing, or lacks the one that is asked for.
    fn refresh_fleet(&mut self, now: Moment, index: u32) {
        let complete = self
            .fleet
            .value()
            .is_some_and(|fleet| fleet.devices.iter().any(|d| d.index == index));
        if complete || self.fleet_at.is_some_and(|at| now.since(at) < FLEET_EVERY) {
            return;
        }
        self.fleet_at = Some(now);
        let driver = self.monitor.driver_version();
        self.fleet = self.monitor.devices().map(|devices| {
            Arc::new(Fleet {
                devices,
                refused: self.monitor.refused(),
                driver,
            })
        });
    }

    /// Slow figures, from the last second if there are some.
    fn activity(&mut self, index: u32, now: Moment) -> Reading<DeviceActivity> {
        if let Some((of, at, activity)) = &self.activity
            && *of == index
            && now.since(*at) < ACTIVITY_EVERY
        {
            return activity.clone();
        }
        let activity = self.monitor.activity(index);
        self.activity = Some((index, now, activity.clone()));
        activity
    }

    /// Memory and processes of every device; those of the shown one are taken from `shown`.
    fn survey(&mut self, shown: &DeviceSample) -> Vec<DeviceSurvey> {
        let devices = self.fleet.value().map_or(&[][..], |fleet| &fleet.devices);
        let mut surveys = Vec::new();
        for device in devices {
            let (memory, processes) = if shown.identity.value().is_some_and(|i| i.uuid == device.uuid) {
                (shown.memory.clone(), shown.processes.clone())
            } else {
                let (memory, processes, _) = read_steady(&mut *self.monitor, device.index);
                (memory, processes)
            };
            surveys.push(DeviceSurvey {
                device: device.clone(),
                memory,
                processes,
            });
        }
        surveys
    }
}

/// Memory and processes of one moment: (memory, processes, moving).
fn read_steady(
    monitor: &mut dyn DeviceMonitor,
    index: u32,
) -> (Reading<DeviceMemory>, Reading<Vec<DeviceProcess>>, bool) {
    let before = monitor.memory(index);
    let processes = monitor.processes(index);
    let after = monitor.memory(index);
    if before == after {
        return (after, processes, false);
    }
    let processes = monitor.processes(index);
    let last = monitor.memory(index);
    let moving = last != after;
    (last, processes, moving)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::source::{DeviceIdentity, MemoryInfoVersion};
    use crate::units::Bytes;

    /// A monitor whose memory follows a script.
    struct Script(VecDeque<u64>, u32);

    impl DeviceMonitor for Script {
        fn devices(&mut self) -> Reading<Vec<DeviceIdentity>> {
            Reading::missing(WhyKind::Absent, "none")
        }
        fn memory(&mut self, _: u32) -> Reading<DeviceMemory> {
            let used = if self.0.len() > 1 {
                self.0.pop_front()
            } else {
                self.0.front().copied()
            };
            Reading::Is(DeviceMemory {
                total: Bytes(1000),
                reserved: Reading::Is(Bytes(0)),
                used: Bytes(used.unwrap_or_default()),
                free: Bytes(0),
                version: MemoryInfoVersion::V2,
            })
        }
        fn processes(&mut self, _: u32) -> Reading<Vec<DeviceProcess>> {
            self.1 += 1;
            Reading::Is(Vec::new())
        }
        fn activity(&mut self, _: u32) -> Reading<DeviceActivity> {
            Reading::not_yet()
        }
        fn driver_version(&mut self) -> Reading<String> {
            Reading::not_yet()
        }
    }

    #[test]
    fn memory_that_moves_is_read_again_and_marked_if_it_moves_on() {
        for (script, used, lists, moving) in [
            (&[5, 5][..], 5, 1, false),
            (&[5, 6, 6], 6, 2, false),
            (&[5, 6, 7], 7, 2, true),
        ] {
            let mut monitor = Script(script.iter().copied().collect(), 0);
            let (memory, _, is_moving) = read_steady(&mut monitor, 0);
            assert_eq!(memory.value().unwrap().used, Bytes(used));
            assert_eq!((monitor.1, is_moving), (lists, moving));
        }
    }
}
