//! The process table on made-up /proc folders: containers, zombies, D state, open device files, families (AC-11, 12, 30,
//! 39).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use alloctop::clock::Moment;
use alloctop::reading::{Reading, Why, WhyKind};
use alloctop::source::host::HostSource;
use alloctop::source::processes::{DeviceSurvey, FamilyBasis, ProcessRow, ProcessTable, TableReader};
use alloctop::source::{DeviceIdentity, DeviceProcess, ProcessKind};
use alloctop::units::Bytes;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A process of state `state` with `rss_pages` pages, a child of `parent`.
fn process(root: &Path, pid: u32, state: char, parent: u32, rss_pages: u64) {
    let zeros = "0 ".repeat(13);
    put(
        root,
        &format!("{pid}/stat"),
        &format!(
            "{pid} (python3) {state} {parent} 1 1 0 -1 {zeros}{pid} 0 0 18446744073709551615 {}\n",
            "0 ".repeat(28)
        ),
    );
    put(
        root,
        &format!("{pid}/status"),
        &format!("State:\t{state}\nUid:\t4242424\t0\t0\t0\nNSpid:\t{pid}\n"),
    );
    put(root, &format!("{pid}/statm"), &format!("9 {rss_pages} 1 1 0 1 0\n"));
    put(root, &format!("{pid}/cmdline"), "python3\0train.py\0");
    put(root, &format!("{pid}/cgroup"), "0::/user.slice\n");
    fs::create_dir_all(root.join(format!("{pid}/fd"))).unwrap();
    symlink("/dev/null", root.join(format!("{pid}/fd/0"))).unwrap();
    put(root, &format!("{pid}/task/{pid}/children"), "");
}

fn open_file(root: &Path, folder: &str, n: u32, target: &str) {
    fs::create_dir_all(root.join(folder)).unwrap();
    symlink(target, root.join(folder).join(n.to_string())).unwrap();
}

/// A host in the first PID namespace, or inside a container.
fn host(nested: bool) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "uptime", "1000.0 1.0\n");
    let namespace = if nested { "pid:[4026532999]" } else { "pid:[4026531836]" };
    fs::create_dir_all(root.path().join("self/ns")).unwrap();
    symlink(namespace, root.path().join("self/ns/pid")).unwrap();
    root
}

fn survey(index: u32, list: &[(u32, u64, ProcessKind)]) -> DeviceSurvey {
    DeviceSurvey {
        device: DeviceIdentity {
            index,
            uuid: format!("GPU-{index}"),
            name: "made up".into(),
            pci: Reading::not_yet(),
            simulated: false,
            unified: false,
        },
        memory: Reading::not_yet(),
        processes: Reading::Is(
            list.iter()
                .map(|(pid, bytes, kind)| DeviceProcess {
                    pid: *pid,
                    vram: Reading::Is(Bytes(*bytes)),
                    kind: *kind,
                })
                .collect(),
        ),
        activity: Reading::missing(WhyKind::Absent, "not asked here"),
    }
}

fn table(root: &Path, surveys: &[DeviceSurvey]) -> ProcessTable {
    TableReader::new(HostSource::new(root)).read(Moment::default(), surveys, &[])
}

fn row(table: &ProcessTable, pid: u32) -> &ProcessRow {
    table.rows.iter().find(|r| r.pid == pid).unwrap()
}

fn note(row: &ProcessRow) -> &str {
    &row.note.as_ref().unwrap().text
}

#[test]
fn a_process_on_two_devices_has_one_row_with_both_shares() {
    let root = host(false);
    process(root.path(), 100, 'S', 1, 50);
    let surveys = [
        survey(0, &[(100, 7, ProcessKind::Compute), (100, 7, ProcessKind::Graphics)]),
        survey(1, &[(100, 5, ProcessKind::Mps)]),
    ];
    let table = table(root.path(), &surveys);
    assert_eq!(table.rows.len(), 1);
    let row = row(&table, 100);
    assert_eq!(row.vram(), Reading::Is(Bytes(12)));
    assert_eq!(row.devices[0].kinds, [ProcessKind::Compute, ProcessKind::Graphics]);
    assert_eq!(row.devices[1].uuid, "GPU-1");
    assert_eq!(row.rss, Reading::Is(Bytes(50 * procfs::page_size())));
    assert_eq!(
        row.user,
        Reading::Is("4242424".to_owned()),
        "a user without a name keeps the number"
    );
    assert_eq!(row.facts.value().unwrap().command, "python3 train.py");
    assert!(row.note.is_none() && row.family.is_none() && row.container.is_none());
    // This made-up kernel gives no smaps_rollup: the reason stays.
    assert!(row.pss.why().is_some());
}

#[test]
fn from_the_host_a_contained_process_shows_both_pids_and_its_container() {
    let root = host(false);
    process(root.path(), 4711, 'S', 1, 50);
    put(
        root.path(),
        "4711/status",
        "State:\tS\nUid:\t0\t0\t0\t0\nNSpid:\t4711\t12\n",
    );
    put(
        root.path(),
        "4711/cgroup",
        &format!("0::/system.slice/docker-{ID}.scope\n"),
    );
    let table = table(root.path(), &[survey(0, &[(4711, 7, ProcessKind::Compute)])]);
    let row = row(&table, 4711);
    assert_eq!(row.facts.value().unwrap().inner_pid(), Some(12));
    assert_eq!(row.container.as_deref(), Some(&ID[..12]));
}

#[test]
fn from_inside_a_container_a_host_pid_keeps_its_row_and_is_not_mistaken() {
    let root = host(true);
    // PID 300 exists here too, but it is a shell that has nothing to do with the GPU.
    process(root.path(), 300, 'S', 1, 50);
    // PID 301 here does use CUDA: the driver translates PIDs in this setting.
    process(root.path(), 301, 'S', 1, 50);
    put(
        root.path(),
        "301/maps",
        "7f00-7f01 r-xp 0 0:0 1 /usr/lib/libcuda.so.580.1\n",
    );
    let list = [
        (300, 7, ProcessKind::Compute),
        (301, 9, ProcessKind::Compute),
        (9999, 5, ProcessKind::Compute),
    ];
    let table = table(root.path(), &[survey(0, &list)]);
    for pid in [300, 9999] {
        let row = row(&table, pid);
        assert!(note(row).contains("host PID, not visible here"), "{}", note(row));
        assert!(row.facts.value().is_none() && row.rss.value().is_none());
        assert!(row.vram().value().is_some(), "its bytes are kept");
    }
    assert_eq!(row(&table, 301).facts.value().unwrap().name, "python3");
}

#[test]
fn a_process_that_ends_between_two_reads_keeps_a_row_without_bytes_of_the_host() {
    let root = host(false);
    let table = table(root.path(), &[survey(0, &[(100, 7, ProcessKind::Compute)])]);
    let row = row(&table, 100);
    assert_eq!(row.rss.why().unwrap().kind, WhyKind::Gone);
    assert_eq!(note(row), "process 100 is gone");
}

#[test]
fn holders_that_no_device_lists_get_a_row_and_a_reason() {
    let root = host(false);
    // In D state with the device open, as after a driver call that hangs.
    process(root.path(), 811, 'D', 1, 50);
    open_file(root.path(), "811/fd", 3, "/dev/nvidia6");
    open_file(root.path(), "811/fd", 4, "/dev/nvidia-uvm");
    // A monitor.
    process(root.path(), 812, 'S', 1, 50);
    open_file(root.path(), "812/fd", 3, "/dev/nvidiactl");
    open_file(root.path(), "812/fd", 4, "/dev/nvidia0");
    // A leader that has ended while another thread still holds the card.
    process(root.path(), 813, 'Z', 77, 0);
    fs::remove_file(root.path().join("813/fd/0")).unwrap();
    open_file(root.path(), "813/task/820/fd", 3, "/dev/nvidia1");
    // These have nothing: the control device alone, and an unrelated file.
    process(root.path(), 814, 'S', 1, 50);
    open_file(root.path(), "814/fd", 3, "/dev/nvidiactl");
    open_file(root.path(), "814/fd", 4, "/dev/nvidia-modeset");
    // Listed anyway: no second row.
    process(root.path(), 815, 'S', 1, 50);
    open_file(root.path(), "815/fd", 3, "/dev/nvidia0");
    let table = table(root.path(), &[survey(0, &[(815, 7, ProcessKind::Compute)])]);
    let pids: Vec<u32> = table.rows.iter().map(|r| r.pid).collect();
    assert_eq!(pids, [815, 811, 812, 813]);
    assert!(note(row(&table, 811)).contains("D state"));
    assert_eq!(row(&table, 811).holds, ["/dev/nvidia-uvm", "/dev/nvidia6"]);
    assert!(note(row(&table, 812)).contains("a monitor"));
    assert!(note(row(&table, 813)).contains("zombie"));
    assert_eq!(row(&table, 813).vram().why().unwrap().kind, WhyKind::Absent);
}

#[test]
fn workers_are_summed_by_pss_or_by_rss_with_a_warning() {
    let root = host(false);
    process(root.path(), 100, 'S', 1, 50);
    put(root.path(), "100/task/100/children", "101 ");
    put(root.path(), "100/task/105/children", "102 ");
    process(root.path(), 101, 'S', 100, 10);
    put(root.path(), "101/task/101/children", "103");
    process(root.path(), 102, 'S', 100, 10);
    process(root.path(), 103, 'S', 101, 10);
    for pid in [100, 101, 102, 103] {
        put(
            root.path(),
            &format!("{pid}/smaps_rollup"),
            "7f00-7f01 ---p 0 0:0 0 [rollup]\nRss: 9 kB\nPss: 3 kB\n",
        );
    }
    let surveys = [survey(0, &[(100, 7, ProcessKind::Compute)])];
    let mut reader = TableReader::new(HostSource::new(root.path()));
    let family = reader.read(Moment::default(), &surveys, &[]).rows[0]
        .family
        .clone()
        .unwrap();
    assert_eq!((family.descendants, family.bytes), (3, Bytes(12 << 10)));
    assert_eq!(family.basis, FamilyBasis::Pss);
    // One worker that ended is not counted; PSS is up to 5 s old until then.
    fs::remove_dir_all(root.path().join("102")).unwrap();
    let later = |secs| Moment(Duration::from_secs(secs));
    let family = reader.read(later(1), &surveys, &[]).rows[0].family.clone().unwrap();
    assert_eq!((family.descendants, family.bytes), (2, Bytes(9 << 10)));
    // A folder in its place stands for a file that cannot be read: then RSS, and how often shared pages may count.
    fs::remove_file(root.path().join("103/smaps_rollup")).unwrap();
    fs::create_dir(root.path().join("103/smaps_rollup")).unwrap();
    let family = reader.read(later(10), &surveys, &[]).rows[0].family.clone().unwrap();
    assert_eq!(family.bytes, Bytes(70 * procfs::page_size()));
    assert_eq!(family.basis, FamilyBasis::RssSharedCountedTimes(3));
}

#[test]
fn a_missing_list_is_a_reason_and_not_an_empty_table() {
    let root = host(false);
    let mut silent = survey(3, &[]);
    let why = Why::new(WhyKind::Refused, "no");
    silent.processes = Reading::Missing(why.clone());
    assert_eq!(table(root.path(), &[silent]).unlisted, [(3, why)]);
}
