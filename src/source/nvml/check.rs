//! What an answer of the driver may be: blanks that mean "no value" become reasons (AC-7), figures that contradict the
//! card are left out (AC-2).

use std::collections::BTreeMap;

use super::raw::RawProcess;
use crate::reading::{Reading, WhyKind};
use crate::source::{DeviceMemory, DeviceProcess, MemoryInfoVersion, ProcessKind};
use crate::units::Bytes;

/// The reason for a process that is said to hold more than there is.
pub(super) const MORE_THAN_THE_CARD: &str = "the driver charges more to processes than the card has";

/// Memory as the driver answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawMemory {
    pub(super) total: u64,
    pub(super) reserved: Option<u64>,
    pub(super) used: u64,
    pub(super) free: u64,
    pub(super) version: MemoryInfoVersion,
}

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The driver says that it has no value.
    Blank,
    /// The figures contradict each other.
    Impossible(String),
}

/// A 64-bit value, unless it stands for "not available": all ones (NVML) or DCGM's four blanks from 2^63 - 16 on.
pub(super) fn known64(n: u64) -> Option<u64> {
    (n < 0x7FFF_FFFF_FFFF_FFF0).then_some(n)
}

/// A 32-bit value, unless it stands for "not available": all ones (NVML) or DCGM's four blanks from 2^31 - 16 on.
pub(super) fn known32(n: u32) -> Option<u32> {
    (n < 0x7FFF_FFF0).then_some(n)
}

/// Checks the figures against each other: on a real card reserved + used + free is the total in version 2, used + free in
/// version 1 (AC-1).
pub(super) fn memory(raw: &RawMemory) -> Result<DeviceMemory, Fault> {
    let known = |n| known64(n).ok_or(Fault::Blank);
    let (total, used, free) = (known(raw.total)?, known(raw.used)?, known(raw.free)?);
    let reserved = raw.reserved.and_then(known64);
    let sum = [Some(used), Some(free), reserved]
        .into_iter()
        .flatten()
        .map(u128::from)
        .sum::<u128>();
    if total == 0 || sum > u128::from(total) {
        return Err(Fault::Impossible(format!(
            "the driver's memory figures contradict each other: {sum} of {total} bytes"
        )));
    }
    let reserved = match (raw.version, reserved) {
        (_, Some(n)) => Reading::Is(Bytes(n)),
        (MemoryInfoVersion::V1, None) => Reading::missing(
            WhyKind::Absent,
            "this driver counts its own part as used (\"incl. driver\")",
        ),
        (MemoryInfoVersion::V2, None) => {
            Reading::missing(WhyKind::Absent, "the driver does not say what it keeps for itself")
        }
    };
    Ok(DeviceMemory {
        total: Bytes(total),
        reserved,
        used: Bytes(used),
        free: Bytes(free),
        version: raw.version,
    })
}

/// The processes with their bytes checked against the card's total, and how many figures were left out. Where all of
/// them together exceed it, none can be trusted.
pub(super) fn processes(list: Vec<(RawProcess, ProcessKind)>, total: Option<u64>) -> (Vec<DeviceProcess>, usize) {
    let limit = total.unwrap_or(u64::MAX);
    // A process with two kinds of context is listed twice with the same bytes.
    let mut by_pid: BTreeMap<u32, u64> = BTreeMap::new();
    for (process, _) in &list {
        if let Some(used) = known64(process.used).filter(|n| *n <= limit) {
            let entry = by_pid.entry(process.pid).or_default();
            *entry = (*entry).max(used);
        }
    }
    let sum: u128 = by_pid.values().map(|n| u128::from(*n)).sum();
    let all_wrong = sum > u128::from(limit);
    let mut faults = 0;
    let mut processes: Vec<DeviceProcess> = list
        .into_iter()
        .map(|(process, kind)| {
            let vram = match known64(process.used) {
                None => Reading::missing(
                    WhyKind::Absent,
                    "the driver does not say what this process holds (WSL, MIG without rights, or another PID namespace)",
                ),
                Some(used) if all_wrong || used > limit => {
                    faults += 1;
                    Reading::missing(WhyKind::Impossible, MORE_THAN_THE_CARD)
                }
                Some(used) => Reading::Is(Bytes(used)),
            };
            DeviceProcess {
                pid: process.pid,
                vram,
                kind,
            }
        })
        .collect();
    processes.sort_by_key(|p| (p.pid, p.kind));
    processes.dedup_by_key(|p| (p.pid, p.kind));
    (processes, faults)
}
