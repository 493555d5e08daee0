//! From the bytes asked for to the block and the segment (allocator-spec 1.1 to 1.3).

use super::config::Config;
use super::rules::Rules;

/// Every block has at least this many bytes, and sizes are multiples of it.
pub const MIN_BLOCK: u64 = 512;
/// Blocks up to this size come from the small pool.
pub const SMALL_LIMIT: u64 = 1 << 20;
/// What the small pool asks the driver for.
pub const SMALL_SEGMENT: u64 = 2 << 20;
/// What the large pool asks the driver for below `MIN_LARGE` (large_segment_size_mb changes it).
pub const LARGE_SEGMENT: u64 = 20 << 20;
/// From here on a request gets a segment of its own.
pub const MIN_LARGE: u64 = 10 << 20;
/// Segments of their own are multiples of this.
pub const LARGE_ROUNDING: u64 = 2 << 20;
/// Requests from 2^60 bytes on are refused before any counter moves (allocator-spec 2.8).
pub const ONE_EXABYTE: u64 = 1 << 60;

/// The block size for a request of `bytes` (1 .. 2^60), spec 1.2.
pub fn block_size(bytes: u64, config: &Config, rules: &Rules) -> u64 {
    if bytes < MIN_BLOCK {
        return MIN_BLOCK;
    }
    let exponent = bytes.ilog2();
    let divisions = config.roundup[(exponent.saturating_sub(20)).min(15) as usize];
    let bypassed = config.roundup_bypass.is_some_and(|limit| bytes > limit);
    if divisions > 0 && !bypassed && bytes > MIN_BLOCK.saturating_mul(divisions) {
        if divisions > 1 {
            return next_division(bytes, divisions);
        }
        if rules.division_one_unrounded {
            return bytes;
        }
    }
    bytes.next_multiple_of(MIN_BLOCK)
}

/// The next of `divisions` equal steps between two powers of two.
fn next_division(bytes: u64, divisions: u64) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1u64 << bytes.ilog2();
    let step = floor >> divisions.ilog2();
    if step == 0 {
        floor << 1
    } else {
        bytes.next_multiple_of(step)
    }
}

/// The segment size for a block of `size` bytes, spec 1.3.
pub fn segment_size(size: u64, config: &Config) -> u64 {
    if size <= SMALL_LIMIT {
        SMALL_SEGMENT
    } else if size < MIN_LARGE {
        config.large_segment_size
    } else {
        size.next_multiple_of(LARGE_ROUNDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_of_rounding_and_segments() {
        let (config, rules) = (Config::default(), Rules::default());
        for (bytes, size, segment) in [
            (1, 512, SMALL_SEGMENT),
            (513, 1024, SMALL_SEGMENT),
            (1_048_576, 1_048_576, SMALL_SEGMENT),
            (1_048_577, 1_049_088, LARGE_SEGMENT),
            (10_485_248, 10_485_248, LARGE_SEGMENT),
            (10_485_249, 10_485_760, 10_485_760),
            (10_485_761, 10_486_272, 12_582_912),
            (800_000_000, 800_000_000, 801_112_064),
            (ONE_EXABYTE - 1, ONE_EXABYTE, ONE_EXABYTE),
        ] {
            assert_eq!(block_size(bytes, &config, &rules), size, "{bytes}");
            assert_eq!(segment_size(size, &config), segment, "{bytes}");
        }
    }

    #[test]
    fn power_of_two_divisions() {
        // Worked example 24.
        let config = Config {
            roundup: [4; 16],
            ..Config::default()
        };
        let rules = Rules::default();
        for (bytes, size) in [
            (1_500_000, 1_572_864),
            (40_000_000, 41_943_040),
            (150_000_000, 167_772_160),
            (1_200, 1_536),
            (5_000, 5_120),
            (700_000, 786_432),
        ] {
            assert_eq!(block_size(bytes, &config, &rules), size, "{bytes}");
        }
        let one = Config {
            roundup: [1; 16],
            ..Config::default()
        };
        assert_eq!(block_size(700_000, &one, &rules), 700_416);
        assert_eq!(block_size(700_000, &one, &Rules::of("2.1").unwrap()), 700_000);
    }
}
