//! The real driver on a real card that nobody else uses: run it with ALLOCTOP_TEST_GPU=1, else it skips itself. It takes
//! at most 2 GiB for some seconds and prints what it measured. Its own main program: the experiment starts it once more
//! as its child.

use std::sync::Arc;
use std::time::Duration;

use alloctop::budget::Budget;
use alloctop::clock::{Clock, RealClock};
use alloctop::driver::cuda::{CudaDevice, CudaDriver};
use alloctop::driver::{Driver, DriverError, StreamId};
use alloctop::experiment::{self, Backend, ExperimentOptions, Format};
use alloctop::reading::Reading;
use alloctop::source::DeviceMonitor;
use alloctop::source::host::HostSource;
use alloctop::source::nvml::Nvml;
use alloctop::units::{Bytes, GIB, MIB};
use alloctop::worker::{BackendChoice, BlockKey, Command, Done, Dtype, Outcome, Setup, Shape, Worker};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) == Some(experiment::CHILD) {
        let monitor = || Nvml::open(None).map(|nvml| Box::new(nvml) as Box<dyn DeviceMonitor>);
        let code = experiment::child(&args[2], Box::new(monitor), &mut std::io::stdout()).unwrap();
        std::process::exit(code.into());
    }
    if args.iter().any(|a| a == "--list") {
        return;
    }
    if std::env::var_os("ALLOCTOP_TEST_GPU").is_none() {
        return println!("skipped: ALLOCTOP_TEST_GPU=1 runs this on an idle card");
    }
    let mut nvml = match Nvml::open(None) {
        Reading::Is(nvml) => nvml,
        Reading::Missing(why) => return println!("skipped: {why}"),
    };
    let uuid = match nvml.devices() {
        Reading::Is(devices) if !devices.is_empty() => devices[0].uuid.clone(),
        _ => return println!("skipped: no device"),
    };
    let mut card = Card { nvml, uuid };
    for (name, test) in [
        ("watching loads no libcuda", watching as fn(&mut Card)),
        ("every driver call", calls),
        ("virtual memory", virtual_memory),
        ("streams and events", streams),
        ("the worker", worker),
        ("the experiment", run_experiment),
    ] {
        test(&mut card);
        println!("test {name} ... ok");
    }
}

struct Card {
    nvml: Nvml,
    uuid: String,
}

impl Card {
    /// What NVML charges to this process; `None` if it is not in the list.
    fn mine(&mut self) -> Option<u64> {
        let list = self.nvml.processes(0);
        let me = std::process::id();
        let entry = list.value().and_then(|l| l.iter().find(|p| p.pid == me));
        entry.and_then(|p| p.vram.value().map(|b| b.0))
    }

    fn used(&mut self) -> u64 {
        self.nvml.memory(0).value().map(|m| m.used.0).unwrap()
    }

    fn driver(&self) -> CudaDriver {
        CudaDriver::new(CudaDevice::Uuid(self.uuid.clone()))
    }
}

fn loaded() -> bool {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .contains("libcuda.so")
}

/// AC-18; must run first. The monitor library of driver 580 maps libcuda by itself at its start (seen with LD_DEBUG:
/// "dynamically loaded by libnvidia-ml.so.1"), so only what a driver of ours adds can be looked at: nothing, and no
/// place in the card's list.
fn watching(card: &mut Card) {
    let by_monitor = loaded();
    let driver = card.driver();
    assert_eq!(loaded(), by_monitor);
    assert_eq!(card.mine(), None);
    drop(driver);
}

fn calls(card: &mut Card) {
    let idle = card.used();
    let mut driver = card.driver();
    let total = driver.device_total().unwrap();
    assert_eq!(
        (driver.take_context(), card.mine()),
        (None, None),
        "the total makes no context"
    );
    // What cuInit itself charges to the device (3,407,872 B on an H200) stays until the process ends.
    let ready = card.used();
    let info = driver.mem_info().unwrap();
    assert_eq!(info.total, total);
    let context = driver.take_context().unwrap();
    println!(
        "context: {:?}, process {:?} B, device {} B; first call {:?}",
        context.took,
        card.mine(),
        card.used() - idle,
        driver.take_cost()
    );
    let kernels = card.used();
    let first = driver.alloc(2 * MIB).unwrap();
    driver.fill(first, 512, StreamId(0)).unwrap();
    driver.synchronize(StreamId(0)).unwrap();
    driver.free(first).unwrap();
    println!(
        "first fill: {} B more; {:?}",
        card.used() as i64 - kernels as i64,
        driver.take_cost()
    );
    for mib in [2, 20, 764] {
        let before = card.used();
        let address = driver.alloc(mib * MIB).unwrap();
        let alloc = driver.take_cost();
        assert_eq!(card.used() - before, mib * MIB, "{mib} MiB");
        driver.fill(address, mib * MIB, StreamId(0)).unwrap();
        driver.synchronize(StreamId(0)).unwrap();
        let fill = driver.take_cost();
        assert_eq!(card.used() - before, mib * MIB, "{mib} MiB after writing it");
        driver.free(address).unwrap();
        println!(
            "{mib} MiB at {address:#x}: alloc {alloc:?}, fill {fill:?}, free {:?}",
            driver.take_cost()
        );
        assert_eq!(card.used(), before);
    }
    // Every kind of length and alignment uses a kernel that is loaded already, so that a later step sees no growth.
    let before = card.used();
    let address = driver.alloc(4 * MIB).unwrap();
    for size in [1, 2, 3, 512, 513, 1023, 4096, MIB + 3] {
        driver.fill(address + size % 7, size, StreamId(0)).unwrap();
    }
    driver.synchronize(StreamId(0)).unwrap();
    driver.free(address).unwrap();
    println!("fills of other sizes: {} B more", card.used() as i64 - before as i64);
    assert_eq!(driver.alloc(1 << 42), Err(DriverError::OutOfMemory));
    assert!(matches!(driver.free(0x1234), Err(DriverError::Failed { code: 1, .. })));
    drop(driver);
    assert_eq!((card.used(), card.mine()), (ready, None), "the context is gone");
}

fn virtual_memory(card: &mut Card) {
    let mut driver = card.driver();
    let total = driver.device_total().unwrap();
    let size = (total + total / 8) / (20 * MIB) * (20 * MIB);
    let range = driver.reserve(size).unwrap();
    let before = card.used();
    driver.map(range, 20 * MIB, 3).unwrap();
    println!("map of 3 x 20 MiB at {range:#x}: {:?}", driver.take_cost());
    assert_eq!(card.used() - before, 60 * MIB);
    driver.fill(range, 60 * MIB, StreamId(0)).unwrap();
    driver.synchronize(StreamId(0)).unwrap();
    assert!(driver.map(range + 40 * MIB, 20 * MIB, 1).is_err(), "mapped already");
    let mapped = card.used();
    driver.unmap(range + 20 * MIB, 20 * MIB, 1).unwrap();
    assert_eq!(mapped - card.used(), 20 * MIB);
    driver.map(range + 20 * MIB, 20 * MIB, 1).unwrap();
    driver.unmap(range, 20 * MIB, 3).unwrap();
    driver.unreserve(range, size).unwrap();
    assert_eq!(mapped - card.used(), 60 * MIB);
}

fn streams(card: &mut Card) {
    let mut driver = card.driver();
    let side = driver.new_stream().unwrap();
    driver.keep_busy(side, Duration::from_millis(300)).unwrap();
    let event = driver.record_event(side).unwrap();
    assert_eq!(driver.event_done(event), Ok(false));
    let idle = driver.record_event(StreamId(0)).unwrap();
    driver.synchronize(StreamId(0)).unwrap();
    assert_eq!(
        driver.event_done(idle),
        Ok(true),
        "the default stream does not wait for it"
    );
    driver.take_cost();
    driver.wait_event(event).unwrap();
    assert!(driver.take_cost() > Duration::from_millis(100));
    // Left busy for a minute: the end does not wait for it.
    driver.keep_busy(side, Duration::from_mins(1)).unwrap();
    let clock = RealClock::start();
    drop(driver);
    assert!(clock.now().0 < Duration::from_secs(10));
}

fn run(worker: &mut Worker, command: Command) -> Outcome {
    assert!(worker.send(command));
    let outcome = worker.outcomes.blocking_recv().unwrap();
    println!(
        "{:?} -> {:?}; took {:?}, calls {:?}, context {:?}",
        outcome.command,
        outcome.result,
        outcome.took,
        outcome
            .calls
            .iter()
            .map(|c| (c.name, c.size, c.took))
            .collect::<Vec<_>>(),
        outcome.first_use
    );
    outcome
}

fn worker(card: &mut Card) {
    let idle = card.used();
    let clock: Arc<dyn Clock> = Arc::new(RealClock::start());
    let me = std::process::id();
    let budget = Budget::new(
        Some(Bytes(2 * GIB)),
        Box::new(move || HostSource::new("/proc").ceiling(me)),
    );
    let backend = BackendChoice::Cuda(CudaDevice::Uuid(card.uuid.clone()));
    let mut worker = Worker::start(backend, Setup::default(), budget, clock, Box::new(|| {}));
    let zeros = || Command::AllocGpu {
        shape: Shape::default(),
        dtype: Dtype::Float32,
    };
    assert!(run(&mut worker, zeros()).first_use.is_some());
    run(&mut worker, Command::DeleteAll);
    assert!(matches!(
        run(&mut worker, zeros()).result,
        Ok(Done::Made { cached: true, .. })
    ));
    run(&mut worker, Command::BusyStream);
    let pending = run(&mut worker, Command::RecordAndDelete(BlockKey(2)));
    assert!(matches!(pending.result, Ok(Done::Deleted { pending: 1, .. })));
    let before = card.used();
    let flushed = run(&mut worker, Command::Flush);
    assert!(matches!(
        flushed.result,
        Ok(Done::Flushed {
            returned: Bytes(801_112_064),
            kept: Bytes(0)
        })
    ));
    assert_eq!(before - card.used(), 801_112_064);
    assert_eq!(run(&mut worker, Command::OutOfMemory).after.num_ooms, 1);
    let conf = "expandable_segments:True".to_owned();
    assert!(
        run(&mut worker, Command::Reconfigure { conf, torch: None })
            .result
            .is_ok()
    );
    let before = card.used();
    let made = run(&mut worker, zeros());
    assert_eq!((card.used() - before) as i64, made.after.reserved_bytes.all.current);
    run(&mut worker, Command::DeleteAll);
    run(&mut worker, Command::Flush);
    assert_eq!(card.used(), before);
    run(&mut worker, Command::Stream(StreamId(2)));
    assert!(run(&mut worker, zeros()).result.is_ok());
    assert!(run(&mut worker, zeros()).result.is_ok());
    assert!(run(&mut worker, zeros()).result.is_err(), "over the budget");
    drop(worker);
    assert_eq!((card.used(), card.mine()), (idle, None));
}

fn run_experiment(card: &mut Card) {
    for format in [Format::Table, Format::Json] {
        let options = ExperimentOptions {
            backend: Backend::Cuda(card.uuid.clone()),
            shape: Shape::default(),
            dtype: Dtype::Float32,
            format,
            budget: None,
            torch: None,
            conf: String::new(),
            sim: Vec::new(),
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let program = std::env::current_exe().unwrap();
        let code = experiment::run(&options, &program, &mut out, &mut err).unwrap();
        let (out, err) = (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap());
        println!("{out}{err}");
        // Where the PID namespace hides this process from NVML, its VRAM is unknown and the code is 2.
        assert!(
            code == 0 || (code == 2 && out.contains("PID namespace") | err.contains("PID namespace")),
            "{code}"
        );
    }
}
