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
    let (torch, hidden) = torch(scene);
    let mut checks = vec![
        rights(may_read_all, &hidden),
        ptrace_scope(root, may_read_all),
        namespace(root),
        visibility(root),
    ];
    checks.push(memory_limit(root));
    checks.extend(torch);
    checks.extend(unseen(may_read_all, &hidden));
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

/// What we may read, by our own rights; `hidden` were refused all the same.
fn rights(may_read_all: bool, hidden: &[u32]) -> Check {
    let text = match (may_read_all, hidden.is_empty()) {
        (true, true) => "may read the allocator of every user's processes",
        (true, false) => {
            "may read the allocator of every user's processes, but for those that the kernel protects (below)"
        }
        (false, _) => "may read the allocator of your own processes; those of others need root",
    };
    Check::new("rights", Verdict::Pass, text)
}

/// Processes whose maps were refused, and why that may be (kernel: __ptrace_may_access, cap_ptrace_access_check).
fn unseen(may_read_all: bool, hidden: &[u32]) -> Option<Check> {
    let [first, rest @ ..] = hidden else { return None };
    let processes = match rest.len() {
        0 => format!("1 process (PID {first})"),
        more => format!("{} processes (PID {first} and {more} more)", more + 1),
    };
    Some(if may_read_all {
        Check::new(
            "torch",
            Verdict::Warn,
            format!(
                "{processes} could not be looked at: the kernel refuses it even to CAP_SYS_PTRACE, which does not reach into \
                 another user namespace or past a sandbox"
            ),
        )
        .step("if torch runs there, run alloctop on the host, outside this container or sandbox")
    } else {
        Check::new(
            "torch",
            Verdict::Warn,
            format!("{processes} of other users could not be looked at"),
        )
        .step("run as root to look there too")
    })
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

/// One line for each process that has torch loaded, and the processes that could not be looked at.
fn torch(scene: &Scene<'_>) -> (Vec<Check>, Vec<u32>) {
    let mut checks = Vec::new();
    let (mut hidden, mut found) = (Vec::new(), 0);
    for pid in pids(&scene.proc_root) {
        let maps = match read_whole(&scene.proc_root.join(pid.to_string()).join("maps")) {
            Ok(maps) => maps,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                hidden.push(pid);
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
            match found - TORCH_LINES {
                1 => "1 more process has PyTorch loaded".to_owned(),
                more => format!("{more} more processes have PyTorch loaded"),
            },
        ));
    }
    (checks, hidden)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_to_root_is_not_blamed_on_missing_rights() {
        assert_eq!(unseen(true, &[]), None);
        assert!(rights(true, &[]).text.ends_with("every user's processes"));
        assert!(rights(true, &[1]).text.contains("that the kernel protects"));
        let one = unseen(true, &[1]).unwrap();
        assert!(one.text.starts_with("1 process (PID 1) could not") && one.text.contains("CAP_SYS_PTRACE"));
        assert!(!one.next_step.unwrap().contains("root"));
        let three = unseen(false, &[7, 8, 9]).unwrap();
        assert!(three.text.starts_with("3 processes (PID 7 and 2 more) of other users"));
        assert!(three.next_step.unwrap().contains("root"));
    }
}
