//! The worked examples of allocator-spec section 9, each run on the real PyTorch 2.11.0: the same requests, the same
//! counters.

use alloctop::allocator::{AllocError, Allocator, Config, PoolId, PoolOptions, Rules, Settings};
use alloctop::driver::StreamId;
use alloctop::parity::stand_in::StandIn;

const MIB: u64 = 1 << 20;
const MAIN: StreamId = StreamId(0);
const SIDE: StreamId = StreamId(4096);
const POOL: PoolId = PoolId(0, 1);

struct Run(Allocator<StandIn>);

/// Current values over both pool halves.
#[derive(Debug, PartialEq)]
struct Now {
    allocated: (i64, i64),
    reserved: (i64, i64),
    inactive: (i64, i64),
    requested: i64,
}

impl Run {
    fn new(total: u64, conf: &str) -> Run {
        let rules = Rules::of("2.11").unwrap();
        let config = Config::parse(conf, &rules).unwrap();
        Run(Allocator::new(StandIn::new(total), Settings { rules, config }))
    }

    fn default() -> Run {
        Run::new(80 << 30, "")
    }

    fn malloc(&mut self, bytes: u64) -> u64 {
        self.malloc_on(bytes, MAIN)
    }

    fn malloc_on(&mut self, bytes: u64, stream: StreamId) -> u64 {
        let address = self.0.malloc(bytes, stream).unwrap();
        self.0.check().unwrap();
        address
    }

    fn free(&mut self, address: u64) {
        self.0.free(address).unwrap();
        self.0.check().unwrap();
    }

    fn free_all(&mut self, addresses: &[u64]) {
        for address in addresses {
            self.free(*address);
        }
    }

    fn flush(&mut self) {
        self.0.empty_cache().unwrap();
        self.0.check().unwrap();
    }

    fn now(&self) -> Now {
        let s = self.0.stats();
        Now {
            allocated: (s.allocated_bytes.all.current, s.allocation.all.current),
            reserved: (s.reserved_bytes.all.current, s.segment.all.current),
            inactive: (s.inactive_split_bytes.all.current, s.inactive_split.all.current),
            requested: s.requested_bytes.all.current,
        }
    }

    fn allocated(&self) -> i64 {
        self.now().allocated.0
    }

    fn reserved(&self) -> i64 {
        self.now().reserved.0
    }

    /// num_device_alloc, num_device_free.
    fn calls(&self) -> (i64, i64) {
        (
            self.0.stats().num_device_alloc.unwrap(),
            self.0.stats().num_device_free.unwrap(),
        )
    }

    fn syncs(&self) -> i64 {
        self.0.stats().num_sync_all_streams.unwrap()
    }

    fn oom(&mut self, bytes: u64) -> String {
        match self.0.malloc(bytes, MAIN) {
            Err(AllocError::OutOfMemory(error)) => error.to_string(),
            other => panic!("no out of memory: {other:?}"),
        }
    }
}

#[test]
fn examples_1_to_11_single_requests() {
    for (bytes, allocated, reserved, inactive) in [
        (800_000_000, 800_000_000, 801_112_064, (1_112_064, 1)),
        (1, 512, 2_097_152, (2_096_640, 1)),
        (513, 1_024, 2_097_152, (2_096_128, 1)),
        (1_048_576, 1_048_576, 2_097_152, (1_048_576, 1)),
        (1_048_577, 1_049_088, 20_971_520, (19_922_432, 1)),
        (10_485_248, 10_485_248, 20_971_520, (10_486_272, 1)),
        (10_485_249, 10_485_760, 10_485_760, (0, 0)),
        (10_485_761, 10_486_272, 12_582_912, (2_096_640, 1)),
        (12_058_624, 12_582_912, 12_582_912, (0, 0)),
        (1_000_000_000, 1_000_341_504, 1_000_341_504, (0, 0)),
    ] {
        let mut run = Run::default();
        run.malloc(bytes);
        let expected = Now {
            allocated: (allocated, 1),
            reserved: (reserved, 1),
            inactive,
            requested: bytes as i64,
        };
        assert_eq!(run.now(), expected, "{bytes}");
    }
    let mut run = Run::default();
    assert_eq!(run.malloc(0), 0);
    assert_eq!((run.now().reserved, run.calls()), ((0, 0), (0, 0)));
    run.free(0);
    assert!(run.0.take_events().is_empty());
}

#[test]
fn example_12_packing_free_merge() {
    let mut run = Run::default();
    let a = run.malloc(3_000_000);
    assert_eq!(run.now().inactive, (17_971_200, 1));
    let b = run.malloc(3_000_000);
    assert_eq!(
        (run.allocated(), run.now().inactive, run.now().requested),
        (6_000_640, (14_970_880, 1), 6_000_000)
    );
    run.free(a);
    assert_eq!((run.allocated(), run.now().inactive), (3_000_320, (17_971_200, 2)));
    let c = run.malloc(2_000_000);
    assert_eq!(c, a);
    assert_eq!(
        (run.allocated(), run.now().inactive, run.now().requested),
        (6_000_640, (14_970_880, 1), 5_000_000)
    );
    run.free(b);
    assert_eq!((run.allocated(), run.now().inactive), (3_000_320, (17_971_200, 1)));
    run.free(c);
    assert_eq!(
        (run.allocated(), run.now().inactive, run.reserved()),
        (0, (0, 0), 20_971_520)
    );
    run.flush();
    let stats = run.0.stats();
    let four = |s: &alloctop::allocator::stats::Stat| (s.current, s.peak, s.allocated, s.freed);
    assert_eq!(four(&stats.allocation.all), (0, 2, 3, 3));
    assert_eq!(four(&stats.allocated_bytes.all), (0, 6_000_640, 9_000_960, 9_000_960));
    assert_eq!(four(&stats.requested_bytes.all), (0, 6_000_000, 8_000_000, 8_000_000));
    assert_eq!(four(&stats.inactive_split.all), (0, 2, 2, 2));
    assert_eq!(
        four(&stats.inactive_split_bytes.all),
        (0, 17_971_200, 23_971_840, 23_971_840)
    );
    assert_eq!(four(&stats.reserved_bytes.all), (0, 20_971_520, 20_971_520, 20_971_520));
    assert_eq!(four(&stats.segment.all), (0, 1, 1, 1));
    assert_eq!((run.syncs(), run.calls()), (1, (1, 1)));
}

#[test]
fn example_13_resets() {
    let mut run = Run::default();
    let a = run.malloc(1_000);
    let b = run.malloc(5_000);
    run.free(a);
    let small = run.0.stats().allocated_bytes.small;
    assert_eq!(
        (small.current, small.peak, small.allocated, small.freed),
        (5_120, 6_144, 6_144, 1_024)
    );
    let split = run.0.stats().inactive_split_bytes.small;
    assert_eq!(
        (split.current, split.allocated, split.freed),
        (2_092_032, 2_097_152, 5_120)
    );
    run.0.reset_peak();
    let stats = run.0.stats();
    assert_eq!(stats.allocated_bytes.small.peak, 5_120);
    assert_eq!(
        (stats.inactive_split_bytes.small.peak, stats.inactive_split.small.peak),
        (2_092_032, 2)
    );
    run.0.reset_accumulated();
    assert_eq!(
        (run.0.stats().allocated_bytes.small.allocated, run.calls()),
        (0, (0, 0))
    );
    run.free(b);
    let stats = run.0.stats();
    let small = stats.allocated_bytes.small;
    assert_eq!(
        (small.current, small.peak, small.allocated, small.freed),
        (0, 5_120, 0, 5_120)
    );
    assert_eq!(
        (stats.inactive_split.small.freed, stats.inactive_split_bytes.small.freed),
        (2, 2_092_032)
    );
}

#[test]
fn example_14_best_fit() {
    let mut run = Run::default();
    let blocks: Vec<u64> = [40, 30, 60].map(|n| run.malloc(n * MIB)).into();
    run.free_all(&blocks);
    run.malloc(29 * MIB);
    assert_eq!(
        (run.allocated(), run.now().reserved, run.now().inactive.0),
        (31_457_280, (136_314_880, 3), 0)
    );
    run.malloc(28 * MIB);
    assert_eq!(
        (run.now().allocated, run.now().inactive),
        ((60_817_408, 2), (12_582_912, 1))
    );
}

#[test]
fn example_15_split_threshold() {
    let mut run = Run::default();
    let a = run.malloc(30 * MIB);
    run.free(a);
    let a = run.malloc(30_408_704);
    assert_eq!(run.allocated(), 31_457_280);
    run.free(a);
    run.malloc(30_408_192);
    assert_eq!((run.allocated(), run.now().inactive), (30_408_192, (1_049_088, 1)));
}

#[test]
fn example_16_small_pool() {
    let mut run = Run::default();
    let a = run.malloc(MIB);
    let b = run.malloc(MIB);
    assert_eq!(
        (run.now().allocated, run.now().reserved, run.now().inactive.0),
        ((2_097_152, 2), (2_097_152, 1), 0)
    );
    run.malloc(512);
    assert_eq!(
        (run.now().reserved, run.now().inactive),
        ((4_194_304, 2), (2_096_640, 1))
    );
    run.free(a);
    assert_eq!((run.allocated(), run.now().inactive), (1_049_088, (3_145_216, 2)));
    run.flush();
    assert_eq!((run.reserved(), run.syncs()), (4_194_304, 1));
    run.free(b);
    run.flush();
    assert_eq!(
        (run.allocated(), run.now().reserved, run.calls().1),
        (512, (2_097_152, 1), 1)
    );
}

#[test]
fn example_17_streams() {
    let mut run = Run::default();
    let a = run.malloc(30 * MIB);
    run.free(a);
    let b = run.malloc_on(30 * MIB, SIDE);
    assert_eq!((run.allocated(), run.now().reserved), (31_457_280, (62_914_560, 2)));
    run.free(b);
    run.malloc(25 * MIB);
    assert_eq!(
        (run.allocated(), run.now().inactive, run.reserved()),
        (26_214_400, (5_242_880, 1), 62_914_560)
    );
    run.flush();
    assert_eq!((run.reserved(), run.calls().1), (31_457_280, 1));
}

#[test]
fn example_18_record_stream() {
    let mut run = Run::default();
    run.0.driver_mut().events_ready = false;
    let a = run.malloc(30 * MIB);
    run.0.record_stream(a, SIDE).unwrap();
    run.0.record_stream(a, SIDE).unwrap();
    run.0.record_stream(a, MAIN).unwrap();
    run.free(a);
    let active = |run: &Run| (run.0.stats().active_bytes.all.current, run.0.stats().active.all.current);
    assert_eq!((run.now().allocated, active(&run)), ((0, 0), (31_457_280, 1)));
    assert_eq!((run.now().requested, run.reserved()), (31_457_280, 31_457_280));
    assert!(run.0.block(a).unwrap().pending);
    assert!(matches!(run.0.free(a), Err(AllocError::UnknownAddress(_))));
    run.malloc(30 * MIB);
    assert_eq!(
        (run.allocated(), active(&run), run.reserved()),
        (31_457_280, (62_914_560, 2), 62_914_560)
    );
    run.0.driver_mut().events_ready = true;
    assert_eq!(run.malloc(30 * MIB), a);
    assert_eq!((run.now().allocated, active(&run)), ((62_914_560, 2), (62_914_560, 2)));
    assert_eq!((run.reserved(), run.calls().0), (62_914_560, 2));
}

#[test]
fn example_19_retry_and_out_of_memory() {
    let mut run = Run::new(100 * MIB, "");
    let a = run.malloc(40 * MIB);
    let b = run.malloc(40 * MIB);
    run.free(a);
    run.free(b);
    run.malloc(60 * MIB);
    assert_eq!(
        (run.allocated(), run.reserved(), run.calls()),
        (62_914_560, 62_914_560, (3, 2))
    );
    assert_eq!((run.0.stats().num_alloc_retries, run.syncs()), (1, 1));
    assert_eq!(
        run.oom(60 * MIB),
        "CUDA out of memory. Tried to allocate 60.00 MiB. GPU 0 has a total capacity of 100.00 MiB of which 40.00 MiB is \
         free. Of the allocated memory 60.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but \
         unallocated. If reserved but unallocated memory is large try setting \
         PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory \
         Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    );
    let stats = run.0.stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, run.syncs()), (2, 1, 2));
    assert_eq!(stats.reserved_bytes.all.peak, 83_886_080);
    assert_eq!(
        run.oom(1 << 60),
        "CUDA out of memory. Tried to allocate more than 1EB memory."
    );
    assert_eq!(run.0.stats().num_ooms, 1);
}

#[test]
fn example_20_fraction() {
    let mut run = Run::new(100 * MIB, "");
    run.0.set_memory_fraction(0.5).unwrap();
    let a = run.malloc(40 * MIB);
    let text = run.oom(20 * MIB);
    assert!(text.contains("50.00 MiB allowed; "), "{text}");
    let stats = run.0.stats();
    assert_eq!(
        (stats.num_alloc_retries, stats.num_ooms, run.syncs(), run.calls().0),
        (1, 1, 1, 1)
    );
    run.free(a);
    run.malloc(20 * MIB);
    assert_eq!(
        (run.allocated(), run.reserved(), run.now().inactive),
        (20_971_520, 41_943_040, (20_971_520, 1))
    );
    run.0.set_memory_fraction(0.123_456_789).unwrap();
    assert!((run.0.memory_fraction().unwrap() - 0.123_456_783_294_677_74).abs() < 1e-17);
    assert_eq!(
        run.0.set_memory_fraction(1.5).unwrap_err().to_string(),
        "invalid fraction:1.5. Please set within [0, 1]."
    );
}

#[test]
fn example_21_max_split_size() {
    let mut run = Run::new(1 << 30, "max_split_size_mb:64");
    let a = run.malloc(100 * MIB);
    run.free(a);
    let a = run.malloc(90_000_000);
    assert_eq!(run.allocated(), 104_857_600);
    run.free(a);
    run.malloc(32 * MIB);
    assert_eq!(run.now().reserved, (138_412_032, 2));
    let a = run.malloc(84_934_656);
    assert_eq!(run.now().allocated, (138_412_032, 2));
    let four = |s: &alloctop::allocator::stats::Stat| (s.current, s.peak, s.allocated, s.freed);
    assert_eq!(four(&run.0.stats().oversize_allocations), (1, 1, 3, 2));
    assert_eq!(four(&run.0.stats().oversize_segments), (1, 1, 1, 0));
    assert_eq!(run.0.stats().max_split_size, 67_108_864);
    run.free(a);
    let six = run.malloc(600_000_000);
    assert_eq!(run.0.block(six).unwrap().size, 601_882_624);
    run.malloc(300_000_000);
    run.free(six);
    run.malloc(500_000_000);
    assert_eq!((run.0.stats().num_alloc_retries, run.calls().1), (0, 1));
    assert_eq!(run.now().reserved, (941_621_248, 4));
}

#[test]
fn example_22_several_oversize_blocks() {
    let mut run = Run::new(400 * MIB, "max_split_size_mb:64");
    let blocks: Vec<u64> = [100, 110, 120].map(|n| run.malloc(n * MIB)).into();
    run.free_all(&blocks);
    run.malloc(230 * MIB);
    assert_eq!(run.now().reserved, (346_030_080, 2));
    assert_eq!((run.0.stats().num_alloc_retries, run.calls().1), (0, 2));
}

#[test]
fn example_23_collection_by_age() {
    let mut run = Run::new(1000 * MIB, "garbage_collection_threshold:0.6");
    run.0.set_memory_fraction(0.5).unwrap();
    let blocks: Vec<u64> = [100, 120, 140].map(|n| run.malloc(n * MIB)).into();
    run.free_all(&blocks);
    for _ in 0..2 {
        let a = run.malloc(100 * MIB);
        run.free(a);
    }
    run.malloc(130 * MIB);
    run.malloc(150 * MIB);
    assert_eq!((run.now().reserved, run.calls()), ((408_944_640, 3), (4, 1)));
    assert_eq!((run.0.stats().num_alloc_retries, run.syncs()), (0, 0));
}

#[test]
fn example_25_expandable_segments() {
    let mut run = Run::new(1000 * MIB, "expandable_segments:True");
    let a = run.malloc(30 * MIB);
    assert_eq!(
        (run.allocated(), run.now().reserved, run.now().inactive),
        (31_457_280, (41_943_040, 0), (0, 0))
    );
    let b = run.malloc(1_000);
    assert_eq!((run.reserved(), run.calls().0), (44_040_192, 2));
    let c = run.malloc(5 * MIB);
    assert_eq!(run.reserved(), 44_040_192);
    run.free(a);
    run.flush();
    assert_eq!((run.reserved(), run.calls().1), (23_068_672, 1));
    let d = run.malloc(45 * MIB);
    assert_eq!((run.reserved(), run.calls().0), (65_011_712, 3));
    run.free_all(&[b, c, d]);
    run.flush();
    // The specification's text counts 3 synchronisations, one more than it has flushes; the recordings of expandable
    // segments agree with one a flush.
    assert_eq!((run.reserved(), run.calls().1, run.syncs()), (0, 3, 2));
    assert_eq!(run.0.driver().used(), 0);
}

#[test]
fn example_26_private_pool() {
    let mut run = Run::default();
    let a = run.malloc(30 * MIB);
    run.free(a);
    run.0.begin_pool(POOL).unwrap();
    let b = run.malloc(30 * MIB);
    let c = run.malloc(100);
    run.0.end_pool(POOL).unwrap();
    assert_eq!(
        (run.now().allocated, run.now().reserved, run.now().inactive),
        ((31_457_792, 2), (65_011_712, 3), (2_096_640, 1))
    );
    assert_eq!(run.malloc(30 * MIB), a);
    assert_eq!(run.calls().0, 3);
    run.free_all(&[a, b, c]);
    run.flush();
    assert_eq!((run.now().reserved, run.calls().1), ((33_554_432, 2), 1));
    run.0.release_pool(POOL).unwrap();
    run.flush();
    assert_eq!((run.reserved(), run.calls().1), (0, 3));
    assert!(run.0.release_pool(POOL).is_err());
}

#[test]
fn example_27_large_segment_size() {
    let mut run = Run::new(80 << 30, "large_segment_size_mb:40");
    run.malloc(5_000_000);
    assert_eq!((run.reserved(), run.now().inactive.0), (41_943_040, 36_942_848));
    run.malloc(12_000_000);
    assert_eq!((run.allocated(), run.reserved()), (17_000_448, 41_943_040));
}

#[test]
fn example_28_no_split_pool() {
    let mut run = Run::default();
    run.0
        .create_pool(
            POOL,
            PoolOptions {
                no_split: true,
                use_on_oom: false,
            },
        )
        .unwrap();
    run.0.begin_pool(POOL).unwrap();
    run.malloc(3 * MIB);
    run.malloc(600);
    let expected = Now {
        allocated: (23_068_672, 2),
        reserved: (23_068_672, 2),
        inactive: (0, 0),
        requested: 3_146_328,
    };
    assert_eq!(run.now(), expected);
}

#[test]
fn a_pool_may_help_out_when_the_driver_has_nothing() {
    let mut run = Run::new(100 * MIB, "");
    run.0
        .create_pool(
            POOL,
            PoolOptions {
                no_split: false,
                use_on_oom: true,
            },
        )
        .unwrap();
    run.0.begin_pool(POOL).unwrap();
    let a = run.malloc(60 * MIB);
    run.free(a);
    run.0.end_pool(POOL).unwrap();
    assert_eq!(run.malloc(50 * MIB), a);
    assert_eq!(run.0.block(a).unwrap().pool, POOL);
    assert_eq!(run.0.stats().num_alloc_retries, 0);
}

#[test]
fn rejections_of_2_13() {
    let rules = Rules::of("2.13").unwrap();
    let config = Config::parse("throw_on_cudamalloc_oom:True", &rules).unwrap();
    let mut run = Run(Allocator::new(StandIn::new(100 * MIB), Settings { rules, config }));
    run.malloc(60 * MIB);
    assert_eq!(
        run.oom(60_000_000),
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction \
         limit. Requested size: 57.22 MiB"
    );
    let stats = run.0.stats();
    assert_eq!(
        (stats.num_oom_rejections, stats.num_ooms, stats.num_alloc_retries),
        (Some(1), 0, 0)
    );
}

#[test]
fn sentences_of_older_releases() {
    for (release, starts, ends) in [
        (
            "2.0",
            "CUDA out of memory. Tried to allocate 60.00 MiB (GPU 0; 100.00 MiB total capacity; 60.00 MiB already \
          allocated; 40.00 MiB free; 60.00 MiB reserved in total by PyTorch) If reserved memory is >> allocated",
            "See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
        ),
        (
            "2.1",
            "CUDA out of memory. Tried to allocate 60.00 MiB. GPU 0 has a total capacty of 100.00 MiB of which 40.00 MiB \
          is free. Of the allocated memory 60.00 MiB is allocated by PyTorch, and 0 bytes is reserved",
            "try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
        ),
        (
            "2.5",
            "CUDA out of memory. Tried to allocate 60.00 MiB. GPU 0 has a total capacity of",
            "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
        ),
    ] {
        let rules = Rules::of(release).unwrap();
        let mut run = Run(Allocator::new(
            StandIn::new(100 * MIB),
            Settings {
                rules,
                config: Config::default(),
            },
        ));
        run.malloc(60 * MIB);
        let text = run.oom(60 * MIB);
        assert!(text.starts_with(starts) && text.ends_with(ends), "{release}: {text}");
    }
}
