//! Who a process is: owner, state, age, command, and its PIDs in the namespaces that are visible from here.

use std::collections::HashMap;
use std::time::Duration;

use nix::unistd::{Uid, User};
use procfs::process::Stat;

use super::{HostSource, field, read_whole, why_of};
use crate::reading::{Reading, WhyKind};
use crate::source::printable::printable;

/// Longest command line kept, in characters.
const COMMAND_LIMIT: usize = 400;

/// What a process is doing (proc(5), field 3 of stat).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessState {
    /// Runs or may run.
    Running,
    /// Waits and can be interrupted.
    Sleeping,
    /// Waits inside the kernel and cannot be killed (D): often a driver call that does not return.
    Uninterruptible,
    /// Has ended; its parent has not asked for its exit code (Z).
    Zombie,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Any other letter.
    Other(char),
}

impl ProcessState {
    /// The letter that ps shows.
    pub fn letter(self) -> char {
        match self {
            ProcessState::Running => 'R',
            ProcessState::Sleeping => 'S',
            ProcessState::Uninterruptible => 'D',
            ProcessState::Zombie => 'Z',
            ProcessState::Stopped => 'T',
            ProcessState::Other(c) => c,
        }
    }

    fn from_letter(c: char) -> Self {
        match c {
            'R' => ProcessState::Running,
            'S' | 'I' => ProcessState::Sleeping,
            'D' => ProcessState::Uninterruptible,
            'Z' | 'X' => ProcessState::Zombie,
            'T' | 't' => ProcessState::Stopped,
            c if c.is_ascii_graphic() => ProcessState::Other(c),
            _ => ProcessState::Other('?'),
        }
    }
}

/// A process that is told apart from a later one with the same number (AC-37): its PID and its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessKey {
    /// Its PID here.
    pub pid: u32,
    /// Clock ticks between boot and its start.
    pub start_ticks: u64,
}

/// Who a process is. All text is free of control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// PID and start.
    pub key: ProcessKey,
    /// Its parent's PID; 0 for the first process.
    pub parent: u32,
    /// State at the time of reading.
    pub state: ProcessState,
    /// Time since it started.
    pub age: Reading<Duration>,
    /// Owner's number.
    pub uid: Reading<u32>,
    /// The kernel's name for it (at most 15 bytes).
    pub name: String,
    /// Command line, its arguments joined by blanks; the name in brackets where there is none (kernel threads, zombies).
    pub command: String,
    /// Its PIDs from our namespace inwards (NSpid); more than one means that it runs in a container (AC-12).
    pub ns_pids: Vec<u32>,
}

impl ProcessFacts {
    /// The PID that the process itself sees, where it differs from ours.
    pub fn inner_pid(&self) -> Option<u32> {
        (self.ns_pids.len() > 1).then(|| self.ns_pids.last().copied()).flatten()
    }
}

impl HostSource {
    /// Who `pid` is.
    pub fn facts(&self, pid: u32) -> Reading<ProcessFacts> {
        self.read::<Stat>(pid, "stat").map(|stat| {
            let folder = self.root().join(pid.to_string());
            let status = read_whole(&folder.join("status")).unwrap_or_default();
            let name = printable(stat.comm.as_bytes(), 64);
            let command = match read_whole(&folder.join("cmdline")) {
                Ok(raw) if raw.iter().any(|b| *b != 0) => command_of(&raw),
                _ => format!("[{name}]"),
            };
            ProcessFacts {
                key: ProcessKey {
                    pid,
                    start_ticks: stat.starttime,
                },
                parent: u32::try_from(stat.ppid).unwrap_or_default(),
                state: ProcessState::from_letter(stat.state),
                age: self.age(stat.starttime),
                uid: first_number(&status, b"Uid:").map_or_else(
                    || Reading::missing(WhyKind::Refused, format!("the owner of process {pid} cannot be read")),
                    Reading::Is,
                ),
                name,
                command,
                ns_pids: numbers(&status, b"NSpid:"),
            }
        })
    }

    /// The start time of `pid` in clock ticks since boot: with the PID it names a process for good.
    pub fn key(&self, pid: u32) -> Reading<ProcessKey> {
        self.read::<Stat>(pid, "stat").map(|stat| ProcessKey {
            pid,
            start_ticks: stat.starttime,
        })
    }

    /// Time since a start given in ticks, by /proc/uptime.
    fn age(&self, start_ticks: u64) -> Reading<Duration> {
        let text = read_whole(&self.root().join("uptime")).ok();
        let uptime: Option<f64> = text
            .as_deref()
            .and_then(|t| std::str::from_utf8(t).ok())
            .and_then(|t| t.split_whitespace().next()?.parse().ok());
        let Some(uptime) = uptime else {
            return Reading::missing(WhyKind::Unknown, "/proc/uptime cannot be read");
        };
        let started = start_ticks as f64 / procfs::ticks_per_second() as f64;
        Reading::Is(Duration::try_from_secs_f64((uptime - started).max(0.0)).unwrap_or_default())
    }

    /// The children of `pid`, of all its threads (/proc/PID/task/TID/children).
    pub fn children(&self, pid: u32) -> Reading<Vec<u32>> {
        let tasks = match std::fs::read_dir(self.root().join(pid.to_string()).join("task")) {
            Ok(tasks) => tasks,
            Err(e) => return Reading::Missing(why_of(&e, pid, "task")),
        };
        let mut children = Vec::new();
        let mut readable = false;
        for task in tasks.flatten() {
            if let Ok(text) = read_whole(&task.path().join("children")) {
                readable = true;
                children.extend(
                    text.split(u8::is_ascii_whitespace)
                        .filter_map(|n| std::str::from_utf8(n).ok()?.parse::<u32>().ok()),
                );
            }
        }
        if !readable {
            return Reading::missing(
                WhyKind::Absent,
                "this kernel does not list children (CONFIG_PROC_CHILDREN)",
            );
        }
        children.sort_unstable();
        children.dedup();
        Reading::Is(children)
    }

    /// All descendants of `pid`, without itself, at most `limit` of them.
    pub fn descendants(&self, pid: u32, limit: usize) -> Reading<Vec<u32>> {
        let mut found = match self.children(pid) {
            Reading::Is(children) => children,
            missing @ Reading::Missing(_) => return missing,
        };
        let mut next = 0;
        while next < found.len() && found.len() < limit {
            // A child that ended meanwhile has no children any more.
            if let Reading::Is(more) = self.children(found[next]) {
                for child in more {
                    if child != pid && !found.contains(&child) {
                        found.push(child);
                    }
                }
            }
            next += 1;
        }
        found.truncate(limit);
        Reading::Is(found)
    }
}

/// Names of users by number, asked once each: the system's lookup may go over the network.
#[derive(Debug, Default)]
pub struct Users(HashMap<u32, String>);

impl Users {
    /// The name of `uid`, or the number where there is none.
    pub fn name(&mut self, uid: u32) -> &str {
        self.0.entry(uid).or_insert_with(|| {
            User::from_uid(Uid::from_raw(uid))
                .ok()
                .flatten()
                .map_or_else(|| uid.to_string(), |user| printable(user.name.as_bytes(), 32))
        })
    }
}

/// A command line: arguments end in a zero byte each.
fn command_of(raw: &[u8]) -> String {
    let end = raw.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
    let spaced: Vec<u8> = raw[..end].iter().map(|b| if *b == 0 { b' ' } else { *b }).collect();
    printable(&spaced, COMMAND_LIMIT)
}

/// The numbers of a field of status.
fn numbers(status: &[u8], key: &[u8]) -> Vec<u32> {
    field(status, key)
        .unwrap_or_default()
        .split(u8::is_ascii_whitespace)
        .filter_map(|n| std::str::from_utf8(n).ok()?.parse().ok())
        .collect()
}

/// The first number of a field of status.
fn first_number(status: &[u8], key: &[u8]) -> Option<u32> {
    numbers(status, key).first().copied()
}
