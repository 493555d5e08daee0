//! `doctor` on made-up machines.

mod nvml_library;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use alloctop::doctor::{Check, Report, SCHEMA, Scene, Screen, Verdict, examine};
use alloctop::reading::{Reading, WhyKind};
use nvml_library::Fake;

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A machine on which all is well, below one folder.
fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let proc = root.path().join("proc");
    put(&proc, "self/status", "CapEff:\t0000000000000000\n");
    put(&proc, "self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n");
    put(&proc, "sys/kernel/yama/ptrace_scope", "0\n");
    put(&proc, "meminfo", "MemTotal: 4096 kB\nMemAvailable: 2048 kB\n");
    put(&proc, &format!("{}/cgroup", std::process::id()), "0::/\n");
    fs::create_dir_all(proc.join("self/ns")).unwrap();
    symlink("pid:[4026531836]", proc.join("self/ns/pid")).unwrap();
    put(root.path(), "dev/nvidia0", "");
    put(root.path(), "dev/nvidiactl", "");
    root
}

fn run(root: &Path, nvml: PathBuf, environment: &dyn Fn(&str) -> Option<String>) -> Report {
    examine(&Scene {
        proc_root: root.join("proc"),
        dev_root: root.join("dev"),
        nvml: Some(nvml),
        environment,
        screen: Screen {
            is_terminal: true,
            size: Some((120, 36)),
        },
        torch: &|pid| match pid {
            900 => Reading::Is("torch 2.11, 1 device".to_owned()),
            _ => Reading::missing(WhyKind::Refused, "refused: run as its user"),
        },
    })
}

fn good_environment(name: &str) -> Option<String> {
    match name {
        "TERM" => Some("xterm-256color".into()),
        "LANG" => Some("en_US.UTF-8".into()),
        _ => None,
    }
}

fn check<'a>(report: &'a Report, name: &str) -> &'a Check {
    report
        .checks
        .iter()
        .find(|c| c.name == name)
        .unwrap_or_else(|| panic!("no {name} in {report:#?}"))
}

#[test]
fn a_sound_machine_passes_all_but_what_this_one_lacks() {
    let (root, fake) = (machine(), Fake::new(&[], ""));
    put(
        root.path(),
        "proc/900/maps",
        "7f00-7f01 r-xp 0 0:0 1 /opt/torch/lib/libc10_cuda.so\n",
    );
    let report = run(root.path(), fake.path(), &good_environment);
    for c in report.checks.iter().filter(|c| c.name != "CUDA driver") {
        assert_eq!(c.verdict, Verdict::Pass, "{c:?}");
        assert!(!c.text.chars().any(char::is_control));
    }
    assert!(check(&report, "GPU 0").text.contains("NVIDIA H200 0 GPU-00000000"));
    assert_eq!(check(&report, "driver").text, "580.159.04");
    assert_eq!(check(&report, "torch in 900").text, "torch 2.11, 1 device");
    assert!(check(&report, "memory limit").text.starts_with("4.00 MiB"));
}

#[test]
fn a_machine_without_a_gpu_warns_and_does_not_fail() {
    let root = machine();
    fs::remove_dir_all(root.path().join("dev")).unwrap();
    let report = run(
        root.path(),
        PathBuf::from("/nowhere/libnvidia-ml.so.1"),
        &good_environment,
    );
    assert_eq!(check(&report, "NVML").verdict, Verdict::Warn);
    assert!(
        check(&report, "device files")
            .next_step
            .as_ref()
            .unwrap()
            .contains("--gpus")
    );
    assert_eq!(report.exit_code(), 1);
}

#[test]
fn what_is_refused_fails_with_its_next_step() {
    let (root, fake) = (machine(), Fake::new(&[], "init=18"));
    put(root.path(), "proc/sys/kernel/yama/ptrace_scope", "3\n");
    put(
        root.path(),
        "proc/901/maps",
        "7f00-7f01 r-xp 0 0:0 1 /opt/torch/lib/libc10.so\n",
    );
    let report = run(root.path(), fake.path(), &good_environment);
    assert_eq!(check(&report, "NVML").verdict, Verdict::Fail);
    assert!(check(&report, "NVML").text.contains("reboot"));
    assert_eq!(check(&report, "ptrace_scope").verdict, Verdict::Fail);
    assert_eq!(check(&report, "torch in 901").verdict, Verdict::Fail);
    assert_eq!(report.exit_code(), 2);
    let denied = Fake::new(&[], "count=2\ncode.nvmlDeviceGetHandleByIndex_v2.1=4\n");
    let report = run(root.path(), denied.path(), &good_environment);
    assert_eq!(check(&report, "GPU 1").verdict, Verdict::Fail);
    assert_eq!(check(&report, "GPU 0").verdict, Verdict::Pass);
}

#[test]
fn limits_that_leave_something_working_are_warnings() {
    let (root, fake) = (
        machine(),
        Fake::new(&["lacks_v3", "lacks_v2"], "compute.0=5:18446744073709551615\n"),
    );
    put(root.path(), "proc/sys/kernel/yama/ptrace_scope", "1\n");
    put(
        root.path(),
        "proc/self/mountinfo",
        "22 1 0:20 / /proc rw - proc proc rw,hidepid=2\n",
    );
    fs::remove_file(root.path().join("proc/self/ns/pid")).unwrap();
    symlink("pid:[4026532999]", root.path().join("proc/self/ns/pid")).unwrap();
    let report = run(root.path(), fake.path(), &|name| match name {
        "LC_ALL" => Some("C\x1b[2J".into()),
        "LANG" => Some("en_US.UTF-8".into()),
        _ => None,
    });
    for name in [
        "GPU 0 memory",
        "GPU 0 processes",
        "ptrace_scope",
        "PID namespace",
        "/proc",
        "terminal",
        "locale",
    ] {
        assert_eq!(check(&report, name).verdict, Verdict::Warn, "{name}");
    }
    assert!(
        check(&report, "locale").text.contains("LC_ALL=C?[2J"),
        "LC_ALL decides, made harmless"
    );
    assert!(check(&report, "ptrace_scope").next_step.is_some());
    // Root is not bound by a scope of 1.
    put(root.path(), "proc/self/status", "CapEff:\t000001ffffffffff\n");
    let report = run(root.path(), fake.path(), &good_environment);
    assert_eq!(check(&report, "ptrace_scope").verdict, Verdict::Pass);
}

#[test]
fn text_and_json_say_the_same() {
    let (root, fake) = (machine(), Fake::new(&[], "count=0"));
    let report = run(root.path(), fake.path(), &good_environment);
    let json = report.json();
    assert_eq!(json["schema"], SCHEMA);
    assert_eq!(json["verdict"], "warn");
    let checks = json["checks"].as_array().unwrap();
    assert_eq!(checks.len(), report.checks.len());
    let text = report.text();
    for c in checks {
        assert!(text.contains(c["text"].as_str().unwrap()));
        assert!(c["next_step"].is_null() || text.contains(c["next_step"].as_str().unwrap()));
    }
    assert!(text.lines().all(|line| !line.is_empty()));
}

#[test]
fn the_real_machine_can_be_examined() {
    let report = examine(&Scene::here(None, &|_| Reading::not_yet()));
    assert!(report.checks.len() > 8);
    assert!(report.exit_code() <= 2);
}
