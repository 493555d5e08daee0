//! What attaching costs (issue 3): one read of one process at most 20 us, and 64 attached processes read ten times a
//! second, surveyed once a second, at most 2 % of a core. Synthetic targets, the real system call.
//!
//! Run with `cargo bench --bench attach`; without `--bench` (as `cargo test --benches` does) it only shows that it runs.

#[path = "../tests/attach_target/mod.rs"]
mod attach_target;

use std::time::{Duration, Instant};

use alloctop::attach::{Attached, ProcRoot, Search};
use attach_target::{Plan, Target};

/// CPU time of this thread, which does all the work here.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let nanos = text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    Duration::from_nanos(nanos)
}

/// Wall time a call: the median of `rounds` batches.
fn time(rounds: usize, batch: u32, mut f: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            (0..batch).for_each(|_| f());
            start.elapsed() / batch
        })
        .collect();
    times.sort_unstable();
    times[rounds / 2]
}

fn main() {
    let measured = std::env::args().any(|a| a == "--bench");
    let (rounds, batch) = if measured { (101, 500) } else { (3, 10) };
    let one = |plan: &Plan| {
        let mut target = Target::initialised(plan);
        target.say("seq 1000");
        let attached = target.attach();
        (target, attached)
    };
    let mut ok = true;
    let mut report = |what: &str, took: Duration, bound: Option<Duration>| {
        let verdict = match bound {
            Some(bound) if took > bound => {
                ok = false;
                format!("  ABOVE {bound:?}")
            }
            Some(bound) => format!("  (bound {bound:?})"),
            None => String::new(),
        };
        println!("{what:<52} {took:>10.2?}{verdict}");
    };

    for (what, devices, pools) in [
        ("1 device", 1, 0),
        ("1 device, 2 private pools", 1, 2),
        ("8 devices", 8, 0),
    ] {
        let plan = Plan {
            devices,
            private_pools: pools,
            ..Plan::release(215)
        };
        let (target, mut attached) = one(&plan);
        let took = time(rounds, batch, || assert!(attached.read().value().is_some()));
        report(&format!("read, {what}"), took, Some(Duration::from_micros(20)));
        let took = time(rounds, 10, || attached.survey());
        report(&format!("survey, {what}"), took, None);
        let took = time(rounds, 1, || drop(target.attach()));
        report(&format!("find, {what}"), took, None);
    }
    let waiting = Target::loaded(&Plan::release(211));
    let mut search = Search::default();
    let took = time(rounds, 10, || {
        assert!(search.find(&ProcRoot::default(), waiting.pid()).value().is_none());
    });
    report("search again, CUDA not initialised", took, None);

    let (processes, seconds) = if measured { (64, 5) } else { (4, 1) };
    let mut all: Vec<(Target, Attached)> = (0..processes).map(|_| one(&Plan::release(211))).collect();
    let (start, before) = (Instant::now(), cpu());
    for tick in 0..10 * seconds {
        for (n, (_, attached)) in all.iter_mut().enumerate() {
            assert!(attached.read().value().is_some());
            // Once a second each, spread over the ticks.
            if n as u32 % 10 == tick % 10 {
                attached.survey();
            }
        }
        let next = Duration::from_millis(100) * (tick + 1);
        std::thread::sleep(next.saturating_sub(start.elapsed()));
    }
    let share = cpu().saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
    println!("{processes} processes at 10 Hz, surveyed at 1 Hz: {share:.2} % of a core  (bound 2 %)");
    assert!(!measured || (ok && share <= 2.0), "a bound is exceeded");
}
