//! The real way to the driver, against a stand-in for libcuda.so.1: loading, each call, and each way it can fail. A
//! library is found by LD_LIBRARY_PATH, which is read when a process starts, so each case runs in a process of its own:
//! this test binary, once more.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use alloctop::budget::Budget;
use alloctop::clock::RealClock;
use alloctop::driver::cuda::{CudaDevice, CudaDriver};
use alloctop::driver::{Driver, DriverError, StreamId};
use alloctop::reading::{Reading, WhyKind};
use alloctop::units::MIB;
use alloctop::worker::{BackendChoice, Command as Order, Dtype, Setup, Worker};

/// The folder of the stand-in, compiled once for all cases; `old` lacks a function.
fn fake(old: bool) -> &'static Path {
    static FOLDERS: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    FOLDERS[usize::from(old)].get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cuda-{}-{old}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda_fake/libcuda.rs");
        let status = Command::new(rustc)
            .args(["--crate-type=cdylib", "--edition=2024", "--check-cfg=cfg(old)"])
            .args(if old { &["--cfg=old"][..] } else { &[] })
            .arg("-o")
            .arg(folder.join("libcuda.so.1"))
            .arg(source)
            .status()
            .unwrap();
        assert!(status.success());
        folder
    })
}

/// Runs `case` in a fresh process where libcuda is the stand-in (or, with `None`, is not found) and gives what it said.
fn say(case: &str, mode: Option<&str>) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env("CUDA_CASE", case);
    match mode {
        Some(mode) => child.env("LD_LIBRARY_PATH", fake(mode == "old")).env("FAKE_CUDA", mode),
        None => child.env_remove("LD_LIBRARY_PATH"),
    };
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{case} {mode:?} ended with {}: {text}",
        output.status
    );
    text.lines()
        .filter_map(|line| line.split_once("SAYS ").map(|(_, said)| said))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Not a test of its own: the process that each case runs in.
#[test]
fn child() {
    let Ok(case) = std::env::var("CUDA_CASE") else {
        return;
    };
    std::panic::set_hook(Box::new(|info| println!("SAYS panic: {info}")));
    let said = match case.as_str() {
        "alloc" => said(&CudaDriver::new(CudaDevice::Ordinal(0)).alloc(2 * MIB)),
        "context" => said(&CudaDriver::new(CudaDevice::Ordinal(0)).mem_info()),
        "no such device" => said(&CudaDriver::new(CudaDevice::Ordinal(2)).mem_info()),
        "uuid" => {
            let second = "GPU-f1f1f1f1-f1f1-f1f1-f1f1-f1f1f1f1f1f1";
            let total = CudaDriver::new(CudaDevice::Uuid(second.into())).device_total();
            let hidden = CudaDriver::new(CudaDevice::Uuid("GPU-00".into())).device_total();
            format!("{} / {}", said(&total), said(&hidden))
        }
        "map" => {
            let mut driver = CudaDriver::new(CudaDevice::Ordinal(0));
            let range = driver.reserve(100 * MIB).unwrap();
            let result = driver.map(range, 20 * MIB, 4);
            format!("{} {}", said(&result), books())
        }
        "all calls" => all_calls(),
        "loaded when" => {
            let mut driver = CudaDriver::new(CudaDevice::Ordinal(0));
            let before = loaded();
            driver.alloc(2 * MIB).unwrap();
            format!("{before} {}", loaded())
        }
        "worker" => worker(),
        other => panic!("no case {other}"),
    };
    println!("SAYS {said}");
}

/// A result as the user reads it.
fn said<T: std::fmt::Debug>(result: &Result<T, DriverError>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    }
}

fn loaded() -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains("libcuda")
}

/// Bytes and objects in the stand-in's books.
fn books() -> String {
    type Books = extern "C" fn(&mut usize, &mut usize);
    let (mut used, mut objects) = (0, 0);
    // SAFETY: the stand-in exports this function with this type.
    unsafe {
        let library = cudarc::driver::sys::culib();
        library.get::<Books>(b"fake_books").unwrap()(&mut used, &mut objects);
    }
    format!("used {used} objects {objects}")
}

/// The allocator's thread on this driver: what is loaded when, and what comes of an allocation.
fn worker() -> String {
    let ceiling = || Reading::missing(WhyKind::Absent, "not asked here");
    let budget = Budget::new(None, Box::new(ceiling));
    let backend = BackendChoice::Cuda(CudaDevice::Ordinal(0));
    let clock = Arc::new(RealClock::start());
    let mut worker = Worker::start(backend, Setup::default(), budget, clock, Box::new(|| {}));
    let mut run = |command| {
        worker.send(command);
        worker.outcomes.blocking_recv().unwrap()
    };
    let mut said = String::new();
    for command in [
        Order::Flush,
        Order::ResetPeaks,
        Order::DeleteAll,
        Order::Stream(StreamId(1)),
    ] {
        said += if run(command).result.is_ok() && !loaded() {
            "."
        } else {
            "loaded "
        };
    }
    let shape = "1000".parse().unwrap();
    let made = run(Order::AllocGpu {
        shape,
        dtype: Dtype::Float32,
    });
    let kind = match made.result {
        Ok(_) => "made".to_owned(),
        Err(refusal) => refusal.to_string(),
    };
    let timed = made.first_use.is_some_and(|c| c.process.is_none());
    drop(worker);
    said + &format!(" {kind} {timed}")
}

/// Every call of the trait in one life; what is left in the books at the end is in what it says.
fn all_calls() -> String {
    let mut driver = CudaDriver::new(CudaDevice::Ordinal(0));
    assert_eq!(driver.device_total(), Ok(8 << 30));
    assert_eq!(driver.take_context(), None, "the total needs no context");
    let a = driver.alloc(20 * MIB).unwrap();
    let context = driver.take_context().unwrap();
    assert_eq!(context.bytes, None);
    assert!(driver.take_cost() > Duration::ZERO);
    assert_eq!(driver.mem_info().unwrap().free, (8 << 30) - 20 * MIB);
    driver.fill(a, 20 * MIB, StreamId(0)).unwrap();
    assert_eq!(driver.alloc(9 << 30), Err(DriverError::OutOfMemory));

    let range = driver.reserve(100 * MIB).unwrap();
    driver.map(range, 2 * MIB, 3).unwrap();
    assert_eq!(driver.mem_info().unwrap().free, (8 << 30) - 26 * MIB);
    assert!(driver.unmap(range, 20 * MIB, 1).is_err(), "another granule");
    driver.unmap(range + 2 * MIB, 2 * MIB, 1).unwrap();
    assert!(driver.map(range, 2 * MIB, 0).is_err());
    driver.unmap(range, 2 * MIB, 1).unwrap();
    driver.unmap(range + 4 * MIB, 2 * MIB, 1).unwrap();
    driver.unreserve(range, 100 * MIB).unwrap();
    driver.free(a).unwrap();
    assert!(matches!(driver.free(a), Err(DriverError::Failed { code: 1, .. })));

    let side = driver.new_stream().unwrap();
    driver.keep_busy(side, Duration::from_mins(1)).unwrap();
    let event = driver.record_event(side).unwrap();
    assert_eq!(driver.event_done(event), Ok(false));
    let idle = driver.record_event(StreamId(0)).unwrap();
    assert_eq!(driver.event_done(idle), Ok(true));
    assert!(driver.event_done(idle).is_err(), "forgotten");
    let nowhere = driver.record_event(StreamId(77));
    assert!(matches!(nowhere, Err(DriverError::Failed { code: 400, .. })));

    // Left for the driver's end: a granule, a stream with a minute of work, an event.
    let range = driver.reserve(20 * MIB).unwrap();
    driver.map(range, 2 * MIB, 1).unwrap();
    drop(driver);
    books()
}

#[test]
fn without_a_driver_a_sentence_names_the_next_step() {
    let text = say("alloc", None);
    // A machine with a driver answers; every other says what to do.
    assert!(
        text.contains("libcuda.so.1 was not found") && text.contains("--backend sim") || loaded_here(),
        "{text}"
    );
    assert!(!text.contains("panic"), "{text}");
}

/// This machine has a CUDA driver of its own.
fn loaded_here() -> bool {
    // SAFETY: opens and closes libraries by name.
    unsafe { cudarc::driver::sys::is_culib_present() }
}

#[test]
fn each_failure_has_its_own_sentence() {
    for (case, mode, words) in [
        ("alloc", "init=34", "stub"),
        ("alloc", "init=100", "sees no device"),
        ("alloc", "init=803", "reboot"),
        (
            "alloc",
            "init=9999",
            "cuInit failed: an error that this program has no name for (CUDA error 9999)",
        ),
        ("alloc", "alloc=2", "the driver is out of memory"),
        (
            "alloc",
            "alloc=9999",
            "cuMemAlloc failed: an error that this program has no name for (CUDA error 9999)",
        ),
        ("alloc", "alloc=700", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("context", "context=2", "the driver is out of memory"),
        ("context", "context=46", "CUDA_ERROR_DEVICE_UNAVAILABLE"),
        ("no such device", "ok", "2 device(s)"),
        ("alloc", "old", "has no cuMemCreate; pass --backend sim"),
    ] {
        let text = say(case, Some(mode));
        assert!(text.contains(words), "{case} {mode}: {text}");
        assert!(!text.contains("panic"), "{case} {mode}: {text}");
    }
}

#[test]
fn a_device_is_found_by_its_uuid() {
    let text = say("uuid", Some("ok"));
    assert!(text.starts_with("8589934593 / "), "{text}");
    assert!(text.contains("CUDA_VISIBLE_DEVICES"), "{text}");
}

#[test]
fn mapping_is_all_or_none() {
    assert_eq!(
        say("map", Some("create=2")),
        "the driver is out of memory used 0 objects 1"
    );
}

#[test]
fn every_call_works_and_nothing_is_left_at_the_end() {
    assert_eq!(say("all calls", Some("ok")), "used 0 objects 0");
}

#[test]
fn the_worker_loads_the_driver_with_the_first_gpu_block() {
    assert_eq!(say("worker", Some("ok")), ".... made true");
    let text = say("worker", Some("init=34"));
    assert!(
        text.starts_with(".... the libcuda that was found is CUDA's stub"),
        "{text}"
    );
}

#[test]
fn nothing_is_loaded_before_the_first_allocation() {
    assert_eq!(say("loaded when", Some("ok")), "false true");
}
