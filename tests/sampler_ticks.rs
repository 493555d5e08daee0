//! The sampler with made-up sources on real threads: stalls, lateness, changes while it runs (AC-10, 17, 19, 35).

mod nvml_library;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alloctop::allocator::stats::DeviceStats;
use alloctop::clock::{Clock, RealClock};
use alloctop::reading::{Reading, WhyKind};
use alloctop::sample::Sample;
use alloctop::sample::bill::{Bill, LineKind};
use alloctop::sample::history::{History, Metric};
use alloctop::sample::sampler::{CounterSource, CountersRead, Plan, Sampler, SamplerHandle, Target};
use alloctop::source::{
    DeviceActivity, DeviceIdentity, DeviceMemory, DeviceMonitor, DeviceProcess, MemoryInfoVersion, ProcessKind,
};
use alloctop::units::Bytes;

/// What the doubles answer; changed by the tests while they run.
#[derive(Default)]
struct Knobs {
    stall_monitor_ms: AtomicU64,
    stall_counters_ms: AtomicU64,
    calls: Mutex<BTreeMap<&'static str, u64>>,
}

impl Knobs {
    fn count(&self, call: &'static str) {
        *self.calls.lock().unwrap().entry(call).or_default() += 1;
    }

    fn calls(&self, call: &str) -> u64 {
        self.calls.lock().unwrap().get(call).copied().unwrap_or(0)
    }

    fn stall(ms: &AtomicU64) {
        std::thread::sleep(Duration::from_millis(ms.load(Ordering::Relaxed)));
    }
}

/// Two devices; on device n every figure is n MiB.
struct Devices(Arc<Knobs>);

fn mib(n: u64) -> Bytes {
    Bytes(n << 20)
}

impl DeviceMonitor for Devices {
    fn devices(&mut self) -> Reading<Vec<DeviceIdentity>> {
        self.0.count("devices");
        Reading::Is(
            (0..2)
                .map(|index| DeviceIdentity {
                    index,
                    uuid: format!("GPU-{index}"),
                    name: "made up".into(),
                    pci: Reading::not_yet(),
                    simulated: true,
                    unified: false,
                })
                .collect(),
        )
    }

    fn memory(&mut self, index: u32) -> Reading<DeviceMemory> {
        self.0.count("memory");
        Knobs::stall(&self.0.stall_monitor_ms);
        let used = u64::from(index) + 10;
        Reading::Is(DeviceMemory {
            total: mib(100),
            reserved: Reading::Is(mib(1)),
            used: mib(used),
            free: mib(99 - used),
            version: MemoryInfoVersion::V2,
        })
    }

    fn processes(&mut self, index: u32) -> Reading<Vec<DeviceProcess>> {
        self.0.count("processes");
        Reading::Is(vec![DeviceProcess {
            pid: std::process::id(),
            vram: Reading::Is(mib(u64::from(index) + 8)),
            kind: ProcessKind::Compute,
        }])
    }

    fn activity(&mut self, _: u32) -> Reading<DeviceActivity> {
        self.0.count("activity");
        Reading::not_yet()
    }

    fn driver_version(&mut self) -> Reading<String> {
        Reading::not_yet()
    }
}

struct Counters(Arc<Knobs>, Target);

impl CounterSource for Counters {
    fn read(&mut self, _shown: Option<&DeviceIdentity>) -> CountersRead {
        Knobs::stall(&self.0.stall_counters_ms);
        let mut stats = DeviceStats::default();
        let live = if self.1 == Target::Own { 1 << 20 } else { 2 << 20 };
        stats.allocated_bytes.all.current = live;
        stats.active_bytes.all.current = live;
        stats.reserved_bytes.all.current = 4 << 20;
        CountersRead {
            counters: Reading::Is(Arc::new(stats)),
            stale: false,
            cuda_index: None,
        }
    }
}

fn start(interval_ms: u64) -> (SamplerHandle, Arc<Knobs>, RealClock) {
    let knobs = Arc::new(Knobs::default());
    let of_counters = knobs.clone();
    let clock = RealClock::start();
    let plan = Plan {
        interval: Duration::from_millis(interval_ms),
        target: Target::Own,
        device: 0,
        monitor: Box::new(Devices(knobs.clone())),
        counters: Box::new(move |target| Box::new(Counters(of_counters.clone(), target))),
        proc_root: "/proc".into(),
    };
    let handle = Sampler::spawn(plan, Arc::new(clock)).unwrap();
    (handle, knobs, clock)
}

fn on_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(30), test)
            .await
            .expect("in time");
    });
}

/// Waits for a sample for which `wanted` holds.
async fn until(handle: &mut SamplerHandle, wanted: impl Fn(&Sample) -> bool) -> Sample {
    loop {
        let sample = handle.samples.recv().await.expect("the sampler runs");
        if wanted(&sample) {
            return sample;
        }
    }
}

fn complete(sample: &Sample) -> bool {
    sample.host.value().is_some() && sample.vram().value().is_some() && sample.counters.value().is_some()
}

#[test]
fn a_sample_holds_every_source_and_its_bill_adds_up() {
    on_runtime(async {
        let (mut handle, knobs, _) = start(20);
        let sample = until(&mut handle, complete).await;
        assert_eq!(sample.pid, std::process::id());
        assert_eq!(sample.vram(), Reading::Is(mib(8)));
        assert_eq!(sample.device.identity.value().unwrap().uuid, "GPU-0");
        assert!(!sample.device.moving);
        let bill = Bill::of(&sample);
        assert_eq!(bill.bytes(LineKind::Context), Reading::Is(mib(4)));
        assert_eq!(bill.unexplained.unwrap().0, 2 << 20);
        let later = until(&mut handle, |s| s.own.cpu_percent.is_some()).await;
        assert!(later.own.rss.unwrap().0 > 0, "AC-19");
        assert!(later.ceiling.value().is_some());
        // Slow things are asked for slowly: a second or two have gone by.
        assert!(knobs.calls("activity") <= 4, "{}", knobs.calls("activity"));
        assert_eq!(knobs.calls("devices"), 1);
    });
}

#[test]
fn a_stalled_monitor_delays_nothing_and_its_figures_show_their_age() {
    on_runtime(async {
        let (mut handle, knobs, clock) = start(20);
        until(&mut handle, complete).await;
        knobs.stall_monitor_ms.store(5000, Ordering::Relaxed);
        let from = clock.now();
        let mut history = History::new();
        let mut ticks = 0;
        let mut oldest = Duration::ZERO;
        let mut latest_late = Duration::ZERO;
        while clock.now().since(from) < Duration::from_millis(1200) {
            let sample = handle.samples.recv().await.unwrap();
            ticks += 1 + sample.lost;
            assert!(sample.host.value().is_some() && sample.counters.value().is_some());
            oldest = oldest.max(sample.at.since(sample.device.at));
            latest_late = latest_late.max(sample.late_by);
            history.push(&sample);
        }
        // 60 ticks are due in this time. The machine may be busy; a stall that blocked would leave one or two.
        assert!(ticks > 40, "{ticks}");
        assert!(oldest > Duration::from_millis(900), "{oldest:?}");
        assert!(history.latest(Metric::Rss).is_some());
        assert!(
            history.latest(Metric::DeviceUsed).is_none(),
            "old figures are a hole in the graph"
        );
        // Ending does not wait for the stalled call either.
        let end = clock.now();
        drop(handle);
        tokio::task::yield_now().await;
        assert!(clock.now().since(end) < Duration::from_millis(500));
    });
}

#[test]
fn a_stalled_library_delays_nothing_either() {
    // The real loading path: the made-up library sleeps in its memory call.
    let fake = nvml_library::Fake::new(&[], "");
    on_runtime(async {
        let clock = RealClock::start();
        let Reading::Is(nvml) = fake.open() else {
            panic!("the made-up library opens")
        };
        let knobs = Arc::new(Knobs::default());
        let plan = Plan {
            interval: Duration::from_millis(20),
            target: Target::Own,
            device: 0,
            monitor: Box::new(nvml),
            counters: Box::new(move |target| Box::new(Counters(knobs.clone(), target))),
            proc_root: "/proc".into(),
        };
        let mut handle = Sampler::spawn(plan, Arc::new(clock)).unwrap();
        until(&mut handle, |s| s.device.memory.value().is_some()).await;
        fake.control("stall_ms=5000");
        let from = clock.now();
        let mut ticks = 0;
        while clock.now().since(from) < Duration::from_millis(600) {
            ticks += 1 + handle.samples.recv().await.unwrap().lost;
        }
        assert!(ticks > 20, "{ticks}");
    });
}

#[test]
fn a_sample_can_be_had_at_once() {
    on_runtime(async {
        let (mut handle, _, clock) = start(10_000);
        until(&mut handle, |_| true).await;
        let from = clock.now();
        handle.control.sample_now();
        let sample = until(&mut handle, |_| true).await;
        assert!(sample.at >= from && clock.now().since(from) < Duration::from_secs(5));
        assert_eq!(sample.lost, 0);
    });
}

#[test]
fn stalled_counters_are_stale_first_and_missing_later() {
    on_runtime(async {
        let (mut handle, knobs, _) = start(50);
        until(&mut handle, |s| complete(s) && !s.counters_stale).await;
        knobs.stall_counters_ms.store(4000, Ordering::Relaxed);
        let stale = until(&mut handle, |s| s.counters_stale).await;
        assert!(stale.counters.value().is_some());
        let missing = until(&mut handle, |s| s.counters.value().is_none()).await;
        assert_eq!(missing.counters.why().unwrap().kind, WhyKind::Late);
        assert!(missing.host.value().is_some());
    });
}

#[test]
fn interval_target_and_device_change_while_it_runs() {
    on_runtime(async {
        let (mut handle, _, _) = start(20);
        until(&mut handle, complete).await;
        handle.control.set_device(1);
        let other = until(&mut handle, |s| s.device.identity.value().is_some_and(|i| i.index == 1)).await;
        assert_eq!(other.vram(), Reading::Is(mib(9)));
        handle.control.set_interval(Duration::from_millis(1));
        let fast = until(&mut handle, |s| s.interval != Duration::from_millis(20)).await;
        assert_eq!(fast.interval, Duration::from_millis(10), "clamped");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        handle.control.set_target(Target::Process(child.id()));
        let theirs = until(&mut handle, |s| {
            s.pid == child.id() && s.host.value().is_some() && s.counters.value().is_some()
        })
        .await;
        assert_eq!(theirs.counters.value().unwrap().allocated_bytes.all.current, 2 << 20);
        // The driver's list is whole and it is not in it: it holds nothing.
        assert_eq!(theirs.vram(), Reading::Is(mib(0)));
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = until(&mut handle, |s| s.host.value().is_none()).await;
        assert_eq!(gone.host.why().unwrap().kind, WhyKind::Gone, "AC-10");
        handle.control.set_device(9);
        let none = until(&mut handle, |s| {
            s.device.identity.why().is_some_and(|w| w.kind == WhyKind::Absent)
        })
        .await;
        assert!(none.device.identity.why().unwrap().text.contains("no GPU 9"));
    });
}

#[test]
fn samples_that_nobody_takes_are_counted() {
    on_runtime(async {
        let (mut handle, _, _) = start(10);
        until(&mut handle, complete).await;
        // The queue holds 64: one and a half seconds fill it more than twice.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let counted = until(&mut handle, |s| s.lost > 0).await;
        assert!(counted.lost > 20, "{}", counted.lost);
    });
}

#[test]
fn the_process_table_is_collected_only_when_it_is_shown() {
    on_runtime(async {
        let (mut handle, knobs, _) = start(20);
        until(&mut handle, complete).await;
        assert!(handle.table.borrow().is_none());
        handle.control.set_table(true);
        for _ in 0..200 {
            until(&mut handle, |_| true).await;
            if handle.table.borrow().is_some() {
                break;
            }
        }
        let table = handle.table.borrow().clone().unwrap();
        let own = table.rows.iter().find(|r| r.pid == std::process::id()).unwrap();
        assert_eq!(own.devices.len(), 2, "both devices are surveyed");
        assert_eq!(own.vram().value().copied(), Some(mib(17)));
        assert!(knobs.calls("processes") > 0);
    });
}
