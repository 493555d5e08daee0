//! The counters under the names of `torch.cuda.memory_stats()` (allocator-spec 3.1, 7.4, 10.2).

use super::rules::Rules;
use super::stats::{DeviceStats, Stat, StatArray};

impl DeviceStats {
    /// The nine counters that are kept per pool half, by PyTorch's name.
    pub fn arrays(&self) -> [(&'static str, &StatArray); 9] {
        [
            ("active", &self.active),
            ("active_bytes", &self.active_bytes),
            ("allocated_bytes", &self.allocated_bytes),
            ("allocation", &self.allocation),
            ("inactive_split", &self.inactive_split),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("segment", &self.segment),
        ]
    }

    fn arrays_mut(&mut self) -> impl Iterator<Item = &mut StatArray> {
        [
            &mut self.active,
            &mut self.active_bytes,
            &mut self.allocated_bytes,
            &mut self.allocation,
            &mut self.inactive_split,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
            &mut self.reserved_bytes,
            &mut self.segment,
        ]
        .into_iter()
        .chain(self.reserved_bytes_by_private_pools.values_mut())
    }

    /// `reset_peak_memory_stats`.
    pub fn reset_peak(&mut self) {
        for array in self.arrays_mut() {
            array.all.reset_peak();
            array.small.reset_peak();
            array.large.reset_peak();
        }
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
    }

    /// `reset_accumulated_memory_stats`. `max_split_size` stays; counters that the release lacks stay absent.
    pub fn reset_accumulated(&mut self) {
        for array in self.arrays_mut() {
            array.all.reset_accumulated();
            array.small.reset_accumulated();
            array.large.reset_accumulated();
        }
        self.oversize_allocations.reset_accumulated();
        self.oversize_segments.reset_accumulated();
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        for counter in [
            &mut self.num_sync_all_streams,
            &mut self.num_device_alloc,
            &mut self.num_device_free,
            &mut self.num_oom_rejections,
        ] {
            *counter = counter.map(|_| 0);
        }
    }
}

/// Every key of `torch.cuda.memory_stats()` of that release with its value, sorted by key: 119 to 2.1, 122 from 2.3,
/// 123 from 2.13 and there 12 more for every private pool that ever held memory.
pub fn memory_stats(stats: &DeviceStats, rules: &Rules) -> Vec<(String, i64)> {
    let mut pairs = Vec::with_capacity(128);
    walk(stats, rules, |name, value| pairs.push((name.join("."), value)));
    pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    pairs
}

/// The values of [`memory_stats`] alone, in the order of [`names`]: for a comparison after every operation.
pub fn values(stats: &DeviceStats, rules: &Rules, out: &mut Vec<i64>) {
    out.clear();
    walk(stats, rules, |_, value| out.push(value));
}

/// The keys that belong to [`values`]. They change only when a private pool first holds memory, and then at the end.
pub fn names(stats: &DeviceStats, rules: &Rules) -> Vec<String> {
    let mut names = Vec::with_capacity(128);
    walk(stats, rules, |name, _| names.push(name.join(".")));
    names
}

/// Visits every key that the release has: its parts, to be joined by dots, and its value.
fn walk(stats: &DeviceStats, rules: &Rules, mut visit: impl FnMut(&[&str], i64)) {
    for (name, array) in stats.arrays() {
        walk_array(&[name], array, &mut visit);
    }
    walk_stat(&["oversize_allocations"], &stats.oversize_allocations, &mut visit);
    walk_stat(&["oversize_segments"], &stats.oversize_segments, &mut visit);
    for (name, value) in [
        ("num_alloc_retries", Some(stats.num_alloc_retries)),
        ("num_ooms", Some(stats.num_ooms)),
        ("max_split_size", Some(stats.max_split_size)),
        (
            "num_sync_all_streams",
            stats.num_sync_all_streams.filter(|_| rules.driver_counters),
        ),
        (
            "num_device_alloc",
            stats.num_device_alloc.filter(|_| rules.driver_counters),
        ),
        (
            "num_device_free",
            stats.num_device_free.filter(|_| rules.driver_counters),
        ),
        (
            "num_oom_rejections",
            stats.num_oom_rejections.filter(|_| rules.rejections),
        ),
    ] {
        if let Some(value) = value {
            visit(&[name], value);
        }
    }
    if rules.rejections {
        for ((a, b), array) in &stats.reserved_bytes_by_private_pools {
            walk_array(
                &["reserved_bytes_by_private_pools", &format!("{a}_{b}")],
                array,
                &mut visit,
            );
        }
    }
}

fn walk_array(name: &[&str], array: &StatArray, visit: &mut impl FnMut(&[&str], i64)) {
    for (part, stat) in [
        ("all", &array.all),
        ("small_pool", &array.small),
        ("large_pool", &array.large),
    ] {
        match name {
            [a, b] => walk_stat(&[a, b, part], stat, visit),
            _ => walk_stat(&[name[0], part], stat, visit),
        }
    }
}

fn walk_stat(name: &[&str], stat: &Stat, visit: &mut impl FnMut(&[&str], i64)) {
    for (metric, value) in [
        ("current", stat.current),
        ("peak", stat.peak),
        ("allocated", stat.allocated),
        ("freed", stat.freed),
    ] {
        match name {
            [a, b, c] => visit(&[a, b, c, metric], value),
            [a, b] => visit(&[a, b, metric], value),
            _ => visit(&[name[0], metric], value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::config::Config;
    use crate::allocator::heap::Heap;

    #[test]
    fn every_release_has_its_number_of_keys() {
        for (release, keys) in [
            ("2.0", 119),
            ("2.1", 119),
            ("2.3", 122),
            ("2.11", 122),
            ("2.13", 123),
            ("2.15", 123),
        ] {
            let rules = Rules::of(release).unwrap();
            let mut stats = Heap::new(rules.clone(), Config::default()).stats;
            assert_eq!(memory_stats(&stats, &rules).len(), keys, "{release}");
            stats
                .reserved_bytes_by_private_pools
                .insert((0, 1), StatArray::default());
            let pool = if rules.rejections { 12 } else { 0 };
            assert_eq!(memory_stats(&stats, &rules).len(), keys + pool, "{release}");
        }
    }
}
