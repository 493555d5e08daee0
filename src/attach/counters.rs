//! The words of a `DeviceStats` in foreign memory, decoded; and the invariants that tell a true set of counters from a
//! torn or a mistaken one (allocator-spec 3.5, 7.4).

use std::collections::BTreeMap;

use super::layout::Shape;
use crate::allocator::stats::{DeviceStats, Stat, StatArray};

/// No counter of bytes or blocks on one device reaches this: 2^50 bytes are 1 PiB.
const HIGHEST: i64 = 1 << 50;
/// No sum of all increases reaches this.
const HIGHEST_SUM: i64 = 1 << 62;

/// Reads one Stat at word `at`.
pub fn stat(words: &[u64], at: usize) -> Option<Stat> {
    let w = words.get(at..at + 4)?;
    Some(Stat {
        current: w[0] as i64,
        peak: w[1] as i64,
        allocated: w[2] as i64,
        freed: w[3] as i64,
    })
}

/// Reads a Stat array (all, small, large) at word `at`.
pub fn array(words: &[u64], at: usize) -> Option<StatArray> {
    Some(StatArray {
        all: stat(words, at)?,
        small: stat(words, at + 4)?,
        large: stat(words, at + 8)?,
    })
}

/// Decodes the words of a DeviceStats; `None` if there are too few. The private pools' map is read elsewhere.
pub fn decode(words: &[u64], shape: Shape) -> Option<DeviceStats> {
    let moved = 72 + shape.map_words();
    let number = |at: usize| words.get(at).map(|w| *w as i64);
    let end = shape.words();
    let tail = moved + 46;
    let newer = |at: usize| {
        if shape.has_driver_calls() {
            number(at).map(Some)
        } else {
            Some(None)
        }
    };
    Some(DeviceStats {
        allocation: array(words, 0)?,
        segment: array(words, 12)?,
        active: array(words, 24)?,
        inactive_split: array(words, 36)?,
        allocated_bytes: array(words, 48)?,
        reserved_bytes: array(words, 60)?,
        active_bytes: array(words, moved)?,
        inactive_split_bytes: array(words, moved + 12)?,
        requested_bytes: array(words, moved + 24)?,
        num_alloc_retries: number(moved + 36)?,
        num_ooms: number(moved + 37)?,
        oversize_allocations: stat(words, moved + 38)?,
        oversize_segments: stat(words, moved + 42)?,
        num_sync_all_streams: newer(tail)?,
        num_device_alloc: newer(tail + 1)?,
        num_device_free: newer(tail + 2)?,
        num_oom_rejections: if shape.has_rejections() {
            Some(number(tail + 3)?)
        } else {
            None
        },
        max_split_size: number(end - 1)?,
        reserved_bytes_by_private_pools: BTreeMap::new(),
    })
}

/// Whether a value can be a setting of max_split_size: -1 for none, else a number of MiB.
pub fn is_max_split(value: i64) -> bool {
    value == -1 || (value > 0 && value < 1 << 45 && value % (1 << 20) == 0)
}

/// Whether a value can be a plain count of events.
fn is_count(value: i64) -> bool {
    (0..HIGHEST).contains(&value)
}

fn stat_holds(s: &Stat) -> bool {
    (0..HIGHEST).contains(&s.current)
        && (s.current..HIGHEST).contains(&s.peak)
        && (0..HIGHEST_SUM).contains(&s.allocated)
        && (0..HIGHEST_SUM).contains(&s.freed)
        // Not equality: reset_accumulated leaves a constant difference (3.4).
        && s.allocated - s.freed <= s.current
}

/// The invariants of one array.
pub fn array_holds(a: &StatArray) -> bool {
    let (all, small, large) = (&a.all, &a.small, &a.large);
    stat_holds(all)
        && stat_holds(small)
        && stat_holds(large)
        && all.current == small.current + large.current
        && all.allocated == small.allocated + large.allocated
        && all.freed == small.freed + large.freed
        && small.peak.max(large.peak) <= all.peak
        && all.peak <= small.peak + large.peak
}

/// The first invariant of allocator-spec 3.5 that `s` breaks, in words; `None` if all hold.
pub fn broken_invariant(s: &DeviceStats) -> Option<&'static str> {
    let arrays = [
        &s.allocation,
        &s.segment,
        &s.active,
        &s.inactive_split,
        &s.allocated_bytes,
        &s.reserved_bytes,
        &s.active_bytes,
        &s.inactive_split_bytes,
        &s.requested_bytes,
    ];
    let counts = [
        Some(s.num_alloc_retries),
        Some(s.num_ooms),
        s.num_sync_all_streams,
        s.num_device_alloc,
        s.num_device_free,
        s.num_oom_rejections,
    ];
    if !arrays.into_iter().all(array_holds) {
        return Some("a total is not the sum of its pools");
    }
    if !stat_holds(&s.oversize_allocations) || !stat_holds(&s.oversize_segments) {
        return Some("an oversize counter is out of range");
    }
    if !counts.into_iter().flatten().all(is_count) {
        return Some("a count is negative or absurd");
    }
    if !is_max_split(s.max_split_size) {
        return Some("max_split_size is not a setting");
    }
    let (active, active_bytes) = (s.active.all.current, s.active_bytes.all.current);
    let reserved = s.reserved_bytes.all.current;
    if s.allocation.all.current > active
        || s.allocated_bytes.all.current > active_bytes
        || s.requested_bytes.all.current > active_bytes
        || active_bytes + s.inactive_split_bytes.all.current > reserved
    {
        return Some("live memory exceeds active or reserved memory");
    }
    if (active == 0) != (active_bytes == 0) || active_bytes < 512 * active {
        return Some("active blocks and active bytes disagree");
    }
    if reserved % (1 << 20) != 0 {
        return Some("reserved memory is not whole MiB");
    }
    None
}

/// Whether the counters have moved enough to prove a layout by their own relations: something was allocated and
/// something was freed.
pub fn has_history(s: &DeviceStats) -> bool {
    s.allocation.all.allocated > 1 && s.allocation.all.freed > 0 && s.reserved_bytes.all.peak > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::layout::Tail;

    const SHAPE: Shape = Shape {
        map: false,
        tail: Tail::DriverCalls,
    };

    /// One live block of 1 KiB in a small segment of 2 MiB; word 121 is max_split_size.
    fn words() -> Vec<u64> {
        let mut words = vec![0u64; SHAPE.words()];
        for (array, now) in [
            (0, 1),
            (12, 1),
            (24, 1),
            (36, 1),
            (48, 1024),
            (60, 2 << 20),
            (72, 1024),
            (84, (2 << 20) - 1024),
            (96, 1000),
        ] {
            for stat in [array, array + 4] {
                words[stat..stat + 3].fill(now);
            }
        }
        words[121] = u64::MAX;
        words
    }

    #[test]
    fn every_invariant_is_watched() {
        let check = |words: &[u64]| broken_invariant(&decode(words, SHAPE).unwrap());
        assert_eq!(check(&words()), None);
        // (word, value, part of the sentence)
        for (word, value, says) in [
            (0, 2, "sum of its pools"),
            (1, 0, "sum of its pools"),
            (2, u64::MAX, "sum of its pools"),
            (60, u64::MAX, "sum of its pools"),
            (110, u64::MAX, "oversize"),
            (108, u64::MAX, "negative or absurd"),
            (119, 1 << 60, "negative or absurd"),
            (121, 0, "not a setting"),
            (121, 12345, "not a setting"),
        ] {
            let mut words = words();
            words[word] = value;
            let why = check(&words);
            assert!(why.is_some_and(|w| w.contains(says)), "{word}: {why:?}");
        }
        let both = |array: usize, now: u64| {
            let mut words = words();
            for stat in [array, array + 4] {
                words[stat..stat + 3].fill(now);
            }
            check(&words).unwrap()
        };
        assert!(
            both(0, 5).contains("live memory"),
            "more allocations than active blocks"
        );
        assert!(
            both(48, 4096).contains("live memory"),
            "more allocated than active bytes"
        );
        assert!(both(60, 1 << 20).contains("live memory"), "less reserved than in use");
        assert!(both(24, 9).contains("disagree"), "nine blocks in 1 KiB");
        assert!(both(60, (2 << 20) + 512).contains("whole MiB"));
    }

    #[test]
    fn too_few_words_are_no_counters() {
        let words = words();
        for length in 0..words.len() {
            assert_eq!(decode(&words[..length], SHAPE), None, "{length}");
        }
    }
}
