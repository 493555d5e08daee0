//! Reads of a process that changes its counters all the time (allocator-spec 7.7; issue 3): of the reads taken as fresh at
//! most 1 in 10,000 mixes two moments at 2,000,000 operations a second, none at 100,000.

mod attach_target;

use std::time::{Duration, Instant};

use alloctop::reading::{Reading, WhyKind};
use attach_target::{Plan, Target, expected};

/// What a run of reads gave.
#[derive(Debug, Default)]
struct Tally {
    reads: u64,
    fresh: u64,
    torn: u64,
    /// Operations a second that the target reached.
    rate: f64,
}

/// Reads a target at `rate` operations a second until there are `enough` fresh reads or `limit` has passed.
fn reads(release: u32, rate: u64, enough: u64, limit: Duration) -> Tally {
    let plan = Plan {
        private_pools: if release >= 213 { 1 } else { 0 },
        ..Plan::release(release)
    };
    let mut target = Target::initialised(&plan);
    let mut attached = target.attach();
    let start = Instant::now();
    target.say(&format!("run {rate}"));
    let mut tally = Tally::default();
    while tally.fresh < enough && start.elapsed() < limit {
        tally.reads += 1;
        let read = match attached.read() {
            Reading::Is(read) => read,
            // Nothing older to show yet, and a holder of the lock that was put off its core: the answer is to try again.
            Reading::Missing(why) if why.kind == WhyKind::Late => continue,
            Reading::Missing(why) => panic!("{why:?}"),
        };
        let device = &read.devices[0];
        // The first read of a busy target may have nothing older to show; it is not taken as fresh either.
        if device.fresh {
            tally.fresh += 1;
            let n = device.stats.num_alloc_retries as u64;
            tally.torn += u64::from(device.stats != expected(n, &plan));
        }
    }
    let took = start.elapsed();
    let operations: f64 = target.say("stop").parse().unwrap();
    tally.rate = operations / took.as_secs_f64();
    // At rest everything agrees again.
    let Reading::Is(read) = attached.read() else {
        panic!("not read");
    };
    assert!(read.devices[0].fresh);
    assert_eq!(read.devices[0].stats, expected(operations as u64, &plan));
    println!("torch {release} at {rate}: {tally:?}");
    tally
}

/// Reads enough for the bound, fewer in a debug build: one read costs more there.
const ENOUGH: u64 = if cfg!(debug_assertions) { 10_000 } else { 40_000 };

#[test]
fn two_million_operations_a_second() {
    for release in [21, 211, 215] {
        let tally = reads(release, 2_000_000, ENOUGH, Duration::from_secs(5));
        assert!(tally.torn * 10_000 <= tally.fresh, "{tally:?}");
        assert!(tally.fresh > 0, "{tally:?}");
    }
}

#[test]
fn a_hundred_thousand_operations_a_second() {
    for release in [21, 211, 215] {
        let tally = reads(release, 100_000, ENOUGH, Duration::from_secs(5));
        assert_eq!(tally.torn, 0, "{tally:?}");
        // Above 99 % on an idle machine; a target that is put off its core while it holds the lock costs many reads.
        assert!(tally.fresh * 2 >= tally.reads, "{tally:?}");
    }
}

#[test]
fn a_stopped_holder_of_the_lock_leaves_the_last_good_counters() {
    let plan = Plan::release(211);
    let mut target = Target::initialised(&plan);
    target.say("seq 7");
    let mut attached = target.attach();
    assert_eq!(attached.read().value().unwrap().devices[0].stats, expected(7, &plan));
    // Locked, with one counter already changed.
    target.say("poke 0 0 1");
    target.say("poke 0 5 99");
    let device = attached.read().value().unwrap().devices[0].clone();
    assert!(!device.fresh);
    assert_eq!(device.stats, expected(7, &plan));
    target.say("seq 8");
    let device = attached.read().value().unwrap().devices[0].clone();
    assert!(device.fresh);
    assert_eq!(device.stats, expected(8, &plan));
}

#[test]
fn discovery_succeeds_in_a_busy_process() {
    for release in [20, 211, 215] {
        let plan = Plan::release(release);
        let mut target = Target::initialised(&plan);
        target.say("run 2000000");
        for _ in 0..20 {
            assert_eq!(target.attach().shape().unwrap().words(), plan.stats_words());
        }
    }
}
