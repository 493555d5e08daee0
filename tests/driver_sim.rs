//! The simulated device against the figures measured on an H200 (users.md section 1, issue 2).

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use alloctop::clock::{Clock, Moment};
use alloctop::driver::sim::{Ledger, SimDevice, SimSpec};
use alloctop::driver::{Driver, DriverError, StreamId};
use alloctop::source::DeviceMonitor;
use alloctop::units::{Bytes, GIB, MIB};

const PID: u32 = 4711;

/// The books always sum to the device's total.
fn check(ledger: &Ledger) {
    let sum = ledger.driver + ledger.used() + ledger.free();
    assert_eq!(sum, ledger.total, "{ledger:?}");
}

/// v1 "used" includes the driver's own part.
fn v1_used(device: &SimDevice) -> u64 {
    let ledger = device.ledger();
    check(&ledger);
    ledger.driver + ledger.used()
}

fn process(device: &SimDevice) -> Option<u64> {
    let list = device.monitor().processes(0);
    list.value()
        .and_then(|l| l.iter().find(|p| p.pid == PID))
        .and_then(|p| p.vram.value().map(|b| b.0))
}

#[test]
fn the_golden_table_of_the_measured_card() {
    let device = SimDevice::new(SimSpec::default());
    let mut driver = device.driver(PID);
    assert_eq!((v1_used(&device), process(&device)), (644_939_776, None));
    assert_eq!(driver.device_total(), Ok(150_109_880_320));
    assert_eq!(process(&device), None, "the total needs no context");

    let first = driver.alloc(2 * MIB).unwrap();
    assert_eq!((v1_used(&device), process(&device)), (1_199_439_872, Some(545_259_520)));
    driver.free(first).unwrap();
    assert_eq!((v1_used(&device), process(&device)), (1_197_342_720, Some(543_162_368)));

    let zeros = driver.alloc(801_112_064).unwrap();
    driver.fill(zeros, 800_000_000, StreamId(0)).unwrap();
    assert_eq!(
        (v1_used(&device), process(&device)),
        (2_094_923_776, Some(1_440_743_424))
    );
    driver.free(zeros).unwrap();
    assert_eq!((v1_used(&device), process(&device)), (1_293_811_712, Some(639_631_360)));

    let memory = device.monitor().memory(0);
    let memory = memory.value().unwrap();
    assert_eq!(memory.total, Bytes(150_754_820_096));
    assert_eq!(memory.reserved.value(), Some(&Bytes(644_939_776)));
    assert_eq!(memory.used.0, v1_used(&device) - 644_939_776);
    assert_eq!(driver.mem_info().unwrap().free, memory.free.0);

    drop(driver);
    assert_eq!((v1_used(&device), process(&device)), (644_939_776, None));
}

#[test]
fn calls_cost_what_was_measured_and_the_context_is_told_apart() {
    let device = SimDevice::new(SimSpec::default());
    let mut driver = device.driver(PID);
    assert_eq!(driver.take_context(), None);
    let address = driver.alloc(764 * MIB).unwrap();
    assert_eq!(driver.take_cost(), Duration::from_micros(224));
    let context = driver.take_context().unwrap();
    assert_eq!(
        (context.bytes, context.took),
        (Some(543_162_368), Duration::from_millis(128))
    );
    assert_eq!(driver.take_context(), None);
    driver.free(address).unwrap();
    assert_eq!(driver.take_cost(), Duration::from_micros(524));
    assert_eq!(driver.take_cost(), Duration::ZERO);
}

#[test]
fn another_process_takes_its_share_and_memory_runs_out() {
    let device = SimDevice::new(SimSpec::default());
    let mut driver = device.driver(PID);
    device.set_foreign(99, 100 * GIB);
    let info = driver.mem_info().unwrap();
    assert_eq!(info.free, info.total - 100 * GIB - 543_162_368 - 9_240_576);
    assert_eq!(driver.alloc(info.free + 1), Err(DriverError::OutOfMemory));
    assert_eq!(driver.alloc(u64::MAX), Err(DriverError::OutOfMemory));
    let rest = info.free / (2 * MIB) * (2 * MIB);
    assert!(driver.alloc(rest).is_ok());
    check(&device.ledger());
    device.set_foreign(99, 0);
    assert_eq!(driver.mem_info().unwrap().free, info.free - rest + 100 * GIB);
    assert_eq!(device.ledger().of(99), None);
}

#[test]
fn a_full_device_refuses_even_the_context() {
    let device = SimDevice::new(SimSpec::default());
    device.set_foreign(99, u64::MAX);
    assert_eq!(device.driver(PID).mem_info(), Err(DriverError::OutOfMemory));
    assert_eq!(process(&device), None);
}

#[test]
fn addresses_are_the_lowest_that_fit() {
    let device = SimDevice::new(SimSpec::bare(100 * MIB));
    let mut driver = device.driver(PID);
    let a = driver.alloc(2 * MIB).unwrap();
    let b = driver.alloc(20 * MIB).unwrap();
    let c = driver.alloc(1).unwrap();
    assert_eq!((a, b, c), (0x7f00_0000_0000, a + 2 * MIB, a + 22 * MIB));
    driver.free(b).unwrap();
    assert_eq!(driver.alloc(30 * MIB), Ok(a + 24 * MIB));
    assert_eq!(driver.alloc(20 * MIB), Ok(b));
    assert!(matches!(driver.free(b + 1), Err(DriverError::Failed { code: 1, .. })));
}

#[test]
fn virtual_memory_is_mapped_all_or_none() {
    let device = SimDevice::new(SimSpec::bare(100 * MIB));
    let mut driver = device.driver(PID);
    let range = driver.reserve(1 << 40).unwrap();
    assert_eq!(range, 0x3000_0000_0000);
    assert_eq!(device.ledger().used(), 0, "addresses are no memory");
    driver.map(range, 20 * MIB, 3).unwrap();
    assert_eq!(device.ledger().of(PID).unwrap().mapped, 60 * MIB);
    assert_eq!(driver.map(range + 60 * MIB, 20 * MIB, 3), Err(DriverError::OutOfMemory));
    assert_eq!(device.ledger().of(PID).unwrap().mapped, 60 * MIB);
    assert!(driver.map(range + 40 * MIB, 20 * MIB, 1).is_err(), "mapped already");
    assert!(driver.unreserve(range, 1 << 40).is_err(), "still mapped");
    driver.fill(range + MIB, 58 * MIB, StreamId(0)).unwrap();
    assert!(
        driver.fill(range + MIB, 60 * MIB, StreamId(0)).is_err(),
        "no memory behind the end"
    );
    driver.unmap(range + 20 * MIB, 20 * MIB, 1).unwrap();
    assert!(driver.fill(range, 60 * MIB, StreamId(0)).is_err(), "a hole");
    assert!(driver.unmap(range, 20 * MIB, 3).is_err());
    driver.unmap(range, 20 * MIB, 1).unwrap();
    driver.unmap(range + 40 * MIB, 20 * MIB, 1).unwrap();
    driver.unreserve(range, 1 << 40).unwrap();
    assert_eq!(device.ledger().used(), 0);
    check(&device.ledger());
}

#[test]
fn an_event_completes_when_the_work_before_it_is_done() {
    let device = SimDevice::new(SimSpec::bare(GIB));
    let mut driver = device.driver(PID);
    let side = driver.new_stream().unwrap();
    assert_ne!(side, StreamId(0));
    let idle = driver.record_event(side).unwrap();
    assert_eq!(driver.event_done(idle), Ok(true));
    assert!(driver.event_done(idle).is_err(), "a completed event is forgotten");

    driver.keep_busy(side, Duration::from_secs(2)).unwrap();
    let event = driver.record_event(side).unwrap();
    device.advance(Duration::from_millis(1_999));
    assert_eq!(driver.event_done(event), Ok(false));
    device.advance(Duration::from_millis(1));
    assert_eq!(driver.event_done(event), Ok(true));

    device.hold(PID, side);
    let held = driver.record_event(side).unwrap();
    device.advance(Duration::from_hours(1));
    assert_eq!(driver.event_done(held), Ok(false));
    device.release(PID, side);
    assert_eq!(driver.event_done(held), Ok(true));

    driver.keep_busy(side, Duration::from_secs(2)).unwrap();
    let event = driver.record_event(side).unwrap();
    driver.take_cost();
    driver.wait_event(event).unwrap();
    assert_eq!(
        driver.take_cost(),
        Duration::from_secs(2),
        "waiting costs what was left"
    );
    driver.synchronize(side).unwrap();
    assert_eq!(driver.take_cost(), Duration::ZERO);
}

#[test]
fn streams_follow_the_clock_that_is_given() {
    struct Hand(Mutex<Duration>);
    impl Clock for Hand {
        fn now(&self) -> Moment {
            Moment(*self.0.lock().unwrap())
        }
    }
    let clock = Arc::new(Hand(Mutex::new(Duration::from_secs(10))));
    let device = SimDevice::with_clock(SimSpec::bare(GIB), clock.clone());
    let mut driver = device.driver(PID);
    driver.keep_busy(StreamId(0), Duration::from_secs(5)).unwrap();
    let event = driver.record_event(StreamId(0)).unwrap();
    *clock.0.lock().unwrap() = Duration::from_secs(14);
    assert_eq!(driver.event_done(event), Ok(false));
    *clock.0.lock().unwrap() = Duration::from_secs(15);
    assert_eq!(driver.event_done(event), Ok(true));
}
