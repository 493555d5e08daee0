//! A PID that is given to another process while it is watched: nothing of the stranger is shown until the user chooses the
//! PID again. The reuse is made with a folder that leads to one real process, then to another.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use alloctop::attach::ProcRoot;
use alloctop::clock::RealClock;
use alloctop::reading::{Reading, WhyKind};
use alloctop::sample::Sample;
use alloctop::sample::bill::{Bill, LineKind};
use alloctop::sample::sampler::{Plan, Sampler, SamplerHandle, Target};
use alloctop::source::{
    DeviceActivity, DeviceIdentity, DeviceMemory, DeviceMonitor, DeviceProcess, MemoryInfoVersion, ProcessKind,
};
use alloctop::units::Bytes;
use alloctop::worker::State;

/// The watched number; no kernel gives it.
const PID: u32 = 4_200_000;

/// A card on which whoever has the number holds 8 bytes.
struct Card;

impl DeviceMonitor for Card {
    fn devices(&mut self) -> Reading<Vec<DeviceIdentity>> {
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
            total: Bytes(100),
            reserved: Reading::Is(Bytes(1)),
            used: Bytes(10),
            free: Bytes(89),
            version: MemoryInfoVersion::V2,
        })
    }
    fn processes(&mut self, _: u32) -> Reading<Vec<DeviceProcess>> {
        Reading::Is(vec![DeviceProcess {
            pid: PID,
            vram: Reading::Is(Bytes(8)),
            kind: ProcessKind::Compute,
        }])
    }
    fn activity(&mut self, _: u32) -> Reading<DeviceActivity> {
        Reading::not_yet()
    }
    fn driver_version(&mut self) -> Reading<String> {
        Reading::not_yet()
    }
}

/// A process that waits.
struct Waiting(Child);

impl Waiting {
    fn start() -> Self {
        // The kernel counts starts in hundredths of a second.
        std::thread::sleep(Duration::from_millis(30));
        Waiting(Command::new("sleep").arg("60").spawn().unwrap())
    }

    fn takes_the_number(&self, root: &Path) {
        let _ = fs::remove_file(root.join(PID.to_string()));
        symlink(format!("/proc/{}", self.0.id()), root.join(PID.to_string())).unwrap();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until(handle: &mut SamplerHandle, is: impl Fn(&Sample) -> bool) -> Sample {
    loop {
        let sample = handle.samples.recv().await.unwrap();
        if is(&sample) {
            return sample;
        }
    }
}

fn says_anothers<T>(reading: &Reading<T>) -> bool {
    reading
        .why()
        .is_some_and(|w| w.kind == WhyKind::Gone && w.text.contains("another one has its number"))
}

fn line(bill: &Bill, kind: LineKind) -> Option<Reading<Bytes>> {
    bill.lines.iter().find(|l| l.kind == kind).map(|l| l.bytes.clone())
}

#[test]
fn nothing_of_a_stranger_is_shown_until_the_pid_is_chosen_again() {
    let root = tempfile::tempdir().unwrap();
    fs::write(
        root.path().join("meminfo"),
        "MemTotal: 4096 kB\nMemAvailable: 2048 kB\n",
    )
    .unwrap();
    let first = Waiting::start();
    first.takes_the_number(root.path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let clock = Arc::new(RealClock::start());
        let own: Option<fn() -> Arc<State>> = None;
        let plan = Plan {
            interval: Duration::from_millis(20),
            target: Target::Process(PID),
            device: 0,
            monitor: Box::new(Card),
            counters: alloctop::source::torch::sources(own, ProcRoot(root.path().into()), clock.clone()),
            proc_root: root.path().into(),
        };
        let mut handle = Sampler::spawn(plan, clock).unwrap();
        let patience = Duration::from_secs(20);
        let test = async {
            let known = |s: &Sample| s.host.value().is_some() && s.vram() == Reading::Is(Bytes(8));
            let sample = until(&mut handle, |s| {
                known(s) && s.counters.why().is_some_and(|w| w.kind != WhyKind::NotYet)
            })
            .await;
            assert!(!says_anothers(&sample.counters), "{:?}", sample.counters);

            let second = Waiting::start();
            drop(first);
            second.takes_the_number(root.path());
            let sample = until(&mut handle, |s| says_anothers(&s.host) && says_anothers(&s.counters)).await;
            assert!(says_anothers(&sample.vram()), "{:?}", sample.vram());
            let bill = Bill::of(&sample);
            assert_eq!(line(&bill, LineKind::Others), Some(Reading::Is(Bytes(8))));
            assert_ne!(line(&bill, LineKind::Process), Some(Reading::Is(Bytes(8))));

            handle.control.set_target(Target::Process(PID));
            let sample = until(&mut handle, |s| known(s) && !says_anothers(&s.counters)).await;
            assert_eq!(sample.pid_on_device(), Some(PID));
            drop(second);
        };
        tokio::time::timeout(patience, test).await.unwrap();
    });
}
