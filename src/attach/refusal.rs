//! Every way in which an attach can be refused or find nothing: one sentence each, with its next step (AC-41).

use super::process::{ProcRoot, Process, printable, read_bounded};
use super::remote::Fault;
use crate::reading::{Why, WhyKind};

/// No such process.
pub fn gone(pid: u32) -> Why {
    Why::new(
        WhyKind::Gone,
        format!(
            "process {pid} is gone, or is not visible here: look it up with ps (inside a container, processes of the host \
             are visible only with --pid=host)"
        ),
    )
}

/// It ended, and its parent has not collected it.
pub fn zombie(pid: u32) -> Why {
    Why::new(
        WhyKind::Gone,
        format!("process {pid} has ended (a zombie): its parent has not collected it yet, and nothing is left to read"),
    )
}

/// Another process has the number now.
pub fn reused(pid: u32) -> Why {
    Why::new(
        WhyKind::Gone,
        format!("process {pid} has ended, and another one has its number now: choose it again to watch that"),
    )
}

/// It became another program.
pub fn replaced(pid: u32) -> Why {
    Why::new(
        WhyKind::Gone,
        format!("process {pid} has become another program (exec): attach again to look at what it is now"),
    )
}

/// Its vector of devices changed.
pub fn moved(pid: u32) -> Why {
    Why::new(
        WhyKind::NotYet,
        format!("the allocator of process {pid} changed its devices: attach again"),
    )
}

/// Somebody held the allocator's lock in every try, and there are no earlier counters.
pub fn busy(pid: u32) -> Why {
    Why::new(
        WhyKind::Late,
        format!("the allocator of process {pid} was busy in every try (its lock is held): the next read may succeed"),
    )
}

/// The counters break their invariants again and again.
pub fn contradiction(pid: u32) -> Why {
    Why::new(
        WhyKind::Impossible,
        format!(
            "the counters of process {pid} contradict themselves: attach again, and report its torch version if it stays"
        ),
    )
}

/// /proc is mounted so that it hides other users' processes (hidepid).
pub fn hidden(pid: u32) -> Why {
    Why::new(
        WhyKind::Refused,
        format!("/proc hides process {pid} from this user (hidepid): run as its user or as root"),
    )
}

/// It has no memory of its own.
pub fn kernel_thread(pid: u32) -> Why {
    Why::new(
        WhyKind::Absent,
        format!("process {pid} is a thread of the kernel: it has no memory of its own to read"),
    )
}

/// No PyTorch.
pub fn no_torch(pid: u32) -> Why {
    Why::new(
        WhyKind::Absent,
        format!(
            "no PyTorch with CUDA in process {pid}: libc10_cuda.so is not loaded; it may be later, on `import torch`"
        ),
    )
}

/// A PyTorch that was built without CUDA.
pub fn cpu_torch(pid: u32) -> Why {
    Why::new(
        WhyKind::Absent,
        format!(
            "PyTorch without CUDA in process {pid}: libc10.so is loaded and libc10_cuda.so is not, so it has no GPU \
             allocator; install a CUDA build to use one"
        ),
    )
}

/// A PyTorch for AMD's cards.
pub fn rocm(pid: u32) -> Why {
    Why::new(
        WhyKind::Unknown,
        format!(
            "PyTorch for ROCm in process {pid}: the memory layout of libc10_hip.so was never examined; use \
             torch.cuda.memory_stats() inside it"
        ),
    )
}

/// The allocator exists and has no device yet.
pub fn not_initialised(pid: u32, holds_gpu: bool) -> Why {
    let text = if holds_gpu {
        format!(
            "PyTorch has not initialised CUDA yet in process {pid}: its counters appear with its first use of a GPU, which \
             the process holds already (another library may)"
        )
    } else {
        format!(
            "PyTorch has not initialised CUDA yet in process {pid}: its counters appear with its first use of a GPU"
        )
    };
    Why::new(WhyKind::NotYet, text)
}

/// Found, and not of a form that was examined.
pub fn unknown_layout(pid: u32, detail: &str) -> Why {
    Why::new(
        WhyKind::Unknown,
        format!(
            "unknown layout of the allocator in process {pid}: its memory has a form that was never examined ({detail}); \
             use torch.cuda.memory_stats() inside it, and report its torch version"
        ),
    )
}

/// A 32-bit process.
pub fn narrow(pid: u32) -> Why {
    Why::new(
        WhyKind::Absent,
        format!("process {pid} is a 32-bit program: PyTorch with CUDA exists for 64-bit programs only"),
    )
}

/// Code for another processor, run by an emulator.
pub fn foreign(pid: u32, machine: u16) -> Why {
    Why::new(
        WhyKind::Unknown,
        format!(
            "process {pid} runs under an emulator: its code is for another processor (ELF machine {machine}), and its memory \
             is not read, to not misread it"
        ),
    )
}

/// The file or its image in memory is no ELF file that can be followed.
pub fn broken_image(pid: u32, library: &str) -> Why {
    Why::new(
        WhyKind::Unknown,
        format!(
            "the allocator's library in process {pid} cannot be read: {library} is damaged or no ELF library; check the file"
        ),
    )
}

/// The allocator is one that keeps no counters in the process.
pub fn no_counters(backend: &str) -> Why {
    Why::new(
        WhyKind::Absent,
        format!(
            "{backend} keeps no such counters: watch the process's driver VRAM, or start it with PyTorch's native allocator"
        ),
    )
}

/// The facts by which a refused read is explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// The process.
    pub pid: u32,
    /// Our effective user.
    pub our_uid: u32,
    /// The target's real and effective user, where /proc says.
    pub target_uid: Option<(u32, u32)>,
    /// kernel.yama.ptrace_scope; `None` where the kernel has no Yama.
    pub scope: Option<u8>,
    /// The target's user namespace is known to be another one.
    pub other_namespace: bool,
}

impl Circumstances {
    /// Collects them.
    pub fn of(root: &ProcRoot, process: &Process) -> Circumstances {
        let status = read_bounded(&process.dir().join("status"), 1 << 16).unwrap_or_default();
        let namespace = |dir: std::path::PathBuf| std::fs::read_link(dir.join("ns/user")).ok();
        let ours = namespace(root.0.join("self"));
        let theirs = namespace(process.dir().to_path_buf());
        Circumstances {
            pid: process.pid,
            our_uid: nix::unistd::geteuid().as_raw(),
            target_uid: uids(&status),
            scope: root
                .read("sys/kernel/yama/ptrace_scope", 16)
                .ok()
                .and_then(|text| std::str::from_utf8(&text).ok()?.trim().parse().ok()),
            other_namespace: matches!((ours, theirs), (Some(a), Some(b)) if a != b),
        }
    }

    /// The sentence for a read that the kernel refused.
    pub fn refused(&self) -> Why {
        let pid = self.pid;
        let text = match (self.target_uid, self.scope) {
            _ if self.other_namespace => format!(
                "process {pid} is in another user namespace: run alloctop inside its (rootless) container, or as root of the \
                 host"
            ),
            (Some((real, effective)), _)
                if self.our_uid != 0 && (real != self.our_uid || effective != self.our_uid) =>
            {
                let owner = if real == self.our_uid { effective } else { real };
                format!(
                    "process {pid} belongs to another user ({}): run alloctop as that user, or with sudo",
                    user_name(owner)
                )
            }
            (_, Some(1)) => format!(
                "ptrace_scope is 1 and forbids reading process {pid}: only its parents may; run alloctop with sudo, or set the \
                 scope to 0 (sysctl kernel.yama.ptrace_scope=0)"
            ),
            (_, Some(2)) => format!(
                "ptrace_scope is 2 and forbids reading process {pid}: it takes CAP_SYS_PTRACE; run alloctop with sudo"
            ),
            (_, Some(n)) if n >= 3 => format!(
                "ptrace_scope is {n} and forbids reading process {pid}: nobody may until the next boot; boot with \
                 kernel.yama.ptrace_scope at 2 or less"
            ),
            _ if self.our_uid == 0 => format!(
                "the kernel refuses reading process {pid} even to root: a container needs `--cap-add SYS_PTRACE`, or it is in \
                 another user namespace, or a security module forbids it"
            ),
            _ => format!(
                "the kernel refuses reading process {pid}: it is marked not dumpable, or a sandbox forbids it; run alloctop \
                 with sudo, in a container add `--cap-add SYS_PTRACE`"
            ),
        };
        Why::new(WhyKind::Refused, text)
    }
}

/// The real and effective user in /proc/PID/status.
fn uids(status: &[u8]) -> Option<(u32, u32)> {
    let line = status.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(b"Uid:"))?;
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// "alice", or "uid 1000" where the name is not known.
fn user_name(uid: u32) -> String {
    nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid))
        .ok()
        .flatten()
        .map_or_else(|| format!("uid {uid}"), |user| printable(user.name.as_bytes()))
}

/// The sentence for a failed remote read. `Unmapped` is a changed or hostile target: the caller knows better what that
/// means, and says so with `unmapped`.
pub fn of_fault(fault: Fault, root: &ProcRoot, process: &Process, unmapped: impl FnOnce() -> Why) -> Why {
    // Whatever the kernel said: a process that is no longer there is that.
    if let Err(why) = process.check() {
        return why;
    }
    match fault {
        Fault::Refused => Circumstances::of(root, process).refused(),
        Fault::Gone => gone(process.pid),
        Fault::Unmapped => unmapped(),
        Fault::NoCall => Why::new(
            WhyKind::Refused,
            "this kernel has no process_vm_readv: it was built without CONFIG_CROSS_MEMORY_ATTACH, or a sandbox hides it; run \
             alloctop outside the sandbox",
        ),
        Fault::Other(errno) => Why::new(
            WhyKind::Refused,
            format!(
                "reading process {} failed with system error {errno}: run alloctop with sudo",
                process.pid
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(our_uid: u32, target: Option<(u32, u32)>, scope: Option<u8>) -> Circumstances {
        Circumstances {
            pid: 7,
            our_uid,
            target_uid: target,
            scope,
            other_namespace: false,
        }
    }

    #[test]
    fn each_refusal_names_its_cause_and_its_next_step() {
        let own = Some((1000, 1000));
        let cases = [
            (at(1000, Some((0, 0)), Some(1)), "another user (root)", "sudo"),
            (
                at(1000, Some((4_000_000_001, 1000)), Some(0)),
                "(uid 4000000001)",
                "sudo",
            ),
            (at(1000, own, Some(1)), "ptrace_scope is 1", "sudo"),
            (at(1000, own, Some(2)), "ptrace_scope is 2", "sudo"),
            (at(1000, own, Some(3)), "ptrace_scope is 3", "2 or less"),
            (at(1000, own, Some(0)), "not dumpable", "sudo"),
            (at(1000, own, None), "not dumpable", "sudo"),
            (at(0, own, Some(0)), "root", "--cap-add SYS_PTRACE"),
            (
                Circumstances {
                    other_namespace: true,
                    ..at(1000, own, Some(1))
                },
                "user namespace",
                "container",
            ),
        ];
        for (circumstances, cause, step) in cases {
            let why = circumstances.refused();
            assert_eq!(why.kind, WhyKind::Refused);
            assert!(why.text.contains(cause) && why.text.contains(step), "{why}");
        }
    }

    #[test]
    fn a_fault_is_explained_by_the_process_first() {
        let root = ProcRoot::default();
        let me = Process::open(&root, std::process::id()).unwrap();
        let explain = |fault| of_fault(fault, &root, &me, || unknown_layout(7, "x"));
        assert!(explain(Fault::NoCall).text.contains("no process_vm_readv"));
        assert!(explain(Fault::Other(5)).text.contains("error 5"));
        assert_eq!(explain(Fault::Unmapped).kind, WhyKind::Unknown);
        assert_eq!(explain(Fault::Refused).kind, WhyKind::Refused);
        assert_eq!(explain(Fault::Gone).kind, WhyKind::Gone);
    }

    #[test]
    fn reads_the_users_of_a_status_file() {
        assert_eq!(uids(b"Name:\tx\nUid:\t1000\t1001\t1000\t1000\n"), Some((1000, 1001)));
        assert_eq!(uids(b"Name:\tUid:\n"), None);
    }
}
