//! `--once` and `--json` on made-up /proc folders and a made-up monitor.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use alloctop::attach::ProcRoot;
use alloctop::once::{self, Request};
use alloctop::reading::{Reading, WhyKind};
use alloctop::source::{
    DeviceActivity, DeviceIdentity, DeviceMemory, DeviceMonitor, DeviceProcess, MemoryInfoVersion, ProcessKind,
};
use alloctop::units::Bytes;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// One card of 1000 bytes, or none.
struct Card(Option<Vec<(u32, u64)>>);

impl DeviceMonitor for Card {
    fn devices(&mut self) -> Reading<Vec<DeviceIdentity>> {
        if self.0.is_none() {
            return Reading::missing(WhyKind::Absent, "no driver: install it");
        }
        Reading::Is(vec![DeviceIdentity {
            index: 0,
            uuid: "GPU-0".into(),
            name: "made up".into(),
            pci: Reading::not_yet(),
            simulated: false,
            unified: false,
        }])
    }
    fn memory(&mut self, _: u32) -> Reading<DeviceMemory> {
        Reading::Is(DeviceMemory {
            total: Bytes(1000),
            reserved: Reading::Is(Bytes(100)),
            used: Bytes(500),
            free: Bytes(400),
            version: MemoryInfoVersion::V2,
        })
    }
    fn processes(&mut self, _: u32) -> Reading<Vec<DeviceProcess>> {
        let list = self.0.clone().unwrap_or_default().into_iter();
        let process = |(pid, bytes)| DeviceProcess {
            pid,
            vram: Reading::Is(Bytes(bytes)),
            kind: ProcessKind::Compute,
        };
        Reading::Is(list.map(process).collect())
    }
    fn activity(&mut self, _: u32) -> Reading<DeviceActivity> {
        Reading::not_yet()
    }
    fn driver_version(&mut self) -> Reading<String> {
        Reading::not_yet()
    }
}

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A process that uses the GPU or does not, in a container whose inside knows it as 7.
fn process(root: &Path, pid: u32, gpu: bool) {
    let (before, after) = ("0 ".repeat(13), "0 ".repeat(28));
    put(
        root,
        &format!("{pid}/stat"),
        &format!("{pid} (train) S 1 1 1 0 -1 {before}500 0 0 18446744073709551615 {after}\n"),
    );
    put(
        root,
        &format!("{pid}/status"),
        &format!("State:\tS\nVmRSS:\t8 kB\nUid:\t4242424\t0\t0\t0\nNSpid:\t{pid}\t7\n"),
    );
    put(root, &format!("{pid}/statm"), "9 2 1 1 0 1 0\n");
    put(root, &format!("{pid}/cmdline"), "python3\0train.py\0");
    put(root, &format!("{pid}/cgroup"), &format!("0::/docker/{ID}\n"));
    fs::create_dir_all(root.join(format!("{pid}/fd"))).unwrap();
    let file = if gpu { "/dev/nvidia0" } else { "/dev/null" };
    symlink(file, root.join(format!("{pid}/fd/3"))).unwrap();
}

/// In the host's PID namespace, or nested in another one.
fn host(nested: bool) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let namespace = if nested { "pid:[4026532999]" } else { "pid:[4026531836]" };
    fs::create_dir_all(root.path().join("self/ns")).unwrap();
    symlink(namespace, root.path().join("self/ns/pid")).unwrap();
    root
}

fn look(root: &Path, card: Option<Vec<(u32, u64)>>, pids: &[u32]) -> (serde_json::Value, String, u8) {
    let request = Request {
        pids: pids.to_vec(),
        ..Request::default()
    };
    let document = once::look(&mut Card(card), &ProcRoot(root.to_path_buf()), &request);
    let mut text = Vec::new();
    once::text::write(&document, &mut text).unwrap();
    (
        serde_json::to_value(&document).unwrap(),
        String::from_utf8(text).unwrap(),
        once::status(&document, &request),
    )
}

#[test]
fn a_host_pid_that_is_not_visible_here_keeps_its_row_and_says_so() {
    let root = host(true);
    process(root.path(), 40, true);
    // The number 41 belongs to an unrelated process here; 9000 to none.
    process(root.path(), 41, false);
    let (json, text, status) = look(root.path(), Some(vec![(40, 5), (41, 7), (9000, 9)]), &[]);
    let rows = json["processes"].as_array().unwrap();
    assert_eq!((rows.len(), status), (3, 0));
    assert_eq!(rows[0]["inner_pid"], 7);
    assert_eq!(rows[0]["container"], "0123456789ab");
    assert_eq!(rows[0]["rss_bytes"], 8192);
    for (row, vram) in [(&rows[1], 7), (&rows[2], 9)] {
        assert!(
            row["reason"]
                .as_str()
                .unwrap()
                .starts_with("host PID, not visible here"),
            "{row}"
        );
        assert_eq!(row["gpus"][0]["vram_bytes"], vram);
        assert!(row["command"].is_null() && row["rss_bytes"].is_null() && row["container"].is_null());
    }
    assert!(
        text.contains("40/7") && text.contains("in container 0123456789ab"),
        "{text}"
    );
}

#[test]
fn a_pid_that_is_asked_for_does_not_get_the_vram_of_a_host_pid() {
    let root = host(true);
    process(root.path(), 41, false);
    let (json, ..) = look(root.path(), Some(vec![(41, 7)]), &[41]);
    let row = &json["processes"][0];
    assert_eq!(
        (&row["rss_bytes"], row["gpus"].as_array().unwrap().len()),
        (&8192.into(), 0)
    );
    assert!(row["reason"].as_str().unwrap().contains("VRAM: host PID"), "{row}");
    let outside = host(false);
    process(outside.path(), 41, false);
    let (json, ..) = look(outside.path(), Some(vec![(41, 7)]), &[41]);
    assert_eq!(json["processes"][0]["gpus"][0]["vram_bytes"], 7);
}

#[test]
fn each_reason_is_said_once() {
    let root = host(false);
    let (json, text, status) = look(root.path(), None, &[]);
    assert_eq!(status, 1);
    assert_eq!(text, "no GPU can be shown: no driver: install it\n");
    assert_eq!(json["devices"].as_array().unwrap().len(), 0, "no device is invented");
    let (_, text, status) = look(root.path(), None, &[999]);
    assert_eq!(status, 1);
    assert_eq!(text.matches("process 999 is gone").count(), 1, "{text}");
    assert_eq!(text.matches("no driver").count(), 1, "{text}");
}
