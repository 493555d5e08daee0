//! The bill: the device's memory as lines that add up to its total, byte for byte (AC-44; users.md section 1). What the
//! lines leave over is a signed line of its own, *unexplained*; it is never spread over the others, and an unknown line
//! never becomes a part of it.

use crate::allocator::stats::DeviceStats;
use crate::reading::{Reading, Why, WhyKind};
use crate::sample::{DeviceSample, Sample};
use crate::source::MemoryInfoVersion;
use crate::units::{Bytes, SignedBytes};

/// The lines, in the order in which they are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LineKind {
    /// What the driver keeps for itself.
    Driver,
    /// All other processes on the device.
    Others,
    /// The watched process's bytes outside its caching allocator: context, kernels, libraries.
    Context,
    /// Live blocks.
    Live,
    /// Blocks that were freed while a stream may still use them.
    Pending,
    /// Free blocks that the allocator keeps.
    Cache,
    /// The watched process as one line, where its allocator's counters are not known.
    Process,
    /// Free memory of the device.
    Free,
}

impl LineKind {
    /// The word on the screen.
    pub fn word(self) -> &'static str {
        match self {
            LineKind::Driver => "driver",
            LineKind::Others => "others",
            LineKind::Context => "context",
            LineKind::Live => "live",
            LineKind::Pending => "pending",
            LineKind::Cache => "cache",
            LineKind::Process => "process",
            LineKind::Free => "free",
        }
    }
}

/// One line of the bill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BillLine {
    /// Which line.
    pub kind: LineKind,
    /// Its bytes, or why they are not known.
    pub bytes: Reading<Bytes>,
    /// Where the figure comes from, in words.
    pub source: &'static str,
}

/// The device's memory in lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bill {
    /// Everything on the board: the lines and *unexplained* sum to it.
    pub total: Reading<Bytes>,
    /// The lines in drawing order; none while the total is unknown.
    pub lines: Vec<BillLine>,
    /// Total less the lines; `None` as long as one line is unknown: see [`Bill::unknown`].
    pub unexplained: Option<SignedBytes>,
    /// The device's memory moved while it was read: the remainder may be due to that.
    pub moving: bool,
    /// Why the process is one line instead of context, live, pending and cache.
    pub unsplit: Option<Why>,
}

/// The words for lines that belong to the process, whatever its allocator.
const CONTEXT_SOURCE: &str = "process's VRAM (NVML) - reserved";
const LIVE_SOURCE: &str = "allocated_bytes";
const PENDING_SOURCE: &str = "active_bytes - allocated_bytes";
const CACHE_SOURCE: &str = "reserved_bytes - active_bytes";

impl Bill {
    /// The bill of one sample, for the process that it watches.
    pub fn of(sample: &Sample) -> Self {
        // No process has the number 0: one that has ended holds nothing, and who has its number now is one of the others.
        let pid = sample.pid_on_device().unwrap_or(0);
        Bill::of_process(&sample.device, pid, &sample.counters.as_ref().map(|c| &**c))
    }

    /// The bill of a device as seen from `pid` with its allocator's `counters` on that device.
    pub fn of_process(device: &DeviceSample, pid: u32, counters: &Reading<&DeviceStats>) -> Self {
        let memory = match &device.memory {
            Reading::Is(memory) => memory,
            Reading::Missing(why) => return Bill::unknown_total(why.clone(), device.moving),
        };
        let driver = match memory.version {
            MemoryInfoVersion::V2 => memory.reserved.clone(),
            MemoryInfoVersion::V1 => Reading::missing(
                WhyKind::Absent,
                "this driver does not say what it keeps for itself: its part is in used (\"incl. driver\")",
            ),
        };
        let mut lines = vec![line(LineKind::Driver, driver, "NVML memory v2, reserved")];
        let unsplit = process_lines(&mut lines, device, pid, counters);
        lines.push(line(LineKind::Free, Reading::Is(memory.free), "NVML memory, free"));
        Bill {
            total: Reading::Is(memory.total),
            unexplained: unexplained(memory.total, &lines),
            lines,
            moving: device.moving,
            unsplit,
        }
    }

    /// No bill: the device's memory is not known.
    fn unknown_total(why: Why, moving: bool) -> Self {
        Bill {
            total: Reading::Missing(why),
            lines: Vec::new(),
            unexplained: None,
            moving,
            unsplit: None,
        }
    }

    /// The bytes of one line; `Absent` when the bill has no such line.
    pub fn bytes(&self, kind: LineKind) -> Reading<Bytes> {
        self.lines.iter().find(|l| l.kind == kind).map_or_else(
            || Reading::missing(WhyKind::Absent, "the bill has no such line"),
            |l| l.bytes.clone(),
        )
    }

    /// The lines that are not known: together with *unexplained* they hold [`Bill::rest`].
    pub fn unknown(&self) -> impl Iterator<Item = LineKind> {
        self.lines.iter().filter(|l| l.bytes.value().is_none()).map(|l| l.kind)
    }

    /// Total less all known lines: *unexplained* alone when every line is known, else the unknown lines with it.
    pub fn rest(&self) -> Option<SignedBytes> {
        self.total.value().map(|total| rest_of(*total, &self.lines))
    }
}

/// Adds the lines of other processes and of the watched one; says why the latter is not split.
fn process_lines(
    lines: &mut Vec<BillLine>,
    device: &DeviceSample,
    pid: u32,
    counters: &Reading<&DeviceStats>,
) -> Option<Why> {
    let vram = device.vram_of(pid);
    let listed =
        !matches!(&vram, Reading::Missing(why) if why.kind == WhyKind::Absent && device.processes.value().is_some());
    let parts = counters.as_ref().and_then(|stats| Parts::of(stats));
    // Bytes in its pool although the driver does not list it: the list speaks of it under a PID that we cannot see.
    let hidden = !listed && parts.value().is_some_and(|p| p.reserved() > 0);
    let others = if hidden {
        Reading::missing(
            WhyKind::Unknown,
            "the driver lists this process under a host PID that is not visible here: it cannot be told from the others",
        )
    } else {
        others(device, pid)
    };
    lines.push(line(
        LineKind::Others,
        others,
        "NVML process list, all but this process",
    ));
    // Not listed and nothing in its pool: by the driver's own list it holds nothing.
    let charged = if listed || hidden { vram } else { Reading::Is(Bytes(0)) };
    match parts {
        Reading::Missing(why) => {
            lines.push(line(LineKind::Process, charged, "NVML process list"));
            Some(why)
        }
        Reading::Is(parts) => {
            lines.push(line(LineKind::Context, parts.context(charged), CONTEXT_SOURCE));
            lines.push(line(LineKind::Live, Reading::Is(Bytes(parts.live)), LIVE_SOURCE));
            lines.push(line(
                LineKind::Pending,
                Reading::Is(Bytes(parts.pending)),
                PENDING_SOURCE,
            ));
            lines.push(line(LineKind::Cache, Reading::Is(Bytes(parts.cache)), CACHE_SOURCE));
            None
        }
    }
}

/// What all processes but `pid` hold. One process with unknown bytes makes the sum unknown.
fn others(device: &DeviceSample, pid: u32) -> Reading<Bytes> {
    let list = match &device.processes {
        Reading::Is(list) => list,
        Reading::Missing(why) => return Reading::Missing(why.clone()),
    };
    let mut pids: Vec<u32> = list.iter().map(|p| p.pid).filter(|p| *p != pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let mut sum: u64 = 0;
    for other in pids {
        match device.vram_of(other) {
            Reading::Is(bytes) => sum = sum.saturating_add(bytes.0),
            Reading::Missing(why) => return Reading::Missing(why),
        }
    }
    Reading::Is(Bytes(sum))
}

/// The allocator's pool in its three parts, in bytes.
struct Parts {
    live: u64,
    pending: u64,
    cache: u64,
}

impl Parts {
    /// The parts of the counters; impossible when they are not nested as allocated <= active <= reserved.
    fn of(stats: &DeviceStats) -> Reading<Self> {
        let allocated = stats.allocated_bytes.all.current;
        let active = stats.active_bytes.all.current;
        let reserved = stats.reserved_bytes.all.current;
        if !(0..=active).contains(&allocated) || active > reserved {
            return Reading::missing(
                WhyKind::Impossible,
                "the allocator's counters contradict each other (allocated <= active <= reserved does not hold)",
            );
        }
        Reading::Is(Parts {
            live: allocated as u64,
            pending: (active - allocated) as u64,
            cache: (reserved - active) as u64,
        })
    }

    fn reserved(&self) -> u64 {
        self.live + self.pending + self.cache
    }

    /// What the process holds besides its pool.
    fn context(&self, charged: Reading<Bytes>) -> Reading<Bytes> {
        charged.and_then(|vram| {
            vram.0.checked_sub(self.reserved()).map(Bytes).map_or_else(
                || {
                    Reading::missing(
                        WhyKind::Impossible,
                        "the driver charges less to this process than its allocator holds: the two were read at different moments, \
                         or it runs on another device",
                    )
                },
                Reading::Is,
            )
        })
    }
}

fn line(kind: LineKind, bytes: Reading<Bytes>, source: &'static str) -> BillLine {
    BillLine { kind, bytes, source }
}

/// Total less the known lines.
fn rest_of(total: Bytes, lines: &[BillLine]) -> SignedBytes {
    let known: i128 = lines
        .iter()
        .filter_map(|l| l.bytes.value())
        .map(|b| i128::from(b.0))
        .sum();
    SignedBytes(i128::from(total.0) - known)
}

/// Total less all lines, if all are known.
fn unexplained(total: Bytes, lines: &[BillLine]) -> Option<SignedBytes> {
    lines
        .iter()
        .all(|l| l.bytes.value().is_some())
        .then(|| rest_of(total, lines))
}

#[cfg(test)]
mod tests;
