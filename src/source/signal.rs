//! Sending a signal to exactly the process that was chosen (AC-37): through a pidfd, and only if the process behind the
//! PID still is the one with the start time that was shown.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::attach::ProcRoot;
use crate::reading::Reading;
use crate::source::host::HostSource;
use crate::source::host::facts::ProcessKey;

/// Sends signal `number` to the process of `key` and says what came of it.
pub fn send(root: &ProcRoot, key: ProcessKey, number: i32) -> String {
    let pid = key.pid;
    match try_send(root, key, number) {
        Ok(()) => format!("signal {number} sent to process {pid}"),
        Err(why) => format!("nothing sent to process {pid}: {why}"),
    }
}

fn try_send(root: &ProcRoot, key: ProcessKey, number: i32) -> Result<(), String> {
    let pid = i32::try_from(key.pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or("no such PID")?;
    let signal = Signal::from_named_raw(number).ok_or_else(|| format!("{number} is no signal"))?;
    // The descriptor is taken first: from then on the PID cannot be another's without the start time showing it.
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| explained(e, key.pid))?;
    match HostSource::new(&root.0).key(key.pid) {
        Reading::Is(now) if now == key => {}
        Reading::Is(_) => return Err("its PID belongs to another process by now (start time differs)".into()),
        Reading::Missing(why) => return Err(why.text.to_string()),
    }
    pidfd_send_signal(process, signal).map_err(|e| explained(e, key.pid))
}

fn explained(error: rustix::io::Errno, pid: u32) -> String {
    match error {
        rustix::io::Errno::SRCH => format!("process {pid} has ended"),
        rustix::io::Errno::PERM => "it belongs to another user: run alloctop as that user or as root".into(),
        rustix::io::Errno::NOSYS => "this kernel has no pidfd (Linux 5.3): use kill".into(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_the_same_process_gets_the_signal() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let root = ProcRoot::default();
        let key = *HostSource::new(&root.0).key(child.id()).value().unwrap();
        let other = ProcessKey {
            start_ticks: key.start_ticks + 1,
            ..key
        };
        assert!(send(&root, other, 15).contains("another process"));
        assert!(
            child.try_wait().unwrap().is_none(),
            "the wrong start time got the signal"
        );
        assert!(send(&root, key, 0).contains("no signal"));
        assert!(send(&root, key, 15).contains("sent to process"));
        child.wait().unwrap();
        assert!(send(&root, key, 15).contains("nothing sent"));
    }
}
