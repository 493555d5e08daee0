//! From sources to history: the sampler (`sampler`), the bounded history (`history`) and the bill (`bill`).

use std::sync::Arc;
use std::time::Duration;

use crate::allocator::stats::DeviceStats;
use crate::clock::Moment;
use crate::reading::{Reading, Why};
use crate::source::host::is_anothers;
use crate::source::{DeviceActivity, DeviceIdentity, DeviceMemory, DeviceProcess, HostCeiling, HostMemory};
use crate::units::Bytes;

pub mod bill;
pub mod history;
pub mod sampler;

/// A value with the moment at which it was read: a stalled source shows the age of its data (AC-17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aged<T> {
    /// The reading.
    pub reading: Reading<T>,
    /// When it was taken.
    pub at: Moment,
}

/// Everything that was read for one tick, all on one clock.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The tick's moment.
    pub at: Moment,
    /// How late the tick came.
    pub late_by: Duration,
    /// Ticks that were lost since the sample before.
    pub lost: u32,
    /// The interval that holds now.
    pub interval: Duration,
    /// The process whose figures these are: ours, or the one that is watched.
    pub pid: u32,
    /// The watched process on the host.
    pub host: Reading<HostMemory>,
    /// What bounds it on the host.
    pub ceiling: Reading<HostCeiling>,
    /// The device part; shared with the next samples while the device's thread has nothing newer.
    pub device: Arc<DeviceSample>,
    /// The watched allocator's counters: our own, or those of an attached process (summed over its devices only where the
    /// screen says so; here: those of the device that is shown).
    pub counters: Reading<Arc<DeviceStats>>,
    /// True when `counters` are the last good ones and not from this tick (torn reads; allocator-spec 7.7).
    pub counters_stale: bool,
    /// We run in a PID namespace of our own: the driver's PIDs are not ours.
    pub nested: bool,
    /// The watched process's own number of the device, after its CUDA_VISIBLE_DEVICES (AC-40); known when another process
    /// is attached.
    pub cuda_index: Option<u32>,
    /// What this program itself costs.
    pub own: OwnCost,
}

impl Sample {
    /// The watched process's PID in the device's lists; none where it has ended and the number is another's.
    pub fn pid_on_device(&self) -> Option<u32> {
        (!is_anothers(&self.host)).then_some(self.pid)
    }

    /// What the driver charges to the watched process on the device that is shown. Its list is complete where PIDs are the
    /// host's own: who is not in it holds nothing.
    pub fn vram(&self) -> Reading<Bytes> {
        use crate::reading::WhyKind;
        if let (Reading::Missing(why), None) = (&self.host, self.pid_on_device()) {
            return Reading::Missing(why.clone());
        }
        match self.device.vram_of(self.pid) {
            Reading::Missing(why) if why.kind == WhyKind::Absent && self.device.processes.value().is_some() => {
                if self.nested {
                    Reading::missing(
                        WhyKind::Unknown,
                        "the driver lists host PIDs, and this process is not among those visible here: run on the host, or \
                         with --pid=host",
                    )
                } else {
                    Reading::Is(Bytes(0))
                }
            }
            listed => listed,
        }
    }
}

/// The device's figures of one read, with their own moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSample {
    /// When the read began.
    pub at: Moment,
    /// How long the read took (AC-19).
    pub took: Duration,
    /// Which device.
    pub identity: Reading<DeviceIdentity>,
    /// Its memory.
    pub memory: Reading<DeviceMemory>,
    /// Its processes.
    pub processes: Reading<Vec<DeviceProcess>>,
    /// Memory moved between the read before and the read after the process list, twice: the bill is marked *moving*.
    pub moving: bool,
    /// Slow figures.
    pub activity: Reading<DeviceActivity>,
    /// All devices of the monitor.
    pub fleet: Reading<Arc<Fleet>>,
}

/// The devices that the monitor lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Those that can be asked.
    pub devices: Vec<DeviceIdentity>,
    /// Those that refuse, with the reason.
    pub refused: Vec<(u32, Why)>,
    /// The driver's version.
    pub driver: Reading<String>,
}

impl DeviceSample {
    /// Nothing has been read yet.
    pub fn not_yet() -> Self {
        DeviceSample {
            at: Moment::default(),
            took: Duration::ZERO,
            identity: Reading::not_yet(),
            memory: Reading::not_yet(),
            processes: Reading::not_yet(),
            moving: false,
            activity: Reading::not_yet(),
            fleet: Reading::not_yet(),
        }
    }

    /// What the driver charges to `pid` on this device, over its kinds of context. `Absent` if it is not listed.
    pub fn vram_of(&self, pid: u32) -> Reading<Bytes> {
        use crate::reading::WhyKind;
        self.processes.as_ref().and_then(|list| {
            let mut found: Option<Bytes> = None;
            for p in list.iter().filter(|p| p.pid == pid) {
                match &p.vram {
                    // A process with a compute and a graphics context is listed twice with the same figure.
                    Reading::Is(v) => found = Some(found.map_or(*v, |f| f.max(*v))),
                    Reading::Missing(why) => return Reading::Missing(why.clone()),
                }
            }
            found.map_or_else(
                || Reading::missing(WhyKind::Absent, "not in the device's process list: no CUDA context"),
                Reading::Is,
            )
        })
    }
}

/// What this program costs (AC-19).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnCost {
    /// Share of one core since the last measurement, in percent; `None` before the second one.
    pub cpu_percent: Option<f32>,
    /// Our resident set.
    pub rss: Option<Bytes>,
}
