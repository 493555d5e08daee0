//! The host source on real processes and on made-up /proc folders.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use alloctop::reading::{Reading, WhyKind};
use alloctop::source::host::HostSource;
use alloctop::source::host::facts::ProcessState;
use alloctop::units::Bytes;

/// A child that is killed when the test ends.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Sleeper(Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn kill_and_wait(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.kill_and_wait();
    }
}

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn own_memory_parts_sum_to_rss_and_agree_with_the_exact_file() {
    let mut host = HostSource::new("/proc");
    let pid = std::process::id();
    let Reading::Is(m) = host.memory(pid) else {
        panic!("our own status must be readable")
    };
    let parts = [&m.anon, &m.file, &m.shmem].map(|r| r.value().unwrap().0);
    assert_eq!(parts.iter().sum::<u64>(), m.rss.0);
    assert!(m.high_water.value().unwrap().0 >= m.rss.0 / 2);
    let statm = host.rss(pid).value().unwrap().0;
    // Other tests of this file run in the same process: 16 MiB covers them and the kernel's batching (AC-28).
    assert!(statm.abs_diff(m.rss.0) < 16 << 20, "{statm} {}", m.rss.0);
    if let Reading::Is(pss) = host.pss(pid) {
        assert!(pss.0 <= statm + (16 << 20));
    }
}

#[test]
fn a_process_that_ends_is_gone_and_a_zombie_shows_no_bytes() {
    let mut host = HostSource::new("/proc");
    let mut child = Sleeper::start();
    let pid = child.pid();
    assert!(host.memory(pid).value().is_some());
    child.0.kill().unwrap();
    for _ in 0..200 {
        if host.memory(pid).why().is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let zombie = host.memory(pid);
    assert_eq!(zombie.why().unwrap().kind, WhyKind::Gone);
    assert!(zombie.why().unwrap().text.contains("zombie"));
    assert_eq!(host.facts(pid).value().unwrap().state, ProcessState::Zombie);
    child.kill_and_wait();
    let gone = host.memory(pid);
    assert_eq!(gone.why().unwrap().text, format!("process {pid} is gone"));
    for missing in [
        host.rss(pid).why().cloned(),
        host.pss(pid).why().cloned(),
        host.ceiling(pid).why().cloned(),
    ] {
        assert_eq!(missing.unwrap().kind, WhyKind::Gone);
    }
    assert_eq!(host.facts(pid).why().unwrap().kind, WhyKind::Gone);
}

#[test]
fn says_who_a_process_is_and_finds_it_among_our_children() {
    let host = HostSource::new("/proc");
    let child = Sleeper::start();
    let facts = host.facts(child.pid()).value().unwrap().clone();
    assert_eq!(facts.parent, std::process::id());
    assert!(
        facts.command == "sleep 60" || facts.command.starts_with('['),
        "{}",
        facts.command
    );
    assert!(facts.age.value().unwrap().as_secs() < 50);
    assert_eq!(facts.key, *host.key(child.pid()).value().unwrap());
    assert_eq!(facts.uid.value().copied(), Some(nix::unistd::getuid().as_raw()));
    if let Reading::Is(children) = host.descendants(std::process::id(), 1000) {
        assert!(children.contains(&child.pid()));
    }
}

const STATUS: &str = "Name:\tpython3\nState:\tS (sleeping)\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t4711\t12\n\
VmHWM:\t 900 kB\nVmRSS:\t 600 kB\nRssAnon:\t 300 kB\nRssFile:\t 200 kB\nRssShmem:\t 100 kB\nVmSwap:\t 8 kB\n";

#[test]
fn reads_a_made_up_process_in_a_container() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "4711/status", STATUS);
    put(root.path(), "4711/stat", &stat(4711, "py (th) \x1b[2J", 'D', 500));
    put(root.path(), "4711/cmdline", "python3\0train.py\0--lr\x1b[31m\0");
    put(root.path(), "uptime", "105.00 10.0\n");
    put(root.path(), "4711/statm", "1000 150 50 1 0 20 0\n");
    let mut host = HostSource::new(root.path());
    let m = host.memory(4711).value().unwrap().clone();
    assert_eq!(m.rss, Bytes(600 << 10));
    assert_eq!(m.swap, Reading::Is(Bytes(8 << 10)));
    assert_eq!(host.rss(4711).value().unwrap().0, 150 * procfs::page_size());
    let facts = host.facts(4711).value().unwrap().clone();
    assert_eq!(facts.state, ProcessState::Uninterruptible);
    assert_eq!(facts.name, "py (th) ?[2J");
    assert_eq!(facts.command, "python3 train.py --lr?[31m");
    assert_eq!(facts.ns_pids, [4711, 12]);
    assert_eq!(facts.inner_pid(), Some(12));
    assert_eq!(facts.age.value().unwrap().as_secs(), 100);
}

/// A line of /proc/PID/stat.
fn stat(pid: u32, name: &str, state: char, start_ticks: u64) -> String {
    let (before, after) = ("0 ".repeat(13), "0 ".repeat(28));
    format!("{pid} ({name}) {state} 1 1 1 0 -1 {before}{start_ticks} 0 0 18446744073709551615 {after}\n")
}

#[test]
fn a_real_pid_is_watched_by_its_start_and_forgotten_on_demand() {
    let mut host = HostSource::new("/proc");
    let mut child = Sleeper::start();
    assert!(host.memory(child.pid()).value().is_some());
    child.kill_and_wait();
    assert!(host.memory(child.pid()).why().unwrap().text.contains("is gone"));
    host.forget();
    assert!(host.memory(std::process::id()).value().is_some());
}

#[test]
fn nonsense_files_are_reasons_and_never_numbers() {
    let root = tempfile::tempdir().unwrap();
    for (pid, status, kind) in [
        (1, "", WhyKind::Absent),
        (2, "VmRSS:\t99999999999999999999 kB\n", WhyKind::Absent),
        (3, "VmRSS:\t-5 kB\n", WhyKind::Absent),
        (4, "State:\tZ (zombie)\nVmRSS:\t5 kB\n", WhyKind::Gone),
    ] {
        put(root.path(), &format!("{pid}/status"), status);
        put(root.path(), &format!("{pid}/statm"), "what\n");
        put(root.path(), &format!("{pid}/stat"), &stat(pid, "x", 'S', 5));
        let mut host = HostSource::new(root.path());
        assert_eq!(host.memory(pid).why().unwrap().kind, kind, "{status:?}");
        put(root.path(), &format!("{pid}/stat"), "\u{0}\n");
        assert!(host.rss(pid).why().is_some());
        assert!(host.facts(pid).why().is_some());
    }
}

/// A made-up host with control groups mounted at `root`/sys.
fn groups(root: &Path, cgroup: &str, mounts: &str) -> HostSource {
    put(root, "77/cgroup", cgroup);
    put(root, "self/mountinfo", &mounts.replace("ROOT", root.to_str().unwrap()));
    put(root, "meminfo", "MemTotal:       4096 kB\nMemAvailable:   1024 kB\n");
    HostSource::new(root)
}

#[test]
fn the_smallest_limit_on_the_whole_v2_path_binds() {
    let root = tempfile::tempdir().unwrap();
    let host = groups(
        root.path(),
        "0::/user.slice/job/step\n",
        "35 24 0:30 / ROOT/sys rw - cgroup2 cgroup2 rw\n",
    );
    put(root.path(), "sys/user.slice/memory.max", "1048576\n");
    put(root.path(), "sys/user.slice/memory.current", "70000\n");
    put(root.path(), "sys/user.slice/job/memory.max", "2097152\n");
    put(root.path(), "sys/user.slice/job/step/memory.max", "max\n");
    let c = host.ceiling(77).value().unwrap().clone();
    assert_eq!(c.cgroup_limit, Reading::Is(Bytes(1 << 20)));
    assert_eq!(c.cgroup_used, Reading::Is(Bytes(70_000)));
    assert_eq!(c.host_total, Reading::Is(Bytes(4 << 20)));
    assert_eq!(c.limit(), Reading::Is(Bytes(1 << 20)));
}

#[test]
fn max_everywhere_is_no_limit() {
    let root = tempfile::tempdir().unwrap();
    let host = groups(
        root.path(),
        "0::/job\n",
        "35 24 0:30 / ROOT/sys rw - cgroup2 cgroup2 rw\n",
    );
    put(root.path(), "sys/job/memory.max", "max\n");
    let c = host.ceiling(77).value().unwrap().clone();
    assert_eq!(c.cgroup_limit.why().unwrap().kind, WhyKind::Absent);
    assert_eq!(
        c.limit(),
        Reading::Is(Bytes(4 << 20)),
        "the host's memory bounds it then"
    );
}

#[test]
fn v1_in_a_container_is_found_through_the_root_of_its_mount() {
    let root = tempfile::tempdir().unwrap();
    let host = groups(
        root.path(),
        "9:name=systemd:/docker/abc\n4:memory:/docker/abc/inner\n0::/\n",
        "40 31 0:32 /docker/abc ROOT/mem rw - cgroup cgroup rw,memory\n\
         41 31 0:33 / ROOT/cpu rw - cgroup cgroup rw,cpu\nnonsense - cgroup\n",
    );
    put(root.path(), "mem/memory.limit_in_bytes", "3145728\n");
    put(root.path(), "mem/memory.usage_in_bytes", "5\n");
    put(root.path(), "mem/inner/memory.limit_in_bytes", "9223372036854771712\n");
    let c = host.ceiling(77).value().unwrap().clone();
    assert_eq!(c.cgroup_limit, Reading::Is(Bytes(3 << 20)));
    assert_eq!(c.cgroup_used, Reading::Is(Bytes(5)));
}

#[test]
fn a_group_outside_the_namespace_is_not_visible() {
    let root = tempfile::tempdir().unwrap();
    let host = groups(
        root.path(),
        "0::/../other\n",
        "35 24 0:30 / ROOT/sys rw - cgroup2 cgroup2 rw\n",
    );
    put(root.path(), "sys/memory.max", "2048\n");
    put(root.path(), "other/memory.max", "1\n");
    let c = host.ceiling(77).value().unwrap().clone();
    assert!(c.cgroup_limit.why().unwrap().text.contains("not visible"));
}
