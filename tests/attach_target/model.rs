// What the test target's allocator looks like, shared by the target (compiled by bare rustc) and by the tests. All of its
// counters follow from one sequence number, so that a mixture of two moments can be told.

/// The layout and the content of a target, as `key=value` arguments.
// Independent switches of a test fixture.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The map of private pools stands in the counters.
    pub map: bool,
    /// Words after the fixed part: 1, 4 or 5.
    pub tail: usize,
    /// Private pools in the map.
    pub private_pools: usize,
    /// Devices.
    pub devices: usize,
    /// Words of the vector in the object.
    pub vector: usize,
    /// Words between mutex and counters.
    pub before_stats: usize,
    /// The device's number follows the counters.
    pub numbered: bool,
    /// Words between the counters (and number) and the first tree's comparator.
    pub gap: usize,
    /// Sets a pool.
    pub sets: usize,
    /// Words between the pools.
    pub between_pools: usize,
    /// Words between the small pool and the total of reserved bytes.
    pub before_reserved: usize,
    /// The pool member's word in a block.
    pub pool_member: usize,
    /// The setting of max_split_size.
    pub max_split: i64,
    /// The device property with a uuid stands behind the total (2.11 and later), with the limit behind that.
    pub property: bool,
    /// The memory limit in bytes; 0 for none.
    pub limit: u64,
    /// Expandable segments are in use.
    pub expandable: bool,
    /// All counters of the devices after the first are zero.
    pub idle_rest: bool,
    /// Seed of the garbage that fills the gaps.
    pub seed: u64,
}

/// The raw uuid of device `n`.
pub fn uuid(n: usize) -> [u8; 16] {
    let mut raw = [0xa5; 16];
    raw[15] = n as u8;
    raw
}

const MIB: u64 = 1 << 20;

/// The total memory of a device in its property.
pub const TOTAL_MEMORY: u64 = 80 << 30;
/// Sizes of the free blocks of the large and the small pool.
pub const FREE_LARGE: [u64; 5] = [1 << 20, 1 << 20, 3 << 19, 2 << 20, 3 << 20];
pub const FREE_SMALL: [u64; 3] = [512, 1024, 4096];
/// RTTI names by class.
pub const CLASSES: [&str; 4] = ["native", "async", "pluggable", "other"];

impl Plan {
    /// The layout of a release: 2.0 (20), 2.1 (21), 2.3 (23), 2.5 (25), 2.9 (29), 2.11 (211), 2.12 (212), 2.13 (213), 2.15 (215).
    pub fn release(release: u32) -> Plan {
        let base = Plan {
            map: false,
            tail: 4,
            private_pools: 0,
            devices: 1,
            vector: 0x5838 / 8,
            before_stats: 0,
            numbered: false,
            gap: 0,
            sets: 2,
            between_pools: 2,
            before_reserved: 13,
            pool_member: 8,
            max_split: -1,
            property: false,
            limit: 0,
            expandable: false,
            idle_rest: false,
            seed: 7,
        };
        match release {
            20 => Plan {
                tail: 1,
                vector: 0x50 / 8,
                sets: 1,
                between_pools: 1,
                ..base
            },
            21 => Plan {
                tail: 1,
                vector: 0x50 / 8,
                between_pools: 1,
                ..base
            },
            23 => Plan {
                vector: 0x57f0 / 8,
                ..base
            },
            25 | 29 => base,
            211 => Plan {
                numbered: true,
                pool_member: 9,
                property: true,
                ..base
            },
            212 => Plan {
                tail: 5,
                numbered: true,
                pool_member: 9,
                property: true,
                ..base
            },
            213 | 215 => Plan {
                map: true,
                tail: 5,
                numbered: true,
                sets: 3,
                pool_member: 9,
                property: true,
                ..base
            },
            other => panic!("no release {other}"),
        }
    }

    /// As arguments of the target.
    pub fn to_args(&self) -> Vec<String> {
        let p = self;
        [
            ("map", u64::from(p.map)),
            ("tail", p.tail as u64),
            ("private_pools", p.private_pools as u64),
            ("devices", p.devices as u64),
            ("vector", p.vector as u64),
            ("before_stats", p.before_stats as u64),
            ("numbered", u64::from(p.numbered)),
            ("gap", p.gap as u64),
            ("sets", p.sets as u64),
            ("between_pools", p.between_pools as u64),
            ("before_reserved", p.before_reserved as u64),
            ("pool_member", p.pool_member as u64),
            ("max_split", p.max_split as u64),
            ("property", u64::from(p.property)),
            ("limit", p.limit),
            ("expandable", u64::from(p.expandable)),
            ("idle_rest", u64::from(p.idle_rest)),
            ("seed", p.seed),
        ]
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
    }

    /// From arguments.
    pub fn from_args(args: impl Iterator<Item = String>) -> Plan {
        let mut p = Plan::release(25);
        for (key, v) in args.filter_map(|a| {
            a.split_once('=')
                .map(|(k, v)| (k.to_owned(), v.parse::<u64>().unwrap()))
        }) {
            match key.as_str() {
                "map" => p.map = v != 0,
                "tail" => p.tail = v as usize,
                "private_pools" => p.private_pools = v as usize,
                "devices" => p.devices = v as usize,
                "vector" => p.vector = v as usize,
                "before_stats" => p.before_stats = v as usize,
                "numbered" => p.numbered = v != 0,
                "gap" => p.gap = v as usize,
                "sets" => p.sets = v as usize,
                "between_pools" => p.between_pools = v as usize,
                "before_reserved" => p.before_reserved = v as usize,
                "pool_member" => p.pool_member = v as usize,
                "max_split" => p.max_split = v as i64,
                "property" => p.property = v != 0,
                "limit" => p.limit = v,
                "expandable" => p.expandable = v != 0,
                "idle_rest" => p.idle_rest = v != 0,
                "seed" => p.seed = v,
                _ => {}
            }
        }
        p
    }

    /// Words of the counters.
    pub fn stats_words(&self) -> usize {
        118 + self.tail + if self.map { 4 } else { 0 }
    }

    /// First word of the counters in a device's allocator.
    pub fn stats_at(&self) -> usize {
        5 + self.before_stats
    }

    /// The comparator word of the first tree.
    pub fn tree_at(&self) -> usize {
        self.stats_at() + self.stats_words() + usize::from(self.numbered) + self.gap
    }
}

/// One Stat at sequence `n`: current as given, sums that grow by `step` with every operation.
fn stat(words: &mut [u64], current: u64, peak: u64, n: u64, step: u64) {
    words[0] = current;
    words[1] = peak;
    words[2] = (1 << 30) + n * step;
    words[3] = words[2] - current;
}

/// A Stat array: small and large as given (current, peak), `all` their sum.
fn array(words: &mut [u64], small: (u64, u64), large: (u64, u64), n: u64, step: u64) {
    stat(&mut words[4..8], small.0, small.1, n, step);
    stat(&mut words[8..12], large.0, large.1, n, 2 * step);
    for i in 0..4 {
        words[i] = words[4 + i] + words[8 + i];
    }
}

/// The counters after `n` operations; all zero for none (but the setting). The map's words are left alone.
pub fn counters(n: u64, plan: &Plan, words: &mut [u64]) {
    let m = if plan.map { 4 } else { 0 };
    let end = plan.stats_words();
    words[end - 1] = plan.max_split as u64;
    if n == 0 {
        for w in (0..end - 1).filter(|w| m == 0 || !(72..76).contains(w)) {
            words[w] = 0;
        }
        return;
    }
    let (small, large) = (n % 8, (n / 2) % 4);
    let (active_small, active_large) = (small + n % 3, large + n % 2);
    array(&mut words[0..], (small, 7), (large, 3), n, 1);
    array(&mut words[12..], (1 + n % 5, 5), (1 + n % 3, 3), n, 1);
    array(&mut words[24..], (active_small, 9), (active_large, 4), n, 1);
    array(&mut words[36..], (n % 4, 3), (n % 2, 1), n, 1);
    array(
        &mut words[48..],
        (1024 * small, 7168),
        (2 * MIB * large, 6 * MIB),
        n,
        1024,
    );
    array(
        &mut words[60..],
        (2 * MIB * (1 + n % 5), 10 * MIB),
        (20 * MIB * (1 + n % 3), 60 * MIB),
        n,
        2 * MIB,
    );
    let w = &mut words[72 + m..];
    array(
        &mut w[0..],
        (1024 * active_small, 9216),
        (2 * MIB * active_large, 8 * MIB),
        n,
        1024,
    );
    array(&mut w[12..], (512 * (n % 4), 1536), (MIB * (n % 2), MIB), n, 512);
    array(
        &mut w[24..],
        (1000 * active_small, 9000),
        (2 * MIB * active_large - active_large, 8 * MIB),
        n,
        1000,
    );
    w[36] = n;
    w[37] = n / 2;
    stat(&mut w[38..], n % 2, 1, n, 1);
    stat(&mut w[42..], n % 3, 2, n, 1);
    for i in 0..plan.tail - 1 {
        w[46 + i] = n * (i as u64 + 1);
    }
}

/// Private pool `k`'s id and its Stat array at sequence `n`.
pub fn private_pool(k: usize, n: u64, words: &mut [u64]) -> (u64, u64) {
    let size = (2 << 20) * (1 + (n + k as u64) % 3);
    array(words, (size, 6 << 20), (10 * size, 60 << 20), n, 2 << 20);
    (k as u64 + 1, 0)
}

/// A small generator of garbage (xorshift).
pub fn garbage(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    // Never something that could be meant: the upper half is far from any address, count or setting.
    *state | 0x4242_0000_0000_0000
}
