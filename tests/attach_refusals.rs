//! Every refusal has its sentence and its next step (AC-41), and says nothing else.

mod attach_target;

use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;

use alloctop::attach::{Attached, ProcRoot};
use alloctop::reading::{Reading, Why, WhyKind};
use attach_target::{Plan, Target};

fn refusal(root: &ProcRoot, pid: u32) -> Why {
    match Attached::find(root, pid) {
        Reading::Is(attached) => panic!("{attached:?}"),
        Reading::Missing(why) => why,
    }
}

fn check(why: &Why, kind: WhyKind, parts: &[&str]) {
    assert_eq!(why.kind, kind, "{why}");
    for part in parts {
        assert!(why.text.contains(part), "{part:?} is not in: {why}");
    }
    assert!(!why.text.chars().any(char::is_control), "{why:?}");
}

#[test]
fn no_process() {
    check(
        &refusal(&ProcRoot::default(), u32::MAX),
        WhyKind::Gone,
        &["is gone", "--pid=host"],
    );
    let mut target = Target::loaded(&Plan::release(211));
    target.kill();
    check(&target.refusal(), WhyKind::Gone, &["is gone"]);
}

#[test]
fn no_torch() {
    check(
        &refusal(&ProcRoot::default(), std::process::id()),
        WhyKind::Absent,
        &["no PyTorch", "libc10_cuda.so"],
    );
}

#[test]
fn cuda_not_initialised_yet_and_then_it_is() {
    let mut target = Target::library(&Plan::release(211));
    // The static initialiser has not run.
    check(
        &target.refusal(),
        WhyKind::NotYet,
        &["not initialised CUDA yet", "first use of a GPU"],
    );
    target.say("load 0");
    check(&target.refusal(), WhyKind::NotYet, &["not initialised CUDA yet"]);
    target.say("init");
    assert!(target.attach().read().value().is_some());
}

#[test]
fn a_process_that_dies_or_becomes_another_program_is_noticed() {
    let mut target = Target::initialised(&Plan::release(211));
    let mut attached = target.attach();
    assert!(attached.read().value().is_some());
    target.kill();
    let why = attached.read().why().cloned().unwrap();
    check(&why, WhyKind::Gone, &["is gone"]);
    attached.survey();

    let mut target = Target::initialised(&Plan::release(211));
    let mut attached = target.attach();
    assert_eq!(target.say("exec"), "exec");
    // The new program is there within a moment; until then the old one is read.
    let why = (0..1000)
        .find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            attached.read().why().cloned()
        })
        .unwrap();
    check(&why, WhyKind::Gone, &["exec"]);
    check(&target.refusal(), WhyKind::Absent, &["no PyTorch"]);
}

#[test]
fn a_zombie_is_said_to_be_one() {
    let mut target = Target::initialised(&Plan::release(211));
    let mut attached = target.attach();
    assert_eq!(target.say("exit"), "");
    // Not collected yet: this test is its parent.
    let root = ProcRoot::default();
    let why = (0..1000)
        .find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            attached.read().why().cloned()
        })
        .unwrap();
    check(&why, WhyKind::Gone, &["zombie"]);
    check(&refusal(&root, target.pid()), WhyKind::Gone, &["zombie"]);
}

#[test]
fn a_stopped_process_is_read_as_it_stands() {
    use nix::sys::signal::{Signal, kill};
    let mut target = Target::initialised(&Plan::release(211));
    target.say("seq 5");
    let mut attached = target.attach();
    let pid = nix::unistd::Pid::from_raw(target.pid() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    assert!(attached.read().value().unwrap().devices[0].fresh);
    // A second attach needs nothing from the target either.
    assert!(target.attach().read().value().is_some());
    kill(pid, Signal::SIGCONT).unwrap();
    target.say("seq 6");
    assert_eq!(attached.read().value().unwrap().devices[0].stats.num_alloc_retries, 6);
}

/// A /proc that shows one process under another number, and the scope that is given.
fn injected(pid: u32, shown_as: u32, scope: &str) -> (tempfile::TempDir, ProcRoot) {
    let folder = tempfile::tempdir().unwrap();
    let link = |name: &str, to: String| symlink(to, folder.path().join(name)).unwrap();
    link(&shown_as.to_string(), format!("/proc/{pid}"));
    link("self", "/proc/self".into());
    std::fs::create_dir_all(folder.path().join("sys/kernel/yama")).unwrap();
    std::fs::write(folder.path().join("sys/kernel/yama/ptrace_scope"), scope).unwrap();
    let root = ProcRoot(folder.path().to_path_buf());
    (folder, root)
}

#[test]
fn a_reused_number_is_another_process() {
    // The number first means one process, then another: what the kernel does when numbers wrap around.
    let mut first = Target::initialised(&Plan::release(211));
    let number = first.pid();
    let (folder, root) = injected(number, number, "0\n");
    let Reading::Is(mut attached) = Attached::find(&root, number) else {
        panic!("not attached");
    };
    assert!(attached.read().value().is_some());
    // Start times count hundredths of a second.
    std::thread::sleep(std::time::Duration::from_millis(30));
    let second = Target::initialised(&Plan::release(211));
    first.kill();
    std::fs::remove_file(folder.path().join(number.to_string())).unwrap();
    symlink(
        format!("/proc/{}", second.pid()),
        folder.path().join(number.to_string()),
    )
    .unwrap();
    let why = attached.read().why().cloned().unwrap();
    check(&why, WhyKind::Gone, &["another one has its number"]);
}

/// The unprivileged user of these tests.
const NOBODY: u32 = 65534;

/// Runs the test `name` of this program again as `NOBODY`, with `facts` in its environment. Needs root.
fn as_nobody(name: &str, facts: &[(&str, String)]) {
    // The program may lie where nobody else can go: an open file can be started all the same.
    let program = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    // A copy of the descriptor without close-on-exec.
    let program = nix::unistd::dup(&program).unwrap();
    let output = std::process::Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .envs(facts.iter().map(|(k, v)| (*k, v.as_str())))
        .env("ATTACH_AS_NOBODY", "1")
        .current_dir("/")
        .gid(NOBODY)
        .uid(NOBODY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn is_nobody() -> bool {
    std::env::var_os("ATTACH_AS_NOBODY").is_some()
}

fn fact<T: std::str::FromStr>(name: &str) -> T {
    std::env::var(name).unwrap().parse().ok().unwrap()
}

#[test]
fn another_user_is_refused() {
    if is_nobody() {
        let why = refusal(&ProcRoot::default(), fact("ATTACH_PID"));
        return check(&why, WhyKind::Refused, &["another user (root)", "sudo"]);
    }
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: only root can start a process of another user");
    }
    let target = Target::initialised(&Plan::release(211));
    as_nobody("another_user_is_refused", &[("ATTACH_PID", target.pid().to_string())]);
}

#[test]
fn a_child_that_drops_its_user_is_refused_to_its_new_self() {
    // The target started as root and became nobody: its memory stays root's (it is not dumpable).
    if is_nobody() {
        let root = ProcRoot(fact::<String>("ATTACH_ROOT").into());
        let why = refusal(&root, fact("ATTACH_PID"));
        return check(&why, WhyKind::Refused, &[&fact::<String>("ATTACH_SAYS")]);
    }
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: only root can drop its user");
    }
    let mut target = Target::initialised(&Plan::release(211));
    target.say(&format!("become {NOBODY}"));
    for (scope, says) in [
        ("0\n", "not dumpable"),
        ("1\n", "ptrace_scope is 1"),
        ("2\n", "ptrace_scope is 2"),
        ("3\n", "ptrace_scope is 3"),
    ] {
        let (folder, root) = injected(target.pid(), target.pid(), scope);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        as_nobody(
            "a_child_that_drops_its_user_is_refused_to_its_new_self",
            &[
                ("ATTACH_PID", target.pid().to_string()),
                ("ATTACH_ROOT", root.0.display().to_string()),
                ("ATTACH_SAYS", says.to_owned()),
            ],
        );
    }
    // Root itself may read it.
    assert!(target.attach().read().value().is_some());
}
