//! Every sentence that the screen shows about what happened, in one place. A sentence says what an action did and what it
//! did not do, and names the next key.

use std::time::Duration;

use crate::units::Bytes;
use crate::worker::{Command, Done, DriverCall, Outcome, Place, Refusal};

/// The one line below the smallest screen.
pub fn too_small(width: u16, height: u16) -> String {
    if width < 44 {
        return "needs 40x12; q quits".into();
    }
    format!("alloctop needs 40x12, this is {width}x{height}: q quits")
}

/// What the last action did, in at most 39 characters, for the smallest screens.
pub fn short_sentence(outcome: &Outcome) -> Option<&'static str> {
    Some(match outcome.result.as_ref().ok()? {
        Done::Made { .. } if place(&outcome.command) == Some(Place::Cpu) => "host memory written: RSS rose",
        Done::Made { cached: true, .. } => "from the cache: reserved did not move",
        Done::Made { .. } => "driver asked: allocated, reserved rose",
        Done::Deleted { pending: 1.., .. } => "pending: waits for another stream",
        Done::Deleted { gpu: Bytes(1..), .. } => "cached, not returned: f gives it back",
        Done::Deleted { cpu: Bytes(1..), .. } => "back to the kernel: RSS fell",
        Done::Flushed { returned: Bytes(0), .. } => "nothing returned: blocks hold it",
        Done::Flushed { .. } => "cache returned: VRAM and reserved fell",
        _ => return None,
    })
}

/// A duration with its unit: `0.1 us`, `224 us`, `5.2 ms`, `1.5 s`.
pub fn duration(d: Duration) -> String {
    let us = d.as_secs_f64() * 1e6;
    if us < 9.95 {
        format!("{us:.1} us")
    } else if us < 999.5 {
        format!("{us:.0} us")
    } else if us < 9_995.0 {
        format!("{:.1} ms", us / 1e3)
    } else if us < 999_500.0 {
        format!("{:.0} ms", us / 1e3)
    } else {
        format!("{:.1} s", us / 1e6)
    }
}

/// An age or a span: `5 s`, `3 min`, `2.0 h`.
pub fn span(d: Duration) -> String {
    let s = d.as_secs_f64();
    if s < 1.0 {
        format!("{s:.1} s")
    } else if s < 120.0 {
        format!("{s:.0} s")
    } else if s < 7200.0 {
        format!("{:.0} min", s / 60.0)
    } else if s < 48.0 * 3600.0 {
        format!("{:.0} h", s / 3600.0)
    } else {
        format!("{:.0} d", s / 86_400.0)
    }
}

/// A point on a time axis: "now", or how long ago, in the unit that suits the axis's length `unit`.
pub fn ago(ago: Duration, unit: Duration) -> String {
    if ago.is_zero() {
        return "now".into();
    }
    let (size, word) = match unit.as_secs() {
        0..=120 => (1.0, "s"),
        121..=7200 => (60.0, "min"),
        _ => (3600.0, "h"),
    };
    let figure = format!("{:.1}", ago.as_secs_f64() / size);
    format!("-{} {word}", figure.strip_suffix(".0").unwrap_or(&figure))
}

/// What an action was, in the event log.
pub fn action(outcome: &Outcome) -> String {
    match &outcome.command {
        Command::AllocGpu { shape, dtype } => format!("GPU {shape} {dtype}"),
        Command::AllocCpu { shape, dtype } => format!("CPU {shape} {dtype}"),
        Command::Delete(key) => format!("del #{}", key.0),
        Command::DeleteAll => "del all".into(),
        Command::Flush => "flush (empty_cache)".into(),
        Command::ResetPeaks => "peaks reset".into(),
        Command::Stream(id) => format!("stream {}", id.0),
        Command::RecordAndDelete(key) => format!("record_stream + del #{}", key.0),
        Command::BusyStream => "busy stream".into(),
        Command::OutOfMemory => "out of memory on purpose".into(),
        Command::Reconfigure { conf, .. } if conf.is_empty() => "default configuration".into(),
        Command::Reconfigure { conf, .. } => format!("configuration {conf}"),
        Command::Snapshot(_) => "snapshot".into(),
    }
}

/// The letter on the time axis.
pub fn letter(command: &Command) -> char {
    match command {
        Command::AllocGpu { .. } => 'g',
        Command::AllocCpu { .. } => 'c',
        Command::Delete(_) => 'd',
        Command::DeleteAll => 'D',
        Command::Flush => 'f',
        Command::ResetPeaks => 'R',
        Command::Stream(_) => 'S',
        Command::RecordAndDelete(_) => 'r',
        Command::BusyStream => 'n',
        Command::OutOfMemory => 'o',
        Command::Reconfigure { .. } => 'p',
        Command::Snapshot(_) => 'w',
    }
}

/// The measured cost: the driver's calls, or what it took without any.
pub fn cost(outcome: &Outcome) -> String {
    // Questions to the driver (how much is free? is the event done?) are part of every decision, not its cost.
    const COSTS: [&str; 6] = [
        "cuMemAlloc",
        "cuMemFree",
        "cuMemMap",
        "cuMemUnmap",
        "cuMemAddressReserve",
        "cuMemAddressFree",
    ];
    let calls: Vec<&DriverCall> = outcome.calls.iter().filter(|c| COSTS.contains(&c.name)).collect();
    match calls.as_slice() {
        [] => match &outcome.result {
            Ok(Done::Made { cached: true, .. }) => format!("cache hit {}", duration(outcome.took)),
            // Nothing was asked of the driver, and what the others take is no cost worth a figure.
            Ok(Done::Made { .. } | Done::Deleted { .. }) => duration(outcome.took),
            _ => String::new(),
        },
        [call] => format!(
            "{} {}{}",
            call.name,
            duration(call.took),
            if call.failed { " failed" } else { "" }
        ),
        calls => {
            let name = calls[calls.len() - 1].name;
            let same = calls.iter().all(|c| c.name == name);
            let total = duration(calls.iter().map(|c| c.took).sum());
            if same {
                format!("{} x {name} {total}", calls.len())
            } else {
                format!("{} driver calls {total}", calls.len())
            }
        }
    }
}

/// Bytes that a flush would return now: wholly free segments of the default pools. A free part of a segment that still
/// holds a block is counted in inactive_split and cannot be returned.
fn returnable(outcome: &Outcome) -> u64 {
    let after = &outcome.after;
    let cached = after.reserved_bytes.all.current - after.active_bytes.all.current;
    u64::try_from(cached - after.inactive_split_bytes.all.current).unwrap_or_default()
}

fn grown(before: i64, after: i64) -> Bytes {
    Bytes(u64::try_from(after - before).unwrap_or_default())
}

/// What the last action did, and what it did not do.
pub fn sentence(outcome: &Outcome) -> String {
    let (before, after) = (&outcome.before, &outcome.after);
    let reserved = grown(before.reserved_bytes.all.current, after.reserved_bytes.all.current);
    match &outcome.result {
        Err(Refusal::Budget(text) | Refusal::Driver(text) | Refusal::Invalid(text)) => text.clone(),
        Err(Refusal::OutOfMemory(text)) => format!(
            "{text} The allocator flushed before it said so: a flush now returns nothing more. d deletes a block."
        ),
        Ok(Done::Made { bytes, .. }) if place(&outcome.command) == Some(Place::Cpu) => format!(
            "{bytes} of host memory, every page written: RSS rises. The three curves of the GPU have nothing to do with it."
        ),
        Ok(Done::Made {
            bytes, cached: true, ..
        }) => format!(
            "A free block of the cache fitted: allocated +{bytes}, no driver call ({}); reserved and the driver's figure did not move.",
            duration(outcome.took)
        ),
        Ok(Done::Made { bytes, .. }) => {
            let once = if outcome.first_use.is_some() {
                " (and, once, the CUDA context and kernels)"
            } else {
                ""
            };
            if reserved.0 == 0 {
                format!("allocated +{bytes}; the cache was flushed and asked again, so reserved did not grow.")
            } else {
                format!(
                    "No free block fitted: the driver was asked ({}). allocated +{bytes}, reserved and the driver's figure +{reserved}{once}.",
                    cost(outcome)
                )
            }
        }
        Ok(Done::Deleted {
            blocks,
            gpu,
            cpu,
            pending,
        }) => deleted(outcome, *blocks, *gpu, *cpu, *pending),
        Ok(Done::Flushed { returned, kept }) => match (returned.0, kept.0) {
            (0, 0) => "Nothing to flush: the allocator holds no memory.".into(),
            (0, _) => format!(
                "flush returned nothing: every one of the {kept} reserved is in a segment that still holds a block. d deletes one."
            ),
            (_, 0) => format!(
                "flush gave {returned} back to the driver ({}): reserved and the driver's figure fell. The context stays.",
                cost(outcome)
            ),
            _ => format!(
                "flush gave {returned} back to the driver ({}): reserved and the driver's figure fell. {kept} stay in segments that hold a block.",
                cost(outcome)
            ),
        },
        Ok(Done::PeaksReset) => "Peaks start again at the current values; nothing was freed.".into(),
        Ok(Done::Stream(id)) => format!(
            "Stream {} is current: its blocks come from its own cache. A block cached on another stream is not used for it.",
            id.0
        ),
        Ok(Done::Busy(id, time)) => format!(
            "Stream {} has work for {}. r records it on a block and deletes that block: it stays pending until the work has ended and the next g or f notices.",
            id.0,
            span(*time)
        ),
        Ok(Done::Reconfigured { conf, torch, notes }) => {
            let conf = if conf.is_empty() {
                "the default configuration"
            } else {
                conf.as_str()
            };
            let mut text = format!(
                "A fresh allocator with {conf}, rules of torch {torch}; the old one's blocks were deleted and flushed."
            );
            for note in notes {
                text.push(' ');
                text += note;
            }
            text
        }
        Ok(Done::Written(path)) => format!("Written: {}. Open it at pytorch.org/memory_viz.", path.display()),
    }
}

fn place(command: &Command) -> Option<Place> {
    match command {
        Command::AllocGpu { .. } => Some(Place::Gpu),
        Command::AllocCpu { .. } => Some(Place::Cpu),
        _ => None,
    }
}

fn deleted(outcome: &Outcome, blocks: usize, gpu: Bytes, cpu: Bytes, pending: usize) -> String {
    if blocks == 0 && pending > 0 {
        return format!(
            "{pending} deleted blocks still wait for their stream's work; the next g or f notices its end."
        );
    }
    if blocks == 0 {
        return "There is no block to delete: g allocates one.".into();
    }
    let mut parts = Vec::new();
    if gpu.0 > 0 {
        let back = Bytes(returnable(outcome));
        let next = if back.0 > 0 {
            format!("f gives {back} back.")
        } else {
            "f could give nothing back: its segment still holds a block.".into()
        };
        parts.push(if pending > 0 {
            format!(
                "{gpu} left allocated but not active: pending, an event on another stream is outstanding. The next g or f looks whether it is done. Reserved and the driver's figure did not move."
            )
        } else {
            format!("del freed {gpu} inside the cache: allocated fell, reserved and the driver's figure did not. {next}")
        });
    }
    if cpu.0 > 0 {
        parts.push(format!(
            "{cpu} went back to the kernel at once, so RSS falls: large blocks are mappings of their own. (Small ones often stay with the C library.)"
        ));
    }
    parts.join(" ")
}

/// What stands in a file whose JSON could not be made.
pub fn json_error(error: &serde_json::Error) -> String {
    format!("{{\"error\": {:?}}}", error.to_string())
}

/// What each figure is: shown by `i` and at the end of the help (AC-45).
pub const GLOSSARY: &[(&str, &str)] = &[
    (
        "CPU RAM (RES)",
        "pages of this process that are in memory now: anon (heap) + file + shared. Not the container's limit.",
    ),
    (
        "driver VRAM (MEM)",
        "what the driver charges to the process: context + kernels + reserved. nvidia-smi shows this.",
    ),
    (
        "allocated",
        "bytes of live tensors, each rounded up to 512 B: torch.cuda.memory_allocated().",
    ),
    (
        "reserved",
        "bytes that the caching allocator holds from the driver: torch.cuda.memory_reserved().",
    ),
    (
        "driver",
        "what the driver keeps for itself: firmware, page tables (NVML v2 reserved).",
    ),
    ("others", "what the driver charges to other processes."),
    (
        "context",
        "CUDA context, kernels and libraries of the process: its VRAM - reserved. Ends with the process.",
    ),
    ("live", "allocated."),
    (
        "pending",
        "freed, but another stream's work is outstanding: active - allocated.",
    ),
    (
        "cache",
        "reserved - active: a flush returns the wholly free segments of it, not the free parts of others.",
    ),
    ("free", "free on the device."),
    (
        "unexplained",
        "signed rest: charged to the device but to no process. Constant once a context exists; a change is news.",
    ),
    (
        "segment",
        "one piece got from the driver (cudaMalloc); split into blocks.",
    ),
    (
        "inactive split",
        "free parts of segments that still hold a block: what a flush cannot return.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (us, text) in [
            (0.1, "0.1 us"),
            (224.0, "224 us"),
            (5209.0, "5.2 ms"),
            (128_000.0, "128 ms"),
            (1.5e6, "1.5 s"),
        ] {
            assert_eq!(duration(Duration::from_secs_f64(us / 1e6)), text);
        }
        assert_eq!(span(Duration::from_secs(30)), "30 s");
        assert_eq!(span(Duration::from_hours(24)), "24 h");
    }
}
