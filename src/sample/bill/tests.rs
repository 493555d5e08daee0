use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::allocator::stats::StatArray;
use crate::clock::Moment;
use crate::source::{DeviceMemory, DeviceProcess, ProcessKind};

const PID: u32 = 100;

fn bytes(n: u64) -> Reading<Bytes> {
    Reading::Is(Bytes(n))
}

fn device(memory: DeviceMemory, processes: Vec<(u32, Reading<Bytes>)>) -> DeviceSample {
    DeviceSample {
        at: Moment::default(),
        took: Duration::ZERO,
        identity: Reading::not_yet(),
        memory: Reading::Is(memory),
        processes: Reading::Is(
            processes
                .into_iter()
                .map(|(pid, vram)| DeviceProcess {
                    pid,
                    vram,
                    kind: ProcessKind::Compute,
                })
                .collect(),
        ),
        moving: false,
        activity: Reading::not_yet(),
        fleet: Reading::not_yet(),
    }
}

fn v2(total: u64, reserved: u64, used: u64) -> DeviceMemory {
    DeviceMemory {
        total: Bytes(total),
        reserved: bytes(reserved),
        used: Bytes(used),
        free: Bytes(total - reserved - used),
        version: MemoryInfoVersion::V2,
    }
}

fn stats(allocated: i64, active: i64, reserved: i64) -> DeviceStats {
    let all = |n| {
        let mut array = StatArray::default();
        array.all.current = n;
        array
    };
    DeviceStats {
        allocated_bytes: all(allocated),
        active_bytes: all(active),
        reserved_bytes: all(reserved),
        ..DeviceStats::default()
    }
}

const TOTAL: u64 = 150_754_820_096;
const DRIVER: u64 = 644_939_776;

/// The rows of users.md section 1, measured on an H200: (v1 used, process, reserved, live, context, unexplained).
#[test]
fn the_measured_rows_of_an_h200() {
    for (used_v1, process, reserved, live, context, unexplained) in [
        (644_939_776, None, 0, 0, 0, 0),
        (648_347_648, None, 0, 0, 0, 3_407_872),
        (1_199_439_872, Some(545_259_520), 2_097_152, 512, 543_162_368, 9_240_576),
        (1_197_342_720, Some(543_162_368), 0, 0, 543_162_368, 9_240_576),
        (
            2_094_923_776,
            Some(1_440_743_424),
            801_112_064,
            800_000_000,
            639_631_360,
            9_240_576,
        ),
        (
            2_094_923_776,
            Some(1_440_743_424),
            801_112_064,
            0,
            639_631_360,
            9_240_576,
        ),
        (1_293_811_712, Some(639_631_360), 0, 0, 639_631_360, 9_240_576),
        (
            2_164_129_792,
            Some(1_509_949_440),
            801_112_064,
            167_772_160,
            708_837_376,
            9_240_576,
        ),
    ] {
        let list = process.map(|n| (PID, bytes(n))).into_iter().collect();
        let device = device(v2(TOTAL, DRIVER, used_v1 - DRIVER), list);
        let bill = Bill::of_process(&device, PID, &Reading::Is(&stats(live, live, reserved)));
        assert_eq!(bill.bytes(LineKind::Context), bytes(context));
        assert_eq!(bill.bytes(LineKind::Live), bytes(live as u64));
        assert_eq!(bill.bytes(LineKind::Cache), bytes((reserved - live) as u64));
        assert_eq!(bill.bytes(LineKind::Others), bytes(0));
        assert_eq!(bill.unexplained, Some(SignedBytes(unexplained)));
    }
}

#[test]
fn an_old_driver_leaves_its_own_line_and_the_remainder_unknown() {
    let memory = DeviceMemory {
        total: Bytes(1000),
        reserved: bytes(7),
        used: Bytes(300),
        free: Bytes(700),
        version: MemoryInfoVersion::V1,
    };
    let device = device(memory, vec![(PID, bytes(200))]);
    let bill = Bill::of_process(&device, PID, &Reading::Is(&stats(10, 20, 50)));
    assert_eq!(bill.unknown().collect::<Vec<_>>(), [LineKind::Driver]);
    assert!(
        bill.bytes(LineKind::Driver)
            .why()
            .unwrap()
            .text
            .contains("incl. driver")
    );
    assert_eq!(bill.unexplained, None);
    assert_eq!(bill.rest(), Some(SignedBytes(100)), "driver and unexplained together");
}

#[test]
fn without_counters_the_process_is_one_line_and_the_sum_still_holds() {
    let device = device(v2(1000, 100, 500), vec![(PID, bytes(300)), (7, bytes(150))]);
    let why = Why::new(WhyKind::Absent, "no torch");
    let bill = Bill::of_process(&device, PID, &Reading::Missing(why.clone()));
    assert_eq!(bill.bytes(LineKind::Process), bytes(300));
    assert_eq!(bill.bytes(LineKind::Others), bytes(150));
    assert_eq!(bill.unexplained, Some(SignedBytes(50)));
    assert_eq!(bill.unsplit, Some(why));
}

#[test]
fn a_neighbour_with_hidden_bytes_makes_others_unknown_and_nothing_else() {
    let hidden = Reading::missing(WhyKind::Refused, "not given");
    let device = device(v2(1000, 100, 500), vec![(PID, bytes(300)), (7, hidden)]);
    let bill = Bill::of_process(&device, PID, &Reading::Is(&stats(1, 2, 3)));
    assert_eq!(bill.unknown().collect::<Vec<_>>(), [LineKind::Others]);
    assert_eq!(bill.bytes(LineKind::Context), bytes(297));
    assert_eq!(bill.unexplained, None);
}

#[test]
fn a_pool_of_a_process_that_is_not_listed_is_not_counted_twice() {
    // In a container the list holds host PIDs: our bytes are in it under a number that we do not know.
    let device = device(v2(1000, 100, 500), vec![(4711, bytes(400))]);
    let bill = Bill::of_process(&device, PID, &Reading::Is(&stats(100, 100, 200)));
    assert_eq!(
        bill.unknown().collect::<Vec<_>>(),
        [LineKind::Others, LineKind::Context]
    );
    assert_eq!(bill.unexplained, None);
}

#[test]
fn a_process_with_two_kinds_of_context_is_counted_once() {
    let mut device = device(
        v2(1000, 100, 500),
        vec![(PID, bytes(300)), (7, bytes(150)), (7, bytes(150))],
    );
    if let Reading::Is(list) = &mut device.processes {
        list[2].kind = ProcessKind::Graphics;
    }
    let bill = Bill::of_process(&device, PID, &Reading::Is(&stats(0, 0, 0)));
    assert_eq!(bill.bytes(LineKind::Others), bytes(150));
}

#[test]
fn counters_that_contradict_each_other_are_not_shown() {
    let device = device(v2(1000, 100, 500), vec![(PID, bytes(300))]);
    for wrong in [stats(5, 4, 9), stats(1, 9, 8), stats(-1, 4, 9)] {
        let bill = Bill::of_process(&device, PID, &Reading::Is(&wrong));
        assert_eq!(bill.unsplit.map(|w| w.kind), Some(WhyKind::Impossible));
    }
    let less = Bill::of_process(&device, PID, &Reading::Is(&stats(0, 0, 301)));
    assert_eq!(less.bytes(LineKind::Context).why().unwrap().kind, WhyKind::Impossible);
}

fn reading() -> impl Strategy<Value = Reading<Bytes>> {
    prop_oneof![
        8 => any::<u64>().prop_map(|n| Reading::Is(Bytes(n))),
        1 => Just(Reading::missing(WhyKind::Refused, "no")),
    ]
}

proptest! {
    /// Whatever the sources say: the lines and the remainder sum to the total exactly, or the remainder is unknown and the
    /// bill names the unknown lines.
    #[test]
    fn the_lines_always_sum_to_the_total(
        total in any::<u64>(),
        (reserved, used, free) in (reading(), any::<u64>(), any::<u64>()),
        v1 in any::<bool>(),
        list in proptest::collection::vec((95u32..105, reading()), 0..12),
        (allocated, active, pool) in (any::<i64>(), any::<i64>(), any::<i64>()),
        nested in any::<bool>(),
        known in any::<bool>(),
    ) {
        let version = if v1 { MemoryInfoVersion::V1 } else { MemoryInfoVersion::V2 };
        let memory = DeviceMemory { total: Bytes(total), reserved, used: Bytes(used), free: Bytes(free), version };
        let device = device(memory, list);
        let mut counts = [allocated, active, pool];
        if nested {
            counts = counts.map(|n| n & i64::from(u32::MAX));
            counts.sort_unstable();
        }
        let counters = stats(counts[0], counts[1], counts[2]);
        let counters = if known { Reading::Is(&counters) } else { Reading::missing(WhyKind::NotYet, "not yet") };
        let bill = Bill::of_process(&device, PID, &counters);
        let lines: i128 = bill.lines.iter().filter_map(|l| l.bytes.value()).map(|b| i128::from(b.0)).sum();
        match bill.unexplained {
            Some(rest) => {
                prop_assert_eq!(lines + rest.0, i128::from(total));
                prop_assert_eq!(bill.unknown().count(), 0);
                prop_assert_eq!(bill.rest(), Some(rest));
            }
            None => prop_assert!(bill.unknown().count() > 0),
        }
    }
}
