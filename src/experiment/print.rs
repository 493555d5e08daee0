//! The result for people and for programs.

use std::io::Write;

use serde_json::{Value, json};

use super::judge::Verdict;
use super::step::{Device, StepReading};
use super::{ExperimentOptions, exit_code};
use crate::source::printable::printable;
use crate::units::Bytes;

/// The version of the JSON below; it changes when a key changes its meaning.
pub const SCHEMA: u32 = 1;

/// `{schema, backend, device, torch, conf, steps: [{step, rss_bytes, process_vram_bytes, device_used_bytes, allocated_bytes,
/// reserved_bytes, allocated_peak_bytes, reserved_peak_bytes, cost_us, agrees}]}`; null is unknown.
pub fn json(options: &ExperimentOptions, device: &Device, steps: &[StepReading], verdicts: &[Verdict]) -> Value {
    let steps: Vec<Value> = steps
        .iter()
        .zip(verdicts)
        .map(|(s, verdict)| {
            json!({
                "step": s.step.name(),
                "rss_bytes": s.rss,
                "process_vram_bytes": s.process_vram,
                "device_used_bytes": s.device_used,
                "allocated_bytes": s.allocated,
                "reserved_bytes": s.reserved,
                "allocated_peak_bytes": s.allocated_peak,
                "reserved_peak_bytes": s.reserved_peak,
                "cost_us": s.cost_us,
                "agrees": verdict.agrees(),
            })
        })
        .collect();
    json!({ "schema": SCHEMA, "backend": options.backend.name(), "device": device.name, "torch": device.torch,
            "conf": device.conf, "steps": steps })
}

/// One row a step: figures, each with its change, then what is documented and whether it was seen.
pub fn table(
    options: &ExperimentOptions,
    device: &Device,
    steps: &[StepReading],
    verdicts: &[Verdict],
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let size = options
        .shape
        .bytes(options.dtype)
        .map_or_else(String::new, |b| format!(" = {b} B"));
    let simulated = if device.simulated { " (SIMULATED)" } else { "" };
    let conf = if device.conf.is_empty() {
        "default configuration".into()
    } else {
        printable(device.conf.as_bytes(), 200)
    };
    writeln!(
        out,
        "{} {}{size} on {}{simulated}, rules of torch {}, {conf}",
        options.shape, options.dtype, device.name, device.torch
    )?;
    for note in &device.notes {
        writeln!(out, "note: {}", printable(note.as_bytes(), 400))?;
    }
    writeln!(out)?;
    let head = [
        "step",
        "RSS",
        "process VRAM",
        "device used",
        "allocated",
        "reserved",
        "peaks",
        "cost",
        "agrees",
    ];
    let mut rows = vec![head.map(String::from)];
    let mut before: Option<&StepReading> = None;
    for (step, verdict) in steps.iter().zip(verdicts) {
        let then = |read: fn(&StepReading) -> Option<u64>| figure(before.is_none(), before.and_then(read), read(step));
        rows.push([
            step.step.name().into(),
            then(|s| s.rss),
            then(|s| s.process_vram),
            then(|s| s.device_used),
            then(|s| s.allocated),
            then(|s| s.reserved),
            format!("{} / {}", plain(step.allocated_peak), plain(step.reserved_peak)),
            step.cost_us.map_or_else(|| "-".into(), cost),
            word(verdict).into(),
        ]);
        before = Some(step);
    }
    let widths: Vec<usize> = (0..head.len())
        .map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or_default())
        .collect();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    writeln!(out, "\nwhat PyTorch's documentation says, and what was seen:")?;
    for (step, verdict) in steps.iter().zip(verdicts) {
        writeln!(
            out,
            "  {:<12} {:<9} {}",
            step.step.name(),
            word(verdict),
            step.step.documented()
        )?;
        for reason in verdict.reasons() {
            writeln!(out, "{:<25} {reason}", "")?;
        }
    }
    writeln!(out, "\n{}", conclusion(verdicts))
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "yes",
        Verdict::Disagrees(_) => "NO",
        Verdict::Unknown(_) => "unknown",
    }
}

fn plain(value: Option<u64>) -> String {
    value.map_or_else(|| "-".into(), |v| Bytes(v).to_string())
}

/// The value and its change since the step before, if there was one.
fn figure(first: bool, before: Option<u64>, now: Option<u64>) -> String {
    match (before, now) {
        _ if first => plain(now),
        (Some(then), Some(now)) => format!("{} {}", Bytes(now), Bytes(now).minus(Bytes(then))),
        _ => format!("{} ?", plain(now)),
    }
}

fn cost(us: f64) -> String {
    if us >= 10_000.0 {
        format!("{:.0} ms", us / 1000.0)
    } else if us >= 1000.0 {
        format!("{:.1} ms", us / 1000.0)
    } else {
        format!("{us:.1} us")
    }
}

fn conclusion(verdicts: &[Verdict]) -> String {
    let count = verdicts.iter().filter(|v| **v == Verdict::Agrees).count();
    let all = verdicts.len();
    match exit_code(verdicts) {
        super::ALL_AGREE => format!("all {all} steps agree with the documentation"),
        super::ONE_DISAGREES => format!("{count} of {all} steps agree; at least one disagrees"),
        _ => format!("{count} of {all} steps agree; the rest is unknown"),
    }
}
