//! A look as text, for people.

use std::io::{self, Write};

use super::{Document, bytes};
use crate::units::SignedBytes;

/// Writes the document as text.
///
/// # Errors
/// The output cannot be written.
pub fn write(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    if let Some(reason) = &document.devices_reason {
        writeln!(out, "no GPU can be shown: {reason}")?;
        if document.processes.is_empty() {
            return Ok(());
        }
    }
    for device in &document.devices {
        let badge = if device.simulated { " SIMULATED" } else { "" };
        writeln!(out, "GPU {}{badge} {} {}", device.index, device.name, device.uuid)?;
        let label = if device.used_includes_driver == Some(true) {
            "used (incl. driver)"
        } else {
            "used"
        };
        let unexplained = device
            .unexplained_bytes
            .map_or("-".to_string(), |b| SignedBytes(i128::from(b)).to_string());
        writeln!(
            out,
            "  total {} = driver {} + {label} {} + free {}",
            bytes(device.total_bytes),
            bytes(device.driver_bytes),
            bytes(device.used_bytes),
            bytes(device.free_bytes),
        )?;
        writeln!(
            out,
            "  of the used: listed processes {}, in no process {unexplained}",
            bytes(device.processes_bytes)
        )?;
        if let Some(reason) = &device.reason {
            writeln!(out, "  ({reason})")?;
        }
    }
    writeln!(
        out,
        "{:>8} {:<10} {:>10} {:>10} {:>10} {:>10} {:>10}  command",
        "pid", "user", "RSS", "VRAM", "allocated", "reserved", "cached"
    )?;
    for process in &document.processes {
        let vram = process
            .gpus
            .iter()
            .map(|g| g.vram_bytes)
            .reduce(|a, b| a.zip(b).map(|(a, b)| a + b))
            .flatten();
        let sum = |key: &str| {
            let torch = process.torch.as_ref()?;
            torch
                .devices
                .iter()
                .map(|d| d.stats.get(key)?.as_u64())
                .sum::<Option<u64>>()
        };
        let reserved = sum("reserved_bytes.all.current");
        let cached = reserved
            .zip(sum("active_bytes.all.current"))
            .and_then(|(r, a)| r.checked_sub(a));
        let pid = process
            .inner_pid
            .map_or(process.pid.to_string(), |inner| format!("{}/{inner}", process.pid));
        writeln!(
            out,
            "{pid:>8} {:<10} {:>10} {:>10} {:>10} {:>10} {:>10}  {}",
            process.user.as_deref().unwrap_or("-"),
            bytes(process.rss_bytes),
            bytes(vram),
            bytes(sum("allocated_bytes.all.current")),
            bytes(reserved),
            bytes(cached),
            process.command.as_deref().unwrap_or("-"),
        )?;
        if let Some(container) = &process.container {
            writeln!(out, "{:>8} in container {container}", "")?;
        }
        if let Some(reason) = &process.reason {
            writeln!(out, "{:>8} {reason}", "")?;
        }
    }
    if document.processes.is_empty() {
        writeln!(out, "no process on these devices")?;
    }
    Ok(())
}
