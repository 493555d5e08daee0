//! One process as /proc shows it: who it is, whether it still is the one that was asked for, and whose it is.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::refusal;
use crate::reading::{Why, WhyKind};

/// Longest text of a process that is kept, in characters: a path is at most 4096 bytes.
const LONGEST_TEXT: usize = 4096;

/// Where /proc is (tests inject another root).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcRoot(pub PathBuf);

impl Default for ProcRoot {
    fn default() -> Self {
        ProcRoot(PathBuf::from("/proc"))
    }
}

impl ProcRoot {
    /// The directory of process `pid`.
    pub fn dir(&self, pid: u32) -> PathBuf {
        self.0.join(pid.to_string())
    }

    /// Reads a file below the root, at most `max` bytes of it.
    pub fn read(&self, path: &str, max: u64) -> io::Result<Vec<u8>> {
        read_bounded(&self.0.join(path), max)
    }
}

/// At most `max` bytes of a file.
pub(super) fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Foreign bytes as text for the terminal: no control characters, nothing that reorders or hides text.
pub fn printable(bytes: &[u8]) -> String {
    crate::source::printable::printable(bytes, LONGEST_TEXT)
}

/// What /proc/PID/stat says of a process's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The state letter; `Z` and `X` are dead.
    pub state: u8,
    /// When it started, in clock ticks after the boot: with the PID, the identity of a process.
    pub start: u64,
}

/// Parses /proc/PID/stat. The name between the parentheses may hold anything, parentheses and newlines included.
fn identity(stat: &[u8]) -> Option<Identity> {
    let after_name = &stat[stat.iter().rposition(|b| *b == b')')? + 1..];
    let mut values = after_name.split(u8::is_ascii_whitespace).filter(|f| !f.is_empty());
    let state = *values.next()?.first()?;
    // starttime is field 22 of the line; the state was field 3.
    let ticks = std::str::from_utf8(values.nth(22 - 4)?).ok()?.parse().ok()?;
    Some(Identity { state, start: ticks })
}

/// A process that was found alive. It holds an open file of its directory: once the process is dead that file answers
/// ESRCH for ever, even when the number is given to another process.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks.
    pub start: u64,
    dir: PathBuf,
    statm: File,
}

impl Process {
    /// Opens process `pid`.
    pub fn open(root: &ProcRoot, pid: u32) -> Result<Process, Why> {
        let dir = root.dir(pid);
        let gone = |e: io::Error| match e.kind() {
            io::ErrorKind::PermissionDenied => refusal::hidden(pid),
            _ => refusal::gone(pid),
        };
        // The open file first: the identity read afterwards can then only be that of the same process or of none.
        let statm = File::open(dir.join("statm")).map_err(gone)?;
        let stat = read_bounded(&dir.join("stat"), 4096).map_err(gone)?;
        let identity = identity(&stat).ok_or_else(|| {
            Why::new(
                WhyKind::Unknown,
                format!("/proc/{pid}/stat has a form that is not known"),
            )
        })?;
        if matches!(identity.state, b'Z' | b'X') {
            return Err(refusal::zombie(pid));
        }
        let process = Process {
            pid,
            start: identity.start,
            dir,
            statm,
        };
        if process.pages() == Some(0) && process.check().is_ok() {
            return Err(refusal::kernel_thread(pid));
        }
        process.check()?;
        Ok(process)
    }

    /// The process's directory in /proc.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it still lives and has memory. Costs about 1 us.
    pub fn alive(&self) -> bool {
        self.pages().is_some_and(|pages| pages > 0)
    }

    /// The size of its address space in pages; `None` once it is dead (ESRCH), 0 for a zombie.
    pub fn pages(&self) -> Option<u64> {
        let mut text = [0u8; 64];
        let length = self.statm.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length])
            .ok()?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    }

    /// The reason why it is no longer the process that was opened, if so: dead, or its number given to another.
    pub fn check(&self) -> Result<(), Why> {
        let now = read_bounded(&self.dir.join("stat"), 4096)
            .ok()
            .and_then(|s| identity(&s));
        match now {
            None => Err(refusal::gone(self.pid)),
            Some(now) if now.start != self.start => Err(refusal::reused(self.pid)),
            Some(now) if matches!(now.state, b'Z' | b'X') => Err(refusal::zombie(self.pid)),
            Some(_) if self.pages().is_none() => Err(refusal::gone(self.pid)),
            Some(_) => Ok(()),
        }
    }

    /// A variable of the environment that it was started with.
    pub fn variable(&self, name: &str) -> io::Result<Option<String>> {
        let text = read_bounded(&self.dir.join("environ"), 1 << 20)?;
        Ok(text.split(|b| *b == 0).find_map(|entry| {
            let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(printable(value))
        }))
    }

    /// The value of an entry of the auxiliary vector (getauxval(3)); only for 64-bit processes.
    pub fn auxiliary(&self, key: u64) -> Option<u64> {
        let bytes = read_bounded(&self.dir.join("auxv"), 4096).ok()?;
        let word = |b: &[u8]| b.try_into().ok().map(u64::from_ne_bytes);
        bytes
            .chunks_exact(16)
            .find(|pair| word(&pair[..8]) == Some(key))
            .and_then(|pair| word(&pair[8..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_tricks_does_not_move_the_fields() {
        let tail = " S 1 1 1 0 -1 4194560 1 0 0 0 1 2 3 4 20 0 1 0 987654 1 1";
        for name in ["python3", "a) Z 1 (", "\x1b[2J\n) R 9", "", ")))"] {
            let stat = format!("7 ({name}){tail}");
            assert_eq!(
                identity(stat.as_bytes()),
                Some(Identity {
                    state: b'S',
                    start: 987_654
                }),
                "{name:?}"
            );
        }
        for bad in [
            "",
            "7",
            "7 (x)",
            "7 (x) S 1 1",
            "7 (x) S 1 1 1 0 -1 1 1 0 0 0 1 2 3 4 20 0 1 0 no 1",
        ] {
            assert_eq!(identity(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn printable_text_has_no_controls() {
        assert_eq!(printable(b"a\x1b[2J\x07\xff\n"), "a?[2J?\u{fffd}?");
        assert_eq!(printable("x\u{202e}y\u{9b}z".as_bytes()), "x?y?z");
    }

    #[test]
    fn we_are_alive_and_nobody_is_not() {
        let me = Process::open(&ProcRoot::default(), std::process::id()).unwrap();
        assert!(me.alive() && me.check().is_ok());
        let why = Process::open(&ProcRoot::default(), u32::MAX).unwrap_err();
        assert_eq!(why.kind, WhyKind::Gone);
    }
}
