//! Containers: the id of the one that a process runs in, and whether we are inside a PID namespace ourselves.

use std::path::Path;

use crate::source::host::read_whole;

/// Digits of a container id that are shown, as `docker ps` does.
const SHOWN: usize = 12;
/// The inode of the first PID namespace (PROC_PID_INIT_INO in the kernel).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The first digits of the container's id, from /proc/PID/cgroup: Docker, containerd, CRI-O and Podman all name the
/// control group after the id of 64 hexadecimal digits.
pub fn id_of(proc_root: &Path, pid: u32) -> Option<String> {
    let text = read_whole(&proc_root.join(pid.to_string()).join("cgroup")).ok()?;
    let run = text.split(|b| !b.is_ascii_hexdigit()).find(|run| run.len() == 64)?;
    String::from_utf8(run[..SHOWN].to_vec()).ok()
}

/// We see only a part of the host's processes: PIDs that the driver names may mean nothing here, or another process.
pub fn in_nested_namespace(proc_root: &Path) -> bool {
    std::fs::read_link(proc_root.join("self/ns/pid")).is_ok_and(|link| link.as_os_str() != FIRST_PID_NAMESPACE)
}
