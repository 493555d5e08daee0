//! The real loading path of the management library, against a made-up library (AC-2, 6, 7, 8, 9, 13, 14, 40).

mod nvml_library;

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use alloctop::reading::{Reading, WhyKind};
use alloctop::source::nvml::{Nvml, candidates};
use alloctop::source::{DeviceMonitor, MemoryInfoVersion, ProcessKind};
use alloctop::units::Bytes;
use nvml_library::Fake;

const PROCESSES: &str = "compute.0=100:545259520,200:1048576\ngraphics.0=200:1048576,300:7\nmps.0=400:99\n";

/// (pid, kind, bytes) of the whole list.
fn list(nvml: &mut Nvml) -> Vec<(u32, ProcessKind, Option<u64>)> {
    let Reading::Is(list) = nvml.processes(0) else {
        panic!("a list")
    };
    list.into_iter()
        .map(|p| (p.pid, p.kind, p.vram.value().map(|b| b.0)))
        .collect()
}

const EXPECTED: [(u32, ProcessKind, Option<u64>); 5] = [
    (100, ProcessKind::Compute, Some(545_259_520)),
    (200, ProcessKind::Compute, Some(1_048_576)),
    (200, ProcessKind::Graphics, Some(1_048_576)),
    (300, ProcessKind::Graphics, Some(7)),
    (400, ProcessKind::Mps, Some(99)),
];

#[test]
fn every_version_and_every_stride_gives_the_same_processes() {
    for (lacks, more) in [
        (&[][..], "stride=24\n"),
        (&[], "stride=32\n"),
        (&["lacks_v3"], ""),
        (&["lacks_v3", "lacks_v2"], ""),
    ] {
        let mut nvml = Fake::new(lacks, &format!("{PROCESSES}{more}")).opened();
        assert_eq!(list(&mut nvml), EXPECTED, "{lacks:?} {more}");
        assert_eq!(list(&mut nvml), EXPECTED, "asked again");
    }
}

#[test]
fn a_version_that_answers_not_found_falls_back_to_the_older_one() {
    for code in [13, 25, 26] {
        let mut text = PROCESSES.to_owned();
        for kind in ["Compute", "Graphics", "MPSCompute"] {
            writeln!(text, "code.nvmlDeviceGet{kind}RunningProcesses_v3={code}").unwrap();
            writeln!(text, "code.nvmlDeviceGet{kind}RunningProcesses_v2={code}").unwrap();
        }
        writeln!(text, "code.nvmlDeviceGetMemoryInfo_v2={code}").unwrap();
        let mut nvml = Fake::new(&[], &text).opened();
        assert_eq!(list(&mut nvml), EXPECTED);
        assert_eq!(nvml.memory(0).value().unwrap().version, MemoryInfoVersion::V1);
    }
}

#[test]
fn memory_is_version_2_where_the_driver_has_it_and_labelled_where_not() {
    let mut new = Fake::new(&[], "").opened();
    let m = new.memory(0).value().unwrap().clone();
    assert_eq!(m.version, MemoryInfoVersion::V2);
    assert_eq!(m.reserved, Reading::Is(Bytes(644_939_776)));
    assert_eq!(m.total.0, m.used.0 + m.free.0 + 644_939_776);
    let mut old = Fake::new(&["lacks_v3", "lacks_v2"], "").opened();
    let m = old.memory(0).value().unwrap().clone();
    assert_eq!(m.version, MemoryInfoVersion::V1);
    assert_eq!(m.used.0, 644_939_776 + 554_500_096, "incl. driver");
    assert!(m.reserved.why().unwrap().text.contains("incl. driver"));
    let mut none = Fake::new(&["lacks_v3", "lacks_v2", "lacks_v1"], PROCESSES).opened();
    assert_eq!(none.memory(0).why().unwrap().kind, WhyKind::Absent);
    assert_eq!(none.processes(0).why().unwrap().kind, WhyKind::Absent);
    assert!(none.devices().value().is_some(), "the rest goes on");
}

#[test]
fn a_long_list_is_asked_for_again_with_more_room() {
    let many: Vec<String> = (1..=700).map(|pid| format!("{pid}:{pid}")).collect();
    for stride in [24, 32] {
        let text = format!("compute.0={}\nstride={stride}\n", many.join(","));
        let mut nvml = Fake::new(&[], &text).opened();
        let list = list(&mut nvml);
        assert_eq!(list.len(), 700);
        assert!(list.iter().all(|(pid, _, bytes)| *bytes == Some(u64::from(*pid))));
    }
}

#[test]
fn what_is_not_available_is_a_reason_and_never_a_number() {
    for blank in [u64::MAX, 0x7FFF_FFFF_FFFF_FFF0, 0x7FFF_FFFF_FFFF_FFF3] {
        let text = format!("memory.0={blank},{blank},{blank},{blank}\ncompute.0=100:{blank}\n");
        let mut nvml = Fake::new(&[], &text).opened();
        assert_eq!(nvml.memory(0).why().unwrap().kind, WhyKind::Absent);
        assert_eq!(list(&mut nvml), [(100, ProcessKind::Compute, None)], "the row stays");
    }
    for blank in [u32::MAX, 0x7FFF_FFF0, 0x7FFF_FFF3] {
        let text = format!("util={blank}\ntemperature={blank}\npower={blank}\n");
        let a = Fake::new(&[], &text).opened().activity(0).value().unwrap().clone();
        for figure in [a.sm_percent, a.temperature, a.power_mw] {
            assert_eq!(figure.why().unwrap().kind, WhyKind::Absent);
        }
    }
    let a = Fake::new(&[], "").opened().activity(0).value().unwrap().clone();
    assert_eq!(a.sm_percent, Reading::Is(37));
    assert_eq!(a.power_mw, Reading::Is(120_500));
}

#[test]
fn impossible_figures_are_left_out_and_counted() {
    let text = "memory.0=1000,100,800,200\nutil=101\n";
    let mut nvml = Fake::new(&[], text).opened();
    assert_eq!(nvml.memory(0).why().unwrap().kind, WhyKind::Impossible);
    assert_eq!(nvml.impossible_answers(), 1);
    assert!(nvml.activity(0).value().unwrap().sm_percent.why().is_some());
    let text = "memory.0=1000,100,500,400\ncompute.0=1:1001,2:300\n";
    let mut one = Fake::new(&[], text).opened();
    assert_eq!(
        list(&mut one),
        [(1, ProcessKind::Compute, None), (2, ProcessKind::Compute, Some(300))]
    );
    let mut all = Fake::new(&[], "memory.0=1000,100,500,400\ncompute.0=1:600,2:600\n").opened();
    assert_eq!(
        list(&mut all),
        [(1, ProcessKind::Compute, None), (2, ProcessKind::Compute, None)]
    );
    assert_eq!(all.impossible_answers(), 2);
}

#[test]
fn random_answers_never_show_more_than_the_card() {
    for seed in 0..24 {
        let mut nvml = Fake::new(&[], &format!("fuzz={seed}")).opened();
        for _ in 0..60 {
            let _ = nvml.devices();
            let _ = nvml.driver_version();
            for index in 0..2 {
                if let Reading::Is(m) = nvml.memory(index) {
                    let parts = m.used.0 + m.free.0 + m.reserved.value().map_or(0, |b| b.0);
                    assert!(m.total.0 > 0 && parts <= m.total.0);
                }
                if let Reading::Is(list) = nvml.processes(index) {
                    let most = list.iter().filter_map(|p| p.vram.value()).map(|b| b.0).max();
                    assert!(most.is_none_or(|b| b < 0x7FFF_FFFF_FFFF_FFF0));
                }
                if let Reading::Is(a) = nvml.activity(index) {
                    assert!(a.sm_percent.value().is_none_or(|p| *p <= 100));
                }
            }
        }
    }
}

#[test]
fn one_failing_call_leaves_the_rest_right() {
    // NotSupported, NoPermission, NotFound, GpuIsLost, Unknown, and a code that no one knows.
    for code in [3, 4, 6, 15, 999, 12_345] {
        let failing = |function: &str| Fake::new(&[], &format!("{PROCESSES}code.{function}={code}\n")).opened();
        let works = |nvml: &mut nvml_library::Opened| {
            (
                nvml.devices().value().is_some(),
                nvml.memory(0).value().is_some(),
                nvml.processes(0).value().is_some(),
                nvml.activity(0).value().is_some(),
            )
        };
        let mut nvml = failing("nvmlDeviceGetMemoryInfo_v2");
        // Version 1 may stand in where version 2 is not supported.
        assert_eq!(works(&mut nvml), (true, code == 3, true, true), "{code}");
        let mut nvml = failing("nvmlDeviceGetComputeRunningProcesses_v3");
        assert_eq!(works(&mut nvml), (true, true, false, true), "{code}");
        let mut nvml = failing("nvmlDeviceGetUtilizationRates");
        assert_eq!(works(&mut nvml), (true, true, true, true), "{code}");
        let activity = nvml.activity(0).value().unwrap().clone();
        assert!(activity.sm_percent.why().unwrap().text.contains("GPU 0"));
        assert_eq!(activity.temperature, Reading::Is(41));
        let mut nvml = failing("nvmlDeviceGetPciInfo_v3");
        assert_eq!(works(&mut nvml), (true, true, true, true), "{code}");
        let mut nvml = failing("nvmlDeviceGetName");
        assert_eq!(nvml.devices().value().unwrap()[0].uuid, "GPU-00000000");
        let mut nvml = failing("nvmlSystemGetDriverVersion");
        assert!(nvml.driver_version().why().is_some());
        assert_eq!(works(&mut nvml), (true, true, true, true), "{code}");
    }
    // A driver that knows no graphics or MPS processes has none.
    let mut nvml = Fake::new(
        &[],
        &format!("{PROCESSES}code.nvmlDeviceGetGraphicsRunningProcesses_v3=3\ncode.nvmlDeviceGetMPSComputeRunningProcesses_v3=6\n"),
    )
    .opened();
    assert_eq!(list(&mut nvml), EXPECTED[..2]);
}

#[test]
fn each_way_of_having_no_card_has_its_own_sentence_with_a_next_step() {
    let sentence = |control: &str| {
        let fake = Fake::new(&[], control);
        match fake.open() {
            Reading::Missing(why) => why.text.into_owned(),
            Reading::Is(mut nvml) => nvml.devices().why().unwrap().text.clone().into_owned(),
        }
    };
    let missing = Nvml::open(Some(Path::new("/nowhere/libnvidia-ml.so.1")));
    let not_a_library = Nvml::open(Some(Path::new("/etc/passwd")));
    let sentences = [
        missing.why().unwrap().text.clone().into_owned(),
        not_a_library.why().unwrap().text.clone().into_owned(),
        sentence("init=18"),
        sentence("init=4"),
        sentence("init=9"),
        sentence("count=0"),
        sentence("code.nvmlDeviceGetHandleByIndex_v2=15"),
    ];
    for (part, sentence) in [
        "--nvml",
        "cannot be loaded",
        "different versions: reboot",
        "refuses access: check the rights",
        "modprobe nvidia",
        "lists no GPU",
        "reset it or reboot",
    ]
    .iter()
    .zip(&sentences)
    {
        assert!(sentence.contains(part), "{sentence}");
        assert!(!sentence.contains('\n') && sentence.len() < 200, "{sentence}");
    }
    let mut different = sentences.to_vec();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), sentences.len());
}

#[test]
fn one_of_two_denied_is_named_and_the_other_works() {
    let mut nvml = Fake::new(&[], "count=2\ncode.nvmlDeviceGetHandleByIndex_v2.1=4\n").opened();
    let devices = nvml.devices().value().unwrap().clone();
    assert_eq!(devices.len(), 1);
    let refused = nvml.refused();
    assert_eq!(refused[0].0, 1);
    assert!(refused[0].1.text.contains("/dev/nvidia1"), "{}", refused[0].1);
    assert!(nvml.memory(0).value().is_some());
    assert_eq!(nvml.memory(1).why().unwrap().kind, WhyKind::Refused);
}

#[test]
fn a_card_that_is_lost_while_it_is_watched_is_gone_and_may_come_back() {
    let mut nvml = Fake::new(&[], PROCESSES).opened();
    assert!(nvml.memory(0).value().is_some());
    nvml.fake
        .control("code.nvmlDeviceGetMemoryInfo_v2=15\ncode.nvmlDeviceGetComputeRunningProcesses_v3=15\n");
    assert_eq!(nvml.memory(0).why().unwrap().kind, WhyKind::Gone);
    assert_eq!(nvml.processes(0).why().unwrap().kind, WhyKind::Gone);
    nvml.fake.control(PROCESSES);
    assert!(nvml.memory(0).value().is_some());
}

#[test]
fn cards_are_keyed_by_uuid_and_their_names_are_harmless() {
    let text = "count=3\nuuid.0=GPU-b\nuuid.1=GPU-a\nname.0=H\x1b[2J200\nname.1=NVIDIA GB10\nname.2=NVIDIA Next\ncode.nvmlDeviceGetMemoryInfo_v2.1=3\n\
                code.nvmlDeviceGetMemoryInfo.1=3\ncode.nvmlDeviceGetMemoryInfo_v2.2=3\ncode.nvmlDeviceGetMemoryInfo.2=3\n";
    let mut nvml = Fake::new(&[], text).opened();
    let devices = nvml.devices().value().unwrap().clone();
    assert_eq!((devices[0].index, devices[0].uuid.as_str()), (0, "GPU-b"));
    assert_eq!(devices[0].name, "H?[2J200");
    assert_eq!(devices[0].pci, Reading::Is("00000000:00:00.0".to_owned()));
    assert!(!devices[0].unified && devices[1].unified && devices[2].unified, "AC-9");
    assert!(nvml.memory(1).why().unwrap().text.contains("see CPU RAM"));
    assert_eq!(nvml.driver_version(), Reading::Is("580.159.04".to_owned()));
}

#[test]
fn the_search_goes_through_names_wsl_and_distribution_folders() {
    let all = candidates(None);
    let place = |end: &str| all.iter().position(|p| p.ends_with(end)).unwrap();
    assert_eq!(all[0], Path::new("libnvidia-ml.so.1"));
    assert_eq!(all[1], Path::new("libnvidia-ml.so"));
    assert!(place("wsl/lib/libnvidia-ml.so.1") < place("lib64/libnvidia-ml.so.1"));
    assert_eq!(candidates(Some(Path::new("/x"))), [Path::new("/x")]);
}

/// Set in the child of the next test only.
const CHILD: &str = "ALLOCTOP_TEST_NVML_CHILD";

#[test]
fn the_systems_own_search_finds_it_by_name() {
    if std::env::var_os(CHILD).is_some() {
        let mut nvml = match Nvml::open(None) {
            Reading::Is(nvml) => nvml,
            Reading::Missing(why) => panic!("{why}"),
        };
        assert_eq!(nvml.path(), Path::new("libnvidia-ml.so.1"));
        assert_eq!(nvml.devices().value().unwrap()[0].name, "found by name");
        return;
    }
    let fake = Fake::new(&[], "name.0=found by name\n");
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_systems_own_search_finds_it_by_name"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", fake.path().parent().unwrap())
        .status()
        .unwrap();
    assert!(status.success());
}
