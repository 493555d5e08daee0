//! Parity: recordings of the real allocator replayed through ours, value by value (issue 4, point 5).
//!
//! Architecture invariant: no rule knows a file. What differs between releases is in [`Rules`], what a recording leaves
//! open is said in a note.

mod dump;
mod golden;
mod late;
mod log;
mod scripted;
pub mod stand_in;
mod tally;
mod trace;
mod unsaid;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::json;

use crate::allocator::Rules;
use crate::source::printable::printable;
use crate::units::Bytes;
pub use tally::Tally;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One line a file, then the first difference and the notes.
    #[default]
    Table,
    /// `[{file, operations, compared, differences, first, notes}]`.
    Json,
}

/// Bytes of a recording after decompression that are still read: larger files are refused, not swallowed. A snapshot of
/// two million events fits; what its values take is bounded by the pickle reader.
const LARGEST: u64 = 256 << 20;
/// The same for a recording in JSON, whose values take up to twenty times the memory of their text.
const LARGEST_TEXT: u64 = 64 << 20;

/// Replays the files and prints what was compared. True if nothing differed. `rules_override` (`--torch`) replaces the
/// release that a recording names.
///
/// # Errors
/// A file that cannot be read, is no recording, or breaks off: the message names the file and the line or operation.
// The command line owns its options and is done with them here.
#[allow(clippy::needless_pass_by_value)]
pub fn run(
    files: &[PathBuf],
    format: Format,
    rules_override: Option<Rules>,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    let mut results = Vec::new();
    for file in files {
        let tally = replay_file(file, rules_override.as_ref()).with_context(|| shown(file.as_os_str()))?;
        if format == Format::Table {
            print_row(file, &tally, out)?;
        }
        results.push((file, tally));
    }
    if format == Format::Json {
        let rows: Vec<_> = results
            .iter()
            .map(|(file, t)| {
                json!({"file": shown(file.as_os_str()), "operations": t.operations, "compared": t.compared,
                       "differences": t.differences, "first": t.first, "notes": t.notes})
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    }
    Ok(results.iter().all(|(_, tally)| tally.differences == 0))
}

/// A file's name without what acts on a terminal.
fn shown(name: &std::ffi::OsStr) -> String {
    printable(name.as_encoded_bytes(), 400)
}

fn print_row(file: &Path, tally: &Tally, out: &mut dyn Write) -> std::io::Result<()> {
    let name = shown(file.file_name().unwrap_or(file.as_os_str()));
    writeln!(
        out,
        "{name:32} {:>8} operations {:>10} values compared {:>6} differences",
        tally.operations, tally.compared, tally.differences
    )?;
    if let Some(first) = &tally.first {
        writeln!(out, "  first difference: {first}")?;
    }
    for note in &tally.notes {
        writeln!(out, "  note: {note}")?;
    }
    Ok(())
}

/// Replays one file.
pub fn replay_file(file: &Path, over: Option<&Rules>) -> anyhow::Result<Tally> {
    let bytes = std::fs::File::open(file)
        .context("cannot be opened")
        .and_then(|f| read_bounded(f, LARGEST))?;
    replay_bytes(&bytes, over)
}

/// Replays a recording that was read already, plain or gzip-compressed.
pub fn replay_bytes(bytes: &[u8], over: Option<&Rules>) -> anyhow::Result<Tally> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let plain = read_bounded(flate2::read::MultiGzDecoder::new(bytes), LARGEST).context("gzip")?;
        return replay_plain(&plain, over);
    }
    replay_plain(bytes, over)
}

fn replay_plain(bytes: &[u8], over: Option<&Rules>) -> anyhow::Result<Tally> {
    if bytes.is_empty() {
        bail!("the file is empty");
    }
    if bytes[0] == 0x80 {
        return dump::replay(bytes, over);
    }
    if bytes.len() as u64 > LARGEST_TEXT {
        bail!("a recording in JSON of more than {} is not read", Bytes(LARGEST_TEXT));
    }
    let text = std::str::from_utf8(bytes).context("neither JSON nor a pickle")?;
    // A golden file is one JSON document a line, each with its steps; a trace is one document.
    let first = text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    match serde_json::from_str::<Steps>(first) {
        Ok(_) => golden::replay(text, over),
        Err(_) => trace::replay(text, over),
    }
}

/// What tells a golden line from a trace.
#[derive(serde::Deserialize)]
struct Steps {
    #[serde(rename = "steps")]
    _steps: serde::de::IgnoredAny,
}

/// Everything up to `limit` bytes; more is an error.
fn read_bounded(reader: impl Read, limit: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .context("cannot be read")?;
    if bytes.len() as u64 > limit {
        bail!("more than {} (unpacked) is not read", Bytes(limit));
    }
    Ok(bytes)
}
