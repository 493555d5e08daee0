//! Checks of the host's side: rights to read other processes, namespaces, limits, and torch in each process.

use std::path::Path;

use super::{Check, Scene, Verdict};
use crate::reading::{Reading, WhyKind};
use crate::source::host::{HostSource, field, read_whole};
use crate::source::processes::container;

/// CAP_SYS_PTRACE: the bit of CapEff that permits to read any process.
const CAP_SYS_PTRACE: u32 = 19;
/// Most processes with torch that get a line of their own.
const TORCH_LINES: usize = 32;

pub(super) fn checks(scene: &Scene<'_>) -> Vec<Check> {
    let root = &scene.proc_root;
    let may_read_all = has_ptrace_right(root);
    let mut checks = vec![
        rights(may_read_all),
        ptrace_scope(root, may_read_all),
        namespace(root),
        visibility(root),
    ];
    checks.push(memory_limit(root));
    checks.extend(torch(scene));
    checks
}

/// Our effective capabilities hold the right to read any process.
fn has_ptrace_right(root: &Path) -> bool {
    read_whole(&root.join("self/status")).is_ok_and(|status| {
        field(&status, b"CapEff:")
            .and_then(|hex| u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok())
            .is_some_and(|bits| bits >> CAP_SYS_PTRACE & 1 == 1)
    })
}

fn rights(may_read_all: bool) -> Check {
    if may_read_all {
        Check::new(
            "rights",
            Verdict::Pass,
            "may read the allocator of every user's processes",
        )
    } else {
        Check::new(
            "rights",
            Verdict::Pass,
            "may read the allocator of your own processes; those of others need root",
        )
    }
}

/// Yama's rule on who may read whose memory (kernel documentation, Yama).
fn ptrace_scope(root: &Path, may_read_all: bool) -> Check {
    const NAME: &str = "ptrace_scope";
    let text = read_whole(&root.join("sys/kernel/yama/ptrace_scope")).ok();
    let scope = text.as_deref().and_then(|t| std::str::from_utf8(t).ok()).map(str::trim);
    match scope {
        None => Check::new(
            NAME,
            Verdict::Pass,
            "this kernel has no Yama: the rules of ptrace alone hold",
        ),
        Some("0") => Check::new(NAME, Verdict::Pass, "0: processes of the same user may be read"),
        Some(scope @ ("1" | "2")) if may_read_all => Check::new(
            NAME,
            Verdict::Pass,
            format!("{scope}: does not bind this user (CAP_SYS_PTRACE)"),
        ),
        Some("1") => Check::new(
            NAME,
            Verdict::Warn,
            "1: only processes that alloctop started may be read",
        )
        .step("run alloctop as root, or set it to 0: sysctl kernel.yama.ptrace_scope=0"),
        Some("2") => {
            Check::new(NAME, Verdict::Warn, "2: only root may read other processes").step("run alloctop as root")
        }
        Some("3") => Check::new(
            NAME,
            Verdict::Fail,
            "3: nobody may read another process's memory until the next boot",
        )
        .step("boot with kernel.yama.ptrace_scope at 2 or less"),
        Some(_) => Check::new(NAME, Verdict::Warn, "has a value that is not known here"),
    }
}

fn namespace(root: &Path) -> Check {
    if container::in_nested_namespace(root) {
        Check::new(
            "PID namespace",
            Verdict::Warn,
            "this is a container: the driver may list processes under host PIDs that are not visible here",
        )
        .step("run alloctop on the host, or the container with --pid=host")
    } else {
        Check::new(
            "PID namespace",
            Verdict::Pass,
            "all of the host's processes can be named",
        )
    }
}

/// Whether /proc hides other users' processes.
fn visibility(root: &Path) -> Check {
    let mounts = read_whole(&root.join("self/mountinfo")).unwrap_or_default();
    let hidden = String::from_utf8_lossy(&mounts)
        .lines()
        .filter_map(|line| line.split_once(" - proc "))
        .any(|(_, options)| {
            ["hidepid=1", "hidepid=2", "hidepid=invisible", "hidepid=noaccess"]
                .iter()
                .any(|o| options.contains(o))
        });
    if hidden {
        Check::new("/proc", Verdict::Warn, "hides other users' processes (hidepid)")
            .step("run as root, or as a member of the group that /proc's gid option names")
    } else {
        Check::new("/proc", Verdict::Pass, "shows the processes of all users")
    }
}

/// What bounds our own host memory.
fn memory_limit(root: &Path) -> Check {
    const NAME: &str = "memory limit";
    let source = HostSource::new(root);
    match source.ceiling(std::process::id()) {
        Reading::Missing(why) => Check::missing(NAME, &why),
        Reading::Is(ceiling) => match (&ceiling.cgroup_limit, ceiling.limit()) {
            (Reading::Is(limit), _) => {
                let used = ceiling
                    .cgroup_used
                    .value()
                    .map_or_else(|| "-".to_owned(), ToString::to_string);
                Check::new(
                    NAME,
                    Verdict::Pass,
                    format!("{limit} by the control group, {used} used"),
                )
            }
            (Reading::Missing(why), Reading::Is(host)) => {
                Check::new(NAME, Verdict::Pass, format!("{host}, the host's memory ({why})"))
            }
            (_, Reading::Missing(why)) => Check::missing(NAME, &why),
        },
    }
}

/// One line for each process that has torch loaded, and one for what could not be looked at.
fn torch(scene: &Scene<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    let (mut hidden, mut found) = (0, 0);
    for pid in pids(&scene.proc_root) {
        let maps = match read_whole(&scene.proc_root.join(pid.to_string()).join("maps")) {
            Ok(maps) => maps,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                hidden += 1;
                continue;
            }
            Err(_) => continue,
        };
        if !String::from_utf8_lossy(&maps).contains("/libc10") {
            continue;
        }
        found += 1;
        if found <= TORCH_LINES {
            checks.push(of_process(scene, pid));
        }
    }
    if found == 0 {
        checks.push(Check::new(
            "torch",
            Verdict::Pass,
            "no process that can be looked at has PyTorch loaded",
        ));
    } else if found > TORCH_LINES {
        checks.push(Check::new(
            "torch",
            Verdict::Pass,
            format!("{} more processes have PyTorch loaded", found - TORCH_LINES),
        ));
    }
    if hidden > 0 {
        checks.push(
            Check::new(
                "torch",
                Verdict::Warn,
                format!("{hidden} processes of other users could not be looked at"),
            )
            .step("run as root to see them"),
        );
    }
    checks
}

/// What can be read of one process with torch.
fn of_process(scene: &Scene<'_>, pid: u32) -> Check {
    let name = format!("torch in {pid}");
    match (scene.torch)(pid) {
        Reading::Is(text) => Check::new(name, Verdict::Pass, text),
        // Not loaded yet, or gone meanwhile, is no fault of this machine.
        Reading::Missing(why) if matches!(why.kind, WhyKind::Gone | WhyKind::Late) => {
            Check::new(name, Verdict::Warn, why.text)
        }
        Reading::Missing(why) => Check::missing(name, &why),
    }
}

/// All PIDs, ascending.
fn pids(root: &Path) -> Vec<u32> {
    let mut pids: Vec<u32> = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}
