//! The host's side of a process, from /proc (proc(5)) under a root that tests replace: memory here, what limits it in
//! [`cgroup`], who it is in [`facts`].
//!
//! The hot path reads /proc/PID/status through a file that stays open (one read, about 4 us); such a file belongs to the
//! process that it was opened for, so that a reused PID can never be mistaken for the process that is watched.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use procfs::FromRead;

use crate::reading::{Reading, Why, WhyKind};
use crate::source::{HostCeiling, HostMemory, HostTotals};
use crate::units::Bytes;

pub mod cgroup;
pub mod facts;

use facts::ProcessKey;

/// Largest file that is read whole from /proc; a longer one (a huge command line, a host with thousands of mounts) is cut.
const READ_LIMIT: usize = 1 << 20;

/// What is said of a watched process whose PID now is another's.
const ANOTHER_HAS_ITS_NUMBER: &str = "has ended, and another one has its number now: choose it again to watch that";

/// Whether `memory` is missing because another process has the watched one's PID: then nothing that is found under that
/// PID elsewhere (VRAM, counters) belongs to the watched process.
pub fn is_anothers(memory: &Reading<HostMemory>) -> bool {
    memory
        .why()
        .is_some_and(|why| why.kind == WhyKind::Gone && why.text.ends_with(ANOTHER_HAS_ITS_NUMBER))
}

/// Reads the memory of processes. Keeps one file and one buffer for the process that is watched.
#[derive(Debug)]
pub struct HostSource {
    root: PathBuf,
    page: u64,
    watched: Option<Watched>,
    buffer: Vec<u8>,
}

/// The process whose memory was read last.
#[derive(Debug)]
struct Watched {
    key: ProcessKey,
    /// Its open status; none once it has ended.
    status: Option<File>,
}

impl HostSource {
    /// A source that reads below `proc_root` (`/proc`).
    pub fn new(proc_root: impl Into<PathBuf>) -> Self {
        HostSource {
            root: proc_root.into(),
            page: procfs::page_size(),
            watched: None,
            buffer: Vec::new(),
        }
    }

    /// The folder below which everything is read.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// RSS of `pid` with its parts and its high-water mark, all from one read of /proc/PID/status, so that the parts sum
    /// to the whole. `Gone` when the process has ended, a zombie included, and also when another process has got its
    /// number since: see [`HostSource::forget`].
    pub fn memory(&mut self, pid: u32) -> Reading<HostMemory> {
        if let Err(why) = self.open_status(pid) {
            return Reading::Missing(why);
        }
        let Some(Watched { status: Some(file), .. }) = &self.watched else {
            return Reading::not_yet();
        };
        if let Err(e) = read_again(file, &mut self.buffer) {
            if let Some(watched) = &mut self.watched {
                watched.status = None;
            }
            return Reading::Missing(why_of(&e, pid, "status"));
        }
        memory_in_status(&self.buffer, pid)
    }

    /// Forgets which process was watched: the next read of a PID takes whoever has it then.
    pub fn forget(&mut self) {
        self.watched = None;
    }

    /// Opens the status of `pid` unless it is open; refuses a process that is not the one watched before under this PID.
    fn open_status(&mut self, pid: u32) -> Result<(), Why> {
        let before = self.watched.as_ref().filter(|w| w.key.pid == pid);
        if before.is_some_and(|w| w.status.is_some()) {
            return Ok(());
        }
        let file = File::open(self.root.join(pid.to_string()).join("status")).map_err(|e| why_of(&e, pid, "status"))?;
        let key = match self.key(pid) {
            Reading::Is(key) => key,
            Reading::Missing(why) => return Err(why),
        };
        if before.is_some_and(|w| w.key != key) {
            return Err(Why::new(
                WhyKind::Gone,
                format!("process {pid} {ANOTHER_HAS_ITS_NUMBER}"),
            ));
        }
        self.watched = Some(Watched {
            key,
            status: Some(file),
        });
        Ok(())
    }

    /// RSS alone, from /proc/PID/statm and the page size that the system states: for rows of a table.
    pub fn rss(&self, pid: u32) -> Reading<Bytes> {
        self.read::<procfs::process::StatM>(pid, "statm")
            .map(|m| Bytes(m.resident.saturating_mul(self.page)))
    }

    /// Proportional set size from /proc/PID/smaps_rollup: shared pages count once over all their users. Dear (0.6 ms for
    /// 200 MB of RSS, and it holds the process's memory lock), so it is read rarely. Refused without ptrace rights.
    pub fn pss(&self, pid: u32) -> Reading<Bytes> {
        let path = self.root.join(pid.to_string()).join("smaps_rollup");
        let text = match read_whole(&path) {
            Ok(text) => text,
            Err(e) => return Reading::Missing(why_of(&e, pid, "smaps_rollup")),
        };
        // A process without user memory (kernel thread, zombie) has an empty file.
        kib_field(&text, b"Pss:").map_or_else(
            || Reading::missing(WhyKind::Absent, format!("process {pid} has no memory of its own")),
            Reading::Is,
        )
    }

    /// What bounds the host memory of `pid`: the smallest limit on its cgroup's path and the host's own memory.
    pub fn ceiling(&self, pid: u32) -> Reading<HostCeiling> {
        let cgroup = match cgroup::smallest_limit(&self.root, pid) {
            Reading::Missing(why) if why.kind == WhyKind::Gone => return Reading::Missing(why),
            other => other,
        };
        let totals = self.totals();
        Reading::Is(HostCeiling {
            cgroup_used: cgroup.as_ref().and_then(|c| c.used.clone()),
            cgroup_limit: cgroup.map(|c| c.limit),
            host_total: totals.as_ref().map(|t| t.total),
            host_available: totals.and_then(|t| t.available),
        })
    }

    /// The host's memory, from /proc/meminfo.
    pub fn totals(&self) -> Reading<HostTotals> {
        let text = match read_whole(&self.root.join("meminfo")) {
            Ok(text) => text,
            Err(e) => return Reading::missing(WhyKind::Refused, format!("/proc/meminfo cannot be read: {e}")),
        };
        let Some(total) = kib_field(&text, b"MemTotal:") else {
            return Reading::missing(WhyKind::Unknown, "/proc/meminfo names no MemTotal");
        };
        let available = field_or(kib_field(&text, b"MemAvailable:"), "this kernel names no MemAvailable");
        Reading::Is(HostTotals { total, available })
    }

    /// Reads and parses one small file of `pid` with the procfs crate's parser.
    pub(crate) fn read<T: FromRead>(&self, pid: u32, file: &'static str) -> Reading<T> {
        let path = self.root.join(pid.to_string()).join(file);
        match read_whole(&path) {
            Ok(bytes) => match T::from_read(bytes.as_slice()) {
                Ok(value) => Reading::Is(value),
                Err(_) => Reading::missing(
                    WhyKind::Unknown,
                    format!("/proc/{pid}/{file} has a form that is not known here"),
                ),
            },
            Err(e) => Reading::Missing(why_of(&e, pid, file)),
        }
    }
}

/// The memory fields of a status file.
fn memory_in_status(text: &[u8], pid: u32) -> Reading<HostMemory> {
    if field(text, b"State:").is_some_and(|v| matches!(v.first(), Some(b'Z' | b'X'))) {
        return Reading::missing(
            WhyKind::Gone,
            format!("process {pid} has ended and waits for its parent to notice (zombie)"),
        );
    }
    let Some(rss) = kib_field(text, b"VmRSS:") else {
        return Reading::missing(
            WhyKind::Absent,
            format!("process {pid} is a kernel thread: it has no memory of its own"),
        );
    };
    let old = "this kernel does not split RSS (older than 4.5)";
    Reading::Is(HostMemory {
        rss,
        anon: field_or(kib_field(text, b"RssAnon:"), old),
        file: field_or(kib_field(text, b"RssFile:"), old),
        shmem: field_or(kib_field(text, b"RssShmem:"), old),
        high_water: field_or(kib_field(text, b"VmHWM:"), "this kernel names no VmHWM"),
        swap: field_or(kib_field(text, b"VmSwap:"), "this kernel names no VmSwap"),
    })
}

/// A field, or `Absent` with a sentence.
fn field_or(value: Option<Bytes>, absent: &'static str) -> Reading<Bytes> {
    value.map_or_else(|| Reading::missing(WhyKind::Absent, absent), Reading::Is)
}

/// The text after `key` on the line that begins with it.
pub(crate) fn field<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    text.split(|b| *b == b'\n')
        .find_map(|line| line.strip_prefix(key))
        .map(<[u8]>::trim_ascii)
}

/// A field in kB, in bytes. /proc writes kB and means KiB.
fn kib_field(text: &[u8], key: &[u8]) -> Option<Bytes> {
    let digits = field(text, key)?.strip_suffix(b"kB")?.trim_ascii_end();
    let kib: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

/// Reads `file` again from its start into `buffer`, whose memory is used again.
fn read_again(file: &File, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.resize(buffer.capacity().max(4096), 0);
    let mut filled = 0;
    loop {
        let n = file.read_at(&mut buffer[filled..], filled as u64)?;
        filled += n;
        if n == 0 || filled >= READ_LIMIT {
            buffer.truncate(filled);
            return Ok(());
        }
        if filled == buffer.len() {
            buffer.resize(filled * 2, 0);
        }
    }
}

/// A whole small file, cut at 1 MiB.
pub(crate) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::new();
    read_again(&File::open(path)?, &mut buffer)?;
    Ok(buffer)
}

/// Why a file of a process could not be read, with the next step.
pub(crate) fn why_of(e: &io::Error, pid: u32, file: &str) -> Why {
    let gone = matches!(e.kind(), io::ErrorKind::NotFound) || e.raw_os_error() == Some(nix::libc::ESRCH);
    if gone {
        Why::new(WhyKind::Gone, format!("process {pid} is gone"))
    } else if e.kind() == io::ErrorKind::PermissionDenied {
        Why::new(
            WhyKind::Refused,
            format!("/proc/{pid}/{file} is refused: run alloctop as the user of process {pid}, or as root"),
        )
    } else {
        Why::new(WhyKind::Unknown, format!("/proc/{pid}/{file} cannot be read: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, start_ticks: u64) {
        let (before, after) = ("0 ".repeat(13), "0 ".repeat(28));
        let stat = format!("9 (x) S 1 1 1 0 -1 {before}{start_ticks} 0 0 18446744073709551615 {after}\n");
        std::fs::create_dir_all(root.join("9")).unwrap();
        std::fs::write(root.join("9/stat"), stat).unwrap();
        std::fs::write(root.join("9/status"), "State:\tS\nVmRSS:\t8 kB\n").unwrap();
    }

    #[test]
    fn a_reused_pid_is_not_taken_for_the_process_that_was_watched() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), 500);
        let mut host = HostSource::new(root.path());
        assert!(host.memory(9).value().is_some());
        // What a failing read of a process that ended leaves behind.
        host.watched.as_mut().unwrap().status = None;
        assert!(host.memory(9).value().is_some(), "the same process again");
        host.watched.as_mut().unwrap().status = None;
        put(root.path(), 700);
        let why = host.memory(9).why().unwrap().clone();
        assert_eq!(why.kind, WhyKind::Gone);
        assert!(why.text.contains("another one has its number"), "{why}");
        assert!(is_anothers(&Reading::Missing(why)) && !is_anothers(&Reading::not_yet()));
        host.forget();
        assert!(host.memory(9).value().is_some(), "chosen again");
    }
}
