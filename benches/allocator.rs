//! What the allocator costs, as ratios measured in one run (issue 4): cached allocate+free against a BTreeSet pair, growth
//! from 1,000 to 1,000,000 blocks, replayed events a second. Prints the figures; exits 1 when one is out of bounds.

use std::collections::{BTreeSet, HashMap};
use std::hint::black_box;
use std::io::Read;
use std::time::{Duration, Instant};

use alloctop::allocator::{Allocator, Settings};
use alloctop::driver::{Driver, DriverError, EventId, MemInfo, StreamId};

/// A driver that costs nothing: addresses only go up.
struct Bump {
    next: u64,
    calls: u64,
}

impl Driver for Bump {
    fn alloc(&mut self, size: u64) -> Result<u64, DriverError> {
        self.calls += 1;
        self.next += size.next_multiple_of(2 << 20);
        Ok(self.next - size.next_multiple_of(2 << 20))
    }

    fn free(&mut self, _: u64) -> Result<(), DriverError> {
        Ok(())
    }

    fn mem_info(&mut self) -> Result<MemInfo, DriverError> {
        Ok(MemInfo {
            free: u64::MAX,
            total: u64::MAX,
        })
    }

    fn device_total(&mut self) -> Result<u64, DriverError> {
        Ok(1 << 40)
    }

    fn reserve(&mut self, size: u64) -> Result<u64, DriverError> {
        self.alloc(size)
    }

    fn unreserve(&mut self, _: u64, _: u64) -> Result<(), DriverError> {
        Ok(())
    }

    fn map(&mut self, _: u64, _: u64, _: u64) -> Result<(), DriverError> {
        Ok(())
    }

    fn unmap(&mut self, _: u64, _: u64, _: u64) -> Result<(), DriverError> {
        Ok(())
    }

    fn record_event(&mut self, _: StreamId) -> Result<EventId, DriverError> {
        Ok(EventId(0))
    }

    fn event_done(&mut self, _: EventId) -> Result<bool, DriverError> {
        Ok(true)
    }

    fn wait_event(&mut self, _: EventId) -> Result<(), DriverError> {
        Ok(())
    }

    fn synchronize(&mut self, _: StreamId) -> Result<(), DriverError> {
        Ok(())
    }

    fn take_cost(&mut self) -> Duration {
        Duration::ZERO
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// Sizes as a model has them: many small ones, some of a few MiB, a few of their own segment.
    fn size(&mut self) -> u64 {
        match self.below(16) {
            0..=9 => self.below(64 << 10) + 1,
            10..=13 => self.below(1 << 20) + 1,
            14 => self.below(9 << 20) + (1 << 20),
            _ => self.below(30 << 20) + (10 << 20),
        }
    }

    fn stream(&mut self) -> StreamId {
        StreamId(self.below(3) * 4096)
    }
}

fn allocator() -> Allocator<Bump> {
    Allocator::new(
        Bump {
            next: 1 << 40,
            calls: 0,
        },
        Settings::default(),
    )
}

/// Nanoseconds of one allocate+free with `blocks` live ones, and driver calls for each.
fn churn(blocks: usize, operations: u64) -> (f64, f64) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut allocator = allocator();
    let mut live: Vec<u64> = (0..blocks)
        .map(|_| allocator.malloc(random.size(), random.stream()).unwrap())
        .collect();
    let mut events = Vec::with_capacity(1 << 16);
    let mut turn = |allocator: &mut Allocator<Bump>, operations: u64| {
        for n in 0..operations {
            let at = random.below(blocks as u64) as usize;
            allocator.free(live[at]).unwrap();
            live[at] = allocator.malloc(random.size(), random.stream()).unwrap();
            if n % 256 == 0 {
                events.clear();
                allocator.drain_events(&mut events);
            }
        }
    };
    // Until the cache fits the load: from then on the driver is hardly called.
    turn(&mut allocator, (blocks as u64 * 12).max(operations));
    let before = allocator.driver().calls;
    let start = Instant::now();
    turn(&mut allocator, operations);
    let took = start.elapsed();
    allocator.check().unwrap();
    let calls = allocator.driver().calls - before;
    (
        took.as_nanos() as f64 / operations as f64,
        calls as f64 / operations as f64,
    )
}

/// Nanoseconds of a remove and an insert in a set of `blocks` keys such as PyTorch's (stream, size, address).
fn set_pair(blocks: usize, operations: u64) -> f64 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut key = || {
        (
            random.stream().0,
            random.size().next_multiple_of(512),
            random.below(1 << 30) * 512,
        )
    };
    let mut keys: Vec<(u64, u64, u64)> = (0..blocks).map(|_| key()).collect();
    let mut set: BTreeSet<(u64, u64, u64)> = keys.iter().copied().collect();
    let fresh: Vec<(u64, u64, u64)> = (0..operations).map(|_| key()).collect();
    let places: Vec<usize> = (0..operations).map(|_| random.below(blocks as u64) as usize).collect();
    let start = Instant::now();
    for (place, new) in places.iter().zip(&fresh) {
        set.remove(&keys[*place]);
        set.insert(*new);
        keys[*place] = *new;
    }
    let took = start.elapsed();
    black_box(&set);
    took.as_nanos() as f64 / operations as f64
}

enum Step {
    Malloc(u64, StreamId, usize),
    Free(usize),
}

/// The steps of a training recording: sizes, streams and lifetimes as torch logged them.
fn training(name: &str) -> (Vec<Step>, usize) {
    let path = format!("{}/tests/torch/traces/{name}.json.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut slots: HashMap<u64, usize> = HashMap::new();
    let (mut steps, mut next) = (Vec::new(), 0);
    for event in trace["events"].as_array().unwrap() {
        let (address, size) = (event[1].as_u64().unwrap(), event[2].as_u64().unwrap());
        match event[0].as_str().unwrap() {
            "alloc" => {
                slots.insert(address, next);
                steps.push(Step::Malloc(size, StreamId(event[3].as_u64().unwrap()), next));
                next += 1;
            }
            "free_requested" => steps.push(Step::Free(slots[&address])),
            _ => {}
        }
    }
    (steps, next)
}

/// Events a second over the training recordings, looped, each loop in a fresh allocator.
fn replay() -> f64 {
    let (mut events, mut took) = (0usize, Duration::ZERO);
    for name in ["train-gpt", "train-resnet"] {
        let (steps, slots) = training(name);
        let mut live = vec![0; slots];
        let mut log = Vec::with_capacity(1 << 16);
        for _ in 0..100 {
            let mut allocator = allocator();
            let start = Instant::now();
            for step in &steps {
                match step {
                    Step::Malloc(size, stream, slot) => live[*slot] = allocator.malloc(*size, *stream).unwrap(),
                    Step::Free(slot) => allocator.free(live[*slot]).unwrap(),
                }
            }
            took += start.elapsed();
            log.clear();
            allocator.drain_events(&mut log);
            events += log.len();
        }
    }
    events as f64 / took.as_secs_f64()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let mut good = true;
    let mut report = |name: &str, value: f64, bound: f64, at_most: bool, detail: String| {
        let holds = if at_most { value <= bound } else { value >= bound };
        good &= holds;
        let relation = if at_most { "<=" } else { ">=" };
        println!(
            "{} {name}: {value:.2} ({relation} {bound}) {detail}",
            if holds { "ok  " } else { "FAIL" }
        );
    };
    // Measured in turns, so that a busy machine slows both.
    let turns: Vec<(f64, f64, f64)> = (0..5)
        .map(|_| {
            let ((ours, calls), pair) = (churn(10_000, 400_000), set_pair(10_000, 400_000));
            (ours, pair, calls)
        })
        .collect();
    let ratio = median(turns.iter().map(|(ours, pair, _)| ours / pair).collect());
    let (ours, pair, calls) = turns[0];
    let detail = format!("such as {ours:.0} ns against {pair:.0} ns; {calls:.3} driver calls an operation");
    report(
        "cached allocate+free, 10,000 live blocks / BTreeSet pair",
        ratio,
        2.5,
        true,
        detail,
    );
    let few = median((0..3).map(|_| churn(1_000, 400_000).0).collect());
    let (many, _) = churn(1_000_000, 1_000_000);
    report(
        "1,000,000 blocks / 1,000 blocks",
        many / few,
        6.0,
        true,
        format!("{many:.0} ns against {few:.0} ns"),
    );
    let rate = replay();
    report(
        "replayed events a second, millions",
        rate / 1e6,
        2.0,
        false,
        String::new(),
    );
    std::process::exit(i32::from(!good));
}
