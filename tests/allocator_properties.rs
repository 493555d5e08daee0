//! Random operations in random configurations of random releases: every invariant holds after every one of them.
//!
//! `ALLOCTOP_OPS` sets the number of operations (CI: 1,000,000 in release mode), `ALLOCTOP_SEED` the second seed.

use alloctop::allocator::rules::EXAMINED;
use alloctop::allocator::{AllocError, Allocator, BlockState, Config, PoolId, PoolOptions, Rules, Settings};
use alloctop::driver::adapt::{Call, Failing};
use alloctop::driver::{Driver, DriverError, StreamId};
use alloctop::parity::stand_in::StandIn;

const MIB: u64 = 1 << 20;
/// Operations on one allocator before the next configuration.
const ROUND: u64 = 500;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// Sizes that meet every limit: small, medium, own segments, and the edges between them.
    fn size(&mut self) -> u64 {
        match self.below(8) {
            0 => self.below(4_096) + 1,
            1 | 2 => self.below(MIB) + 1,
            3 | 4 => self.below(10 * MIB) + 1,
            5 => self.below(60 * MIB) + 1,
            6 => self.pick(&[
                512,
                513,
                MIB,
                MIB + 1,
                10 * MIB - 512,
                10 * MIB,
                20 * MIB,
                64 * MIB,
                64 * MIB - 511,
            ]),
            _ => self.below(300 * MIB) + 1,
        }
    }
}

fn settings(random: &mut Random) -> Settings {
    let rules = Rules::of(&random.pick(&EXAMINED).to_string()).unwrap();
    loop {
        let mut conf: Vec<&str> = Vec::new();
        for key in [
            "max_split_size_mb:64",
            "max_split_size_mb:21",
            "garbage_collection_threshold:0.6",
            "roundup_power2_divisions:4",
            "roundup_power2_divisions:1",
            "roundup_power2_divisions:[64:8,256:4,>:1]",
            "expandable_segments:True",
            "expandable_segments:True",
            "max_non_split_rounding_mb:30",
            "large_segment_size_mb:40,max_split_size_mb:64",
            "throw_on_cudamalloc_oom:True",
            "per_process_memory_fraction:0.7",
        ] {
            if random.one_in(5) {
                conf.push(key);
            }
        }
        if let Ok(config) = Config::parse(&conf.join(","), &rules) {
            return Settings { rules, config };
        }
    }
}

struct Run {
    allocator: Allocator<Failing<StandIn>>,
    live: Vec<u64>,
    begun: Vec<PoolId>,
    users: Vec<PoolId>,
    captures: u32,
    next_pool: u64,
}

impl Run {
    fn new(random: &mut Random) -> Run {
        let total = random.pick(&[300 * MIB, 600 * MIB, 2048 * MIB, 8192 * MIB]);
        let driver = Failing::new(StandIn::new(total), Vec::new());
        let mut allocator = Allocator::new(driver, settings(random));
        allocator.set_event_capacity(16);
        Run {
            allocator,
            live: Vec::new(),
            begun: Vec::new(),
            users: Vec::new(),
            captures: 0,
            next_pool: 1,
        }
    }

    fn step(&mut self, random: &mut Random) -> Result<(), AllocError> {
        match random.below(40) {
            0 => self.flush()?,
            1 => self.allocator.reset_peak(),
            2 => self.allocator.reset_accumulated(),
            3 => self.allocator.set_memory_fraction(random.pick(&[0.3, 0.5, 0.9, 1.0]))?,
            4 => self.pools(random)?,
            5 => {
                let config = settings(random).config;
                if random.one_in(4) && self.allocator.rules().release.minor >= 11 {
                    self.allocator.set_config(config);
                }
            }
            6 if random.one_in(3) => {
                let call = random.pick(&[
                    Call::Alloc,
                    Call::Free,
                    Call::Map,
                    Call::Unmap,
                    Call::RecordEvent,
                    Call::WaitEvent,
                    Call::EventDone,
                    Call::Reserve,
                    Call::Unreserve,
                    Call::MemInfo,
                ]);
                let error = match random.below(2) {
                    0 => DriverError::OutOfMemory,
                    _ => DriverError::Failed {
                        call: "planned",
                        code: 700,
                        text: "planned".to_owned(),
                    },
                };
                self.allocator.driver_mut().fail_next(call, error);
            }
            7 if self.captures == 0 => {
                self.allocator.begin_capture();
                self.captures = 1;
            }
            7 | 8 if self.captures > 0 => {
                self.allocator.end_capture();
                self.captures = 0;
            }
            9 => self.allocator.process_events()?,
            n => self.block(n, random)?,
        }
        Ok(())
    }

    fn block(&mut self, n: u64, random: &mut Random) -> Result<(), AllocError> {
        let crowded = self.live.len() >= 300;
        if !crowded && (n < 27 || self.live.is_empty()) {
            let stream = StreamId(random.pick(&[0, 0, 0, 4096, 8192]));
            // A pending block that completes first may change what is found.
            let quiet = self.allocator.stats().active == self.allocator.stats().allocation;
            let (size, hit) = (random.size(), quiet && random.one_in(3));
            let expected = hit.then(|| self.allocator.would_hit(size, stream));
            let before = self.allocator.stats().reserved_bytes.all.allocated;
            let address = self.allocator.malloc(size, stream)?;
            if expected == Some(true) {
                assert_eq!(
                    self.allocator.stats().reserved_bytes.all.allocated,
                    before,
                    "a hit makes no driver call"
                );
            }
            let block = self.allocator.block(address).unwrap();
            assert!(block.requested == size && block.size >= size && block.stream == stream && !block.pending);
            self.live.push(address);
            return Ok(());
        }
        let address = self.live.swap_remove(random.below(self.live.len() as u64) as usize);
        if random.one_in(4) {
            for _ in 0..=random.below(2) {
                self.allocator
                    .record_stream(address, StreamId(random.pick(&[0, 4096, 8192, 12288])))?;
            }
        }
        self.allocator.free(address)
    }

    /// A flush gives back exactly the wholly free segments of the pools that it may touch.
    fn flush(&mut self) -> Result<(), AllocError> {
        let quiet = self.allocator.stats().active == self.allocator.stats().allocation
            && self.captures == 0
            && self.begun.is_empty();
        let kept = |s: &alloctop::allocator::SegmentReport, users: &[PoolId]| {
            s.expandable || s.blocks.iter().any(|b| b.state != BlockState::Free) || users.contains(&s.pool)
        };
        let before = self.allocator.report();
        let (held, forecast) = (
            self.allocator.stats().reserved_bytes.all.current,
            self.allocator.flushable(),
        );
        let mapped: u64 = self.allocator.address_ranges().iter().map(|r| r.mapped).sum();
        assert_eq!(
            mapped,
            before
                .segments
                .iter()
                .filter(|s| s.expandable)
                .map(|s| s.size)
                .sum::<u64>()
        );
        self.allocator.empty_cache()?;
        if quiet {
            let given = held - self.allocator.stats().reserved_bytes.all.current;
            assert_eq!(given as u64, forecast, "a flush gives back what was forecast");
            let expected: Vec<u64> = before
                .segments
                .iter()
                .filter(|s| kept(s, &self.users) && !s.expandable)
                .map(|s| s.address)
                .collect();
            let after: Vec<u64> = self
                .allocator
                .report()
                .segments
                .iter()
                .filter(|s| !s.expandable)
                .map(|s| s.address)
                .collect();
            assert_eq!(after, expected);
        }
        Ok(())
    }

    fn pools(&mut self, random: &mut Random) -> Result<(), AllocError> {
        match random.below(5) {
            0 if self.users.len() < 6 => {
                let id = PoolId(0, self.next_pool);
                self.next_pool += 1;
                let options = PoolOptions {
                    no_split: random.one_in(4),
                    use_on_oom: random.one_in(2),
                };
                self.allocator.create_pool(id, options)?;
                self.users.push(id);
            }
            1 if !self.users.is_empty() => {
                let id = random.pick(&self.users);
                self.allocator.begin_pool(id)?;
                self.begun.push(id);
                self.users.push(id);
            }
            2 | 3 => {
                if let Some(id) = self.begun.pop() {
                    self.allocator.end_pool(id)?;
                }
            }
            _ => {
                let ended: Vec<usize> = (0..self.users.len())
                    .filter(|i| !self.begun.contains(&self.users[*i]))
                    .collect();
                if !ended.is_empty() {
                    let id = self.users.remove(random.pick(&ended));
                    self.allocator.release_pool(id)?;
                }
            }
        }
        Ok(())
    }

    fn check(&mut self, operations: u64, seed: u64) {
        let context = |what: String| format!("seed {seed}, operation {operations}: {what}");
        if let Err(violation) = self.allocator.check() {
            panic!("{}", context(violation.to_string()));
        }
        let used = self.allocator.driver_mut().mem_info_without_plan();
        assert_eq!(
            used,
            self.allocator.stats().reserved_bytes.all.current as u64,
            "{}",
            context("driver".to_owned())
        );
        let stats = self.allocator.stats();
        assert_eq!(
            stats.allocation.all.current as usize,
            self.live.len(),
            "{}",
            context("live blocks".to_owned())
        );
    }
}

trait Used {
    fn mem_info_without_plan(&mut self) -> u64;
}

impl Used for Failing<StandIn> {
    fn mem_info_without_plan(&mut self) -> u64 {
        self.inner().used()
    }
}

fn operate(seed: u64, operations: u64) {
    let mut random = Random(seed | 1);
    let mut run = Run::new(&mut random);
    let (mut refused, mut failed) = (0u64, 0u64);
    for operation in 0..operations {
        if operation % ROUND == 0 {
            run = Run::new(&mut random);
        }
        if random.one_in(20) {
            let ready = random.one_in(2);
            run.allocator.driver_mut().inner_mut().events_ready = ready;
        }
        match run.step(&mut random) {
            Ok(()) => {}
            Err(AllocError::OutOfMemory(error)) => {
                refused += 1;
                assert!(error.to_string().starts_with("CUDA out of memory."));
            }
            Err(AllocError::Driver(_) | AllocError::Assert { .. }) => failed += 1,
            Err(error) => panic!("seed {seed}, operation {operation}: {error}"),
        }
        run.check(operation, seed);
    }
    println!("seed {seed}: {operations} operations, {refused} out of memory, {failed} failures of the driver");
}

fn count() -> u64 {
    std::env::var("ALLOCTOP_OPS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(20_000)
}

#[test]
fn invariants_hold_from_a_fixed_seed() {
    operate(0x5eed, count());
}

#[test]
fn invariants_hold_from_a_random_seed() {
    let given = std::env::var("ALLOCTOP_SEED").ok().and_then(|n| n.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        now.as_nanos() as u64
    });
    println!("ALLOCTOP_SEED={seed}");
    operate(seed, count());
}

#[test]
fn everything_goes_back_at_the_end() {
    let mut random = Random(77);
    for _ in 0..20 {
        let mut run = Run::new(&mut random);
        for _ in 0..200 {
            let _ = run.step(&mut random);
        }
        run.allocator.driver_mut().clear_plan();
        run.allocator.driver_mut().inner_mut().events_ready = true;
        if run.captures > 0 {
            run.allocator.end_capture();
        }
        run.begun.drain(..).for_each(|id| run.allocator.end_pool(id).unwrap());
        run.users
            .drain(..)
            .for_each(|id| run.allocator.release_pool(id).unwrap());
        run.live
            .drain(..)
            .for_each(|address| run.allocator.free(address).unwrap());
        run.allocator.empty_cache().unwrap();
        assert_eq!(run.allocator.driver_mut().inner().used(), 0);
        assert_eq!(run.allocator.report().segments, []);
        assert_eq!(
            run.allocator.driver_mut().mem_info().unwrap().free,
            run.allocator.driver_mut().mem_info().unwrap().total
        );
    }
}
