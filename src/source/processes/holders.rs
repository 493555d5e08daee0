//! Processes that hold a GPU's device file open without being listed for it: where VRAM is held by no visible process,
//! these are the candidates (AC-39; users.md 2.8).

use std::fs;
use std::path::Path;

use crate::reading::{Why, WhyKind};

/// Most open files of one process that are looked at.
const FILES_LIMIT: usize = 4096;
/// Bytes of a map of memory that are searched.
const MAPS_LIMIT: usize = 8 << 20;

/// A process with open device files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its PID.
    pub pid: u32,
    /// The device files, each once.
    pub files: Vec<String>,
    /// Its first thread has ended while others still hold the files.
    pub leader_ended: bool,
}

impl Holder {
    /// What the open files mean.
    pub fn why(&self) -> Why {
        let files = self.files.join(", ");
        if self.leader_ended {
            return Why::new(
                WhyKind::Gone,
                format!("is ending, and a thread of it still holds {files}: its VRAM comes back when that thread ends"),
            );
        }
        let what = if self.files.iter().any(|f| f.ends_with("nvidia-uvm")) {
            "uses CUDA and is not listed (just started, in a container, or ending)"
        } else {
            "is not listed: a monitor, or a program that has just started"
        };
        Why::new(WhyKind::Absent, format!("holds {files} open; {what}"))
    }
}

/// All processes but `own` that hold a GPU's files, as far as their open files may be read.
pub fn find(proc_root: &Path, own: u32) -> Vec<Holder> {
    let mut holders: Vec<Holder> = fs::read_dir(proc_root)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != own)
        .filter_map(|pid| holder(proc_root, pid))
        .collect();
    holders.sort_by_key(|h| h.pid);
    holders
}

/// `pid`, if it holds a GPU's files. The files of a leader that has ended are seen through its other threads.
fn holder(proc_root: &Path, pid: u32) -> Option<Holder> {
    let folder = proc_root.join(pid.to_string());
    let mut files = device_files(&folder.join("fd"));
    let mut leader_ended = false;
    if files.is_none() {
        for task in fs::read_dir(folder.join("task")).ok()?.flatten() {
            files = device_files(&task.path().join("fd"));
            if files.is_some() {
                leader_ended = true;
                break;
            }
        }
    }
    let files = files.filter(|f| !f.is_empty())?;
    Some(Holder {
        pid,
        files,
        leader_ended,
    })
}

/// The GPU files in a folder of open files; `None` if it cannot be read or is empty, as that of an ended thread is.
fn device_files(folder: &Path) -> Option<Vec<String>> {
    let mut any = false;
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten().take(FILES_LIMIT) {
        any = true;
        if let Ok(target) = fs::read_link(entry.path())
            && let Some(name) = target.to_str().filter(|t| is_gpu_file(t))
        {
            files.push(name.to_owned());
        }
    }
    files.sort();
    files.dedup();
    any.then_some(files)
}

/// /dev/nvidia0 and so on, or /dev/nvidia-uvm. /dev/nvidiactl alone is held by anything that once asked the driver.
fn is_gpu_file(path: &str) -> bool {
    path.strip_prefix("/dev/nvidia")
        .is_some_and(|rest| rest == "-uvm" || (!rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())))
}

/// Whether `pid` here is a process that uses NVIDIA's driver: inside a PID namespace, a number that the driver names may
/// belong to an unrelated process.
pub fn uses_nvidia(proc_root: &Path, pid: u32) -> bool {
    let folder = proc_root.join(pid.to_string());
    if device_files(&folder.join("fd")).is_some_and(|files| !files.is_empty()) {
        return true;
    }
    let Ok(mut maps) = fs::read(folder.join("maps")) else {
        return false;
    };
    maps.truncate(MAPS_LIMIT);
    String::from_utf8_lossy(&maps).contains("libcuda.so")
}
