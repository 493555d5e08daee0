//! The bill on the simulated device: every line equals the simulator's own books, at every step (issue 2, "Bill").

use std::sync::Arc;
use std::time::Duration;

use alloctop::budget::Budget;
use alloctop::clock::{Moment, RealClock};
use alloctop::driver::StreamId;
use alloctop::driver::sim::{SimDevice, SimSpec};
use alloctop::reading::{Reading, WhyKind};
use alloctop::sample::DeviceSample;
use alloctop::sample::bill::{Bill, LineKind};
use alloctop::source::DeviceMonitor;
use alloctop::units::{Bytes, GIB, SignedBytes};
use alloctop::worker::{BackendChoice, BlockKey, Command, Dtype, Setup, Shape, Worker};

const OTHER: u32 = 1;

fn bill(device: &SimDevice, worker: &Worker) -> Bill {
    let mut monitor = device.monitor();
    let sample = DeviceSample {
        at: Moment::default(),
        took: Duration::ZERO,
        identity: monitor.devices().map(|d| d[0].clone()),
        memory: monitor.memory(0),
        processes: monitor.processes(0),
        moving: false,
        activity: monitor.activity(0),
        fleet: Reading::not_yet(),
    };
    let state = worker.latest();
    Bill::of_process(&sample, std::process::id(), &Reading::Is(&state.stats))
}

#[test]
fn every_line_equals_the_simulators_books() {
    let device = SimDevice::new(SimSpec::default());
    let budget = Budget::new(
        None,
        Box::new(|| Reading::missing(WhyKind::Absent, "no host blocks here")),
    );
    let backend = BackendChoice::Sim(device.clone());
    let clock = Arc::new(RealClock::start());
    let mut worker = Worker::start(backend, Setup::default(), budget, clock, Box::new(|| {}));
    let zeros = Command::AllocGpu {
        shape: Shape::default(),
        dtype: Dtype::Float32,
    };
    let small = Command::AllocGpu {
        shape: "70x1000".parse().unwrap(),
        dtype: Dtype::Int8,
    };
    let side = Command::Stream(StreamId(1));
    let mut unexplained = Vec::new();
    for command in [
        None,
        Some(zeros.clone()),
        Some(small.clone()),
        Some(Command::Delete(BlockKey(1))),
        Some(side),
        Some(small),
        Some(Command::BusyStream),
        Some(Command::RecordAndDelete(BlockKey(2))),
        Some(Command::Flush),
        Some(Command::DeleteAll),
        Some(Command::Flush),
        Some(zeros),
    ] {
        if unexplained.len() == 3 {
            device.set_foreign(OTHER, 3 * GIB);
        }
        if let Some(command) = command {
            worker.send(command);
            let outcome = worker.outcomes.blocking_recv().unwrap();
            assert!(outcome.result.is_ok(), "{outcome:?}");
        }
        let (bill, ledger) = (bill(&device, &worker), device.ledger());
        let me = ledger.of(std::process::id()).unwrap_or_default();
        let other = ledger.of(OTHER).map_or(0, |p| p.charged());
        let stats = worker.latest().stats.clone();
        let (live, active) = (stats.allocated_bytes.all.current, stats.active_bytes.all.current);
        for (kind, bytes) in [
            (LineKind::Driver, ledger.driver),
            (LineKind::Others, other),
            (LineKind::Context, me.context + me.kernels),
            (LineKind::Live, live as u64),
            (LineKind::Pending, (active - live) as u64),
            (LineKind::Cache, me.allocated + me.mapped - active as u64),
            (LineKind::Free, ledger.free()),
        ] {
            let seen = bill.bytes(kind);
            // A process that is not in the list has no lines that could be wrong.
            if me.charged() > 0 || !matches!(kind, LineKind::Context) {
                assert_eq!(seen.value(), Some(&Bytes(bytes)), "{kind:?} in {bill:?}");
            }
        }
        if me.charged() > 0 {
            assert_eq!(bill.unexplained, Some(SignedBytes(ledger.unattributed.into())));
        }
        unexplained.push(ledger.unattributed);
    }
    assert_eq!(unexplained[0], 0);
    assert!(
        unexplained[1..].iter().all(|u| *u == 9_240_576),
        "constant once a context exists"
    );
}
