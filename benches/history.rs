//! The cost of the history: one push, and one series of 120 columns at several zooms over short and long histories. AC-16:
//! the cost of a series depends on the columns and the points in range, not on the history's length.

use std::sync::Arc;
use std::time::Duration;

use alloctop::clock::Moment;
use alloctop::reading::Reading;
use alloctop::sample::history::{History, Metric};
use alloctop::sample::{DeviceSample, OwnCost, Sample};
use alloctop::source::HostMemory;
use alloctop::units::Bytes;

fn main() {
    divan::main();
}

fn sample(tick: u64) -> Sample {
    let at = Moment(Duration::from_millis(tick * 100));
    Sample {
        at,
        late_by: Duration::ZERO,
        lost: 0,
        interval: Duration::from_millis(100),
        pid: 1,
        host: Reading::Is(HostMemory {
            rss: Bytes(tick * 4096),
            anon: Reading::not_yet(),
            file: Reading::not_yet(),
            shmem: Reading::not_yet(),
            high_water: Reading::not_yet(),
            swap: Reading::not_yet(),
        }),
        ceiling: Reading::not_yet(),
        device: Arc::new(DeviceSample::not_yet()),
        counters: Reading::not_yet(),
        counters_stale: false,
        cuda_index: None,
        nested: false,
        own: OwnCost::default(),
    }
}

fn history_of(seconds: u64) -> History {
    let mut history = History::new();
    for tick in 0..seconds * 10 {
        history.push(&sample(tick));
    }
    history
}

#[divan::bench]
fn push(bencher: divan::Bencher) {
    let mut history = history_of(60);
    let mut tick = 600;
    bencher.bench_local(|| {
        history.push(&sample(tick));
        tick += 1;
    });
}

/// (length of the history, zoom), in seconds.
#[divan::bench(args = [(60, 60), (3_600, 60), (172_800, 60), (3_600, 600), (172_800, 600), (172_800, 3_600), (172_800, 86_400)])]
fn series(bencher: divan::Bencher, (length, zoom): (u64, u64)) {
    let history = history_of(length);
    let to = Moment(Duration::from_secs(length));
    let from = Moment(Duration::from_secs(length - zoom));
    bencher.bench_local(|| history.series(Metric::Rss, from, to, 120));
}
