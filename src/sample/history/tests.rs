use std::sync::Arc;

use super::*;
use crate::allocator::stats::DeviceStats;
use crate::reading::WhyKind;
use crate::sample::{DeviceSample, OwnCost};
use crate::source::{DeviceMemory, DeviceProcess, HostMemory, MemoryInfoVersion, ProcessKind};

fn moment(ms: u64) -> Moment {
    Moment(Duration::from_millis(ms))
}

fn unknown<T>() -> Reading<T> {
    Reading::missing(WhyKind::Absent, "none")
}

/// A sample every 100 ms in which all curves show `value`.
fn sample(ms: u64, value: u64) -> Sample {
    let mut stats = DeviceStats::default();
    stats.allocated_bytes.all.current = value as i64;
    stats.reserved_bytes.all.current = value as i64;
    Sample {
        at: moment(ms),
        late_by: Duration::ZERO,
        lost: 0,
        interval: Duration::from_millis(100),
        pid: 5,
        host: Reading::Is(HostMemory {
            rss: Bytes(value),
            anon: unknown(),
            file: unknown(),
            shmem: unknown(),
            high_water: unknown(),
            swap: unknown(),
        }),
        ceiling: unknown(),
        device: Arc::new(DeviceSample {
            at: moment(ms),
            took: Duration::ZERO,
            identity: unknown(),
            memory: Reading::Is(DeviceMemory {
                total: Bytes(u64::MAX / 2),
                reserved: unknown(),
                used: Bytes(value),
                free: Bytes(0),
                version: MemoryInfoVersion::V2,
            }),
            processes: Reading::Is(vec![DeviceProcess {
                pid: 5,
                vram: Reading::Is(Bytes(value)),
                kind: ProcessKind::Compute,
            }]),
            moving: false,
            activity: unknown(),
            fleet: unknown(),
        }),
        counters: Reading::Is(Arc::new(stats)),
        counters_stale: false,
        cuda_index: None,
        nested: false,
        own: OwnCost::default(),
    }
}

/// The tick of a long run, without its dear parts.
fn long_run(history: &mut History, from_ms: u64, ticks: u64, value: impl Fn(u64) -> u64) {
    run_every(100, history, from_ms, ticks, value);
}

fn run_every(interval: u64, history: &mut History, from_ms: u64, ticks: u64, value: impl Fn(u64) -> u64) {
    let mut s = sample(from_ms, 0);
    s.interval = Duration::from_millis(interval);
    for n in 0..ticks {
        let ms = from_ms + n * interval;
        s.at = moment(ms);
        Arc::make_mut(&mut s.device).at = s.at;
        if let Reading::Is(host) = &mut s.host {
            host.rss = Bytes(value(ms));
        }
        history.push(&s);
    }
}

fn maxima(history: &History, from: u64, to: u64, columns: usize) -> Vec<Option<u64>> {
    let series = history.series(Metric::Rss, moment(from), moment(to), columns);
    series.into_iter().map(|c| c.map(|c| c.max.0)).collect()
}

#[test]
fn a_column_knows_its_smallest_largest_and_last_value() {
    let mut h = History::new();
    for (n, v) in [10, 30, 20, 40, 5].into_iter().enumerate() {
        h.push(&sample(n as u64 * 100, v));
    }
    for metric in Metric::ALL {
        let one = h.series(metric, moment(0), moment(500), 1);
        assert_eq!(
            one,
            [Some(Column {
                min: Bytes(5),
                max: Bytes(40),
                last: Bytes(5)
            })]
        );
    }
    assert_eq!(maxima(&h, 0, 500, 5), [Some(10), Some(30), Some(20), Some(40), Some(5)]);
    assert_eq!(
        maxima(&h, 0, 500, 10)[..4],
        [Some(10), Some(10), Some(30), Some(30)],
        "a value holds to the next"
    );
    assert_eq!(
        maxima(&h, 400, 900, 5),
        [Some(5), None, None, None, None],
        "the future is empty"
    );
    assert_eq!(maxima(&h, 0, 0, 3).len(), 3);
    assert_eq!(maxima(&h, 0, 500, 0), []);
}

#[test]
fn lost_ticks_and_unknown_values_leave_holes() {
    let mut h = History::new();
    h.push(&sample(0, 1));
    let mut after = sample(1000, 2);
    after.lost = 9;
    h.push(&after);
    let mut dark = sample(1100, 3);
    dark.host = unknown();
    h.push(&dark);
    h.push(&sample(1200, 4));
    let shown = maxima(&h, 0, 1300, 13);
    assert_eq!(shown[0], Some(1));
    assert!(shown[1..10].iter().all(Option::is_none));
    assert_eq!(shown[10..], [Some(2), None, Some(4)]);
    // The other curves have no hole where only the host was dark.
    assert!(h.series(Metric::Allocated, moment(1100), moment(1200), 1)[0].is_some());
}

#[test]
fn a_stopped_program_leaves_a_hole_and_a_clock_that_went_back_changes_nothing() {
    let mut h = History::new();
    long_run(&mut h, 0, 50, |_| 7);
    // SIGSTOP for 20 s: no tick is counted as lost by anyone, the moments alone tell.
    long_run(&mut h, 25_000, 50, |_| 8);
    let shown = maxima(&h, 0, 30_000, 30);
    assert!(shown[..5].iter().all(|c| *c == Some(7)));
    assert!(shown[6..25].iter().all(Option::is_none), "{shown:?}");
    assert!(shown[25..].iter().all(|c| *c == Some(8)));
    h.push(&sample(3_000, 99));
    assert_eq!(maxima(&h, 0, 30_000, 30), shown);
    // A jump of a week forward: everything older than a day is gone, nothing breaks.
    let week = 7 * 24 * 3_600_000;
    h.push(&sample(week, 9));
    assert_eq!(maxima(&h, week - 86_400_000, week + 100, 10)[..9], [None; 9]);
    assert_eq!(h.latest(Metric::Rss), Some(Bytes(9)));
}

#[test]
fn a_spike_of_one_sample_is_visible_at_every_zoom() {
    let mut h = History::new();
    let day = 24 * 3_600_000;
    // Ten spikes spread over a day in which every other sample is 1.
    let spikes: Vec<u64> = (1..=10).map(|n| n * (day / 11) / 100 * 100).collect();
    long_run(&mut h, 0, day / 100, |ms| if spikes.contains(&ms) { 1000 } else { 1 });
    for spike in spikes {
        for seconds in [10, 60, 600, 3_600, 6 * 3_600, 24 * 3_600] {
            for columns in [40, 119, 400] {
                let from = spike.saturating_sub(seconds * 500);
                let shown = maxima(&h, from, from + seconds * 1000, columns);
                assert!(
                    shown.contains(&Some(1000)),
                    "spike at {spike}, {seconds} s in {columns} columns"
                );
            }
        }
    }
}

#[test]
fn a_slow_interval_has_no_holes_in_the_fine_tier() {
    let mut h = History::new();
    for n in 0..100 {
        let mut s = sample(n * 10_000, n);
        s.interval = Duration::from_secs(10);
        h.push(&s);
    }
    // Raw rows hold 600 s; the older part comes from the tier of seconds.
    assert!(maxima(&h, 0, 990_000, 99).iter().all(Option::is_some));
    assert!(maxima(&h, 0, 990_000, 990).iter().all(Option::is_some));
}

#[test]
fn memory_stays_flat_over_a_week() {
    let mut h = History::new();
    let day_ticks = 24 * 7_200;
    run_every(500, &mut h, 0, day_ticks, |ms| ms);
    let after_a_day = h.footprint();
    assert!(after_a_day < 1_400_000, "{after_a_day}");
    run_every(500, &mut h, 86_400_000, 6 * day_ticks, |ms| ms);
    for n in 0..5000 {
        h.mark(moment(n), 'g', "x".repeat(1000));
    }
    let grown = h.footprint() - after_a_day;
    assert!(grown < 1 << 20, "{grown}");
    assert_eq!(h.marks().iter().len(), MARK_LIMIT);
}

#[test]
fn the_shortest_interval_is_bounded_too() {
    let mut h = History::new();
    let mut s = sample(0, 1);
    s.interval = Duration::from_millis(10);
    for n in 0..100_000 {
        s.at = moment(n * 10);
        Arc::make_mut(&mut s.device).at = s.at;
        h.push(&s);
    }
    assert!(h.footprint() < 4 << 20, "{}", h.footprint());
    assert!(maxima(&h, 0, 1_000_000, 100).iter().all(Option::is_some));
}

#[test]
fn a_peak_between_two_samples_is_drawn_from_the_allocators_own_mark() {
    let mut h = History::new();
    let with_peak = |ms, value, peak| {
        let mut s = sample(ms, value);
        if let Reading::Is(stats) = &mut s.counters {
            Arc::make_mut(stats).allocated_bytes.all.peak = peak;
        }
        s
    };
    h.push(&with_peak(0, 10, 50));
    h.push(&with_peak(100, 10, 50));
    assert_eq!(
        h.series(Metric::Allocated, moment(0), moment(200), 1)[0].unwrap().max,
        Bytes(10)
    );
    h.push(&with_peak(200, 10, 90));
    assert_eq!(
        h.series(Metric::Allocated, moment(0), moment(300), 1)[0].unwrap().max,
        Bytes(90)
    );
    assert_eq!(h.latest(Metric::Allocated), Some(Bytes(10)));
    assert_eq!(
        h.peak(Metric::Allocated),
        Some(Peak {
            bytes: Bytes(90),
            origin: PeakOrigin::Own
        })
    );
    assert_eq!(h.peak(Metric::Vram).unwrap().origin, PeakOrigin::Sampled);
}

#[test]
fn another_process_starts_new_peaks_and_a_hole() {
    let mut h = History::new();
    h.push(&sample(0, 100));
    let mut other = sample(100, 7);
    other.pid = 6;
    h.push(&other);
    assert_eq!(h.sampled_peak(Metric::Rss), Some(Bytes(7)));
    h.push(&sample(200, 9));
    h.reset_peaks();
    assert_eq!(h.sampled_peak(Metric::Rss), Some(Bytes(9)));
}

#[test]
fn stalled_device_figures_become_a_hole_and_not_a_flat_line() {
    let mut h = History::new();
    let first = sample(0, 5);
    h.push(&first);
    for n in 1..30 {
        let mut s = sample(n * 100, 5);
        s.device = first.device.clone();
        h.push(&s);
    }
    assert!(h.latest(Metric::DeviceUsed).is_none());
    assert_eq!(h.latest(Metric::Rss), Some(Bytes(5)));
}

#[test]
fn marks_are_found_by_time() {
    let mut h = History::new();
    h.mark(moment(300), 'd', "del");
    h.mark(moment(100), 'g', "alloc \x1b[2J");
    h.mark(moment(200), '\n', "x");
    let letters: String = h.marks().iter().map(|m| m.letter).collect();
    assert_eq!(letters, "g?d");
    assert_eq!(h.marks().between(moment(100), moment(300)).count(), 2);
    assert_eq!(h.marks().iter().next().unwrap().text, "alloc ?[2J");
}
