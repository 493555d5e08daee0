//! `torch.cuda.memory_summary()` as text: the same table, column for column.

use std::fmt::Write;

use super::stats::{DeviceStats, Stat};

const UNITS: [&str; 6] = ["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"];
const COUNTS: [&str; 3] = [" ", "K", "M"];

/// Bytes in the unit that suits `scale`: that of the row of all pools, so that a column has one unit.
fn size(bytes: i64, scale: i64) -> String {
    let (mut bytes, mut scale, mut unit) = (bytes, scale as f64, 0);
    while scale >= 768.0 * 1024.0 && unit + 1 < UNITS.len() {
        bytes = bytes.div_euclid(1024);
        scale /= 1024.0;
        unit += 1;
    }
    format!("{bytes:6} {}", UNITS[unit])
}

/// A count, in thousands or millions if `scale` is large.
fn count(n: i64, scale: i64) -> String {
    let (mut n, mut scale, mut unit) = (n, scale as f64, 0);
    while scale >= 750_000.0 && unit + 1 < COUNTS.len() {
        n = n.div_euclid(1000);
        scale /= 1000.0;
        unit += 1;
    }
    format!("{n:7} {} ", COUNTS[unit])
}

type Format = fn(i64, i64) -> String;

fn row(out: &mut String, name: &str, stat: &Stat, scale: &Stat, format: Format) {
    let columns = [
        (stat.current, scale.current),
        (stat.peak, scale.peak),
        (stat.allocated, scale.allocated),
        (stat.freed, scale.freed),
    ];
    let columns: Vec<String> = columns.iter().map(|(n, s)| format(*n, *s)).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "| {name:<21} | {} |", columns.join(" | "));
}

/// The table of `torch.cuda.memory_summary(device)`; `abbreviated` leaves out the rows of each pool half.
pub fn memory_summary(stats: &DeviceStats, device: u32, abbreviated: bool) -> String {
    let (double, single) = (format!("|{}|\n", "=".repeat(75)), format!("|{}|\n", "-".repeat(75)));
    let mut out = double.clone();
    let _ = writeln!(out, "| {:16} PyTorch CUDA memory summary, device ID {device:<17} |", "");
    out += &single;
    let (ooms, retries) = (stats.num_ooms, stats.num_alloc_retries);
    let _ = writeln!(
        out,
        "|  {:9} CUDA OOMs: {ooms:<12} | {:6} cudaMalloc retries: {retries:<8}  |",
        "", ""
    );
    out += &double;
    out += "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n";
    let rows: [(&str, _, Format); 9] = [
        ("Allocated memory", &stats.allocated_bytes, size),
        ("Active memory", &stats.active_bytes, size),
        ("Requested memory", &stats.requested_bytes, size),
        ("GPU reserved memory", &stats.reserved_bytes, size),
        ("Non-releasable memory", &stats.inactive_split_bytes, size),
        ("Allocations", &stats.allocation, count),
        ("Active allocs", &stats.active, count),
        ("GPU reserved segments", &stats.segment, count),
        ("Non-releasable allocs", &stats.inactive_split, count),
    ];
    for (name, array, format) in rows {
        out += &single;
        row(&mut out, name, &array.all, &array.all, format);
        if !abbreviated {
            row(&mut out, "      from large pool", &array.large, &array.all, format);
            row(&mut out, "      from small pool", &array.small, &array.all, format);
        }
    }
    for (name, stat) in [
        ("Oversize allocations", &stats.oversize_allocations),
        ("Oversize GPU segments", &stats.oversize_segments),
    ] {
        out += &single;
        row(&mut out, name, stat, stat, count);
    }
    out + &double
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_pytorch() {
        let mut stats = DeviceStats::default();
        stats.allocated_bytes.add(false, 800_000_000);
        stats.allocated_bytes.add(true, 512);
        stats.allocation.add(false, 1);
        let text = memory_summary(&stats, 0, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|l| l.chars().count() == 77), "{text}");
        assert_eq!(
            lines[1],
            "|                  PyTorch CUDA memory summary, device ID 0                 |"
        );
        assert_eq!(
            lines[3],
            "|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |"
        );
        assert_eq!(
            lines[7],
            "| Allocated memory      | 781250 KiB | 781250 KiB | 781250 KiB |      0 B   |"
        );
        assert_eq!(
            lines[9],
            "|       from small pool |      0 KiB |      0 KiB |      0 KiB |      0 B   |"
        );
        assert!(text.contains("| Allocations           |       1    |       1    |       1    |       0    |\n"));
        assert_eq!(lines.len(), 6 + 9 * 4 + 2 * 2 + 1);
        assert_eq!(memory_summary(&stats, 0, true).lines().count(), 6 + 9 * 2 + 2 * 2 + 1);
    }
}
