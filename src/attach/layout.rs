//! Where the counters lie inside a device's allocator, found by their own structure and not by a table of versions
//! (allocator-spec 7.4 to 7.6). What does not prove itself is refused.

use super::counters::{broken_invariant, decode, has_history, is_max_split};

/// Words of a device's allocator that are looked at: 4 KiB.
pub const WINDOW: usize = 512;
/// The counters follow the allocator's recursive mutex (40 bytes) in every release examined.
pub const USUAL_START: usize = 5;
/// How many words later they are looked for when they are not there.
const START_SLACK: usize = 64;
/// How many words may lie between the counters and the first tree when it does not follow them directly.
const TREE_SLACK: usize = 64;
/// Words before the map of private pools, or before `active_bytes` where there is none.
const MAP_AT: usize = 72;
/// Words of the counters without map and tail.
const FIXED: usize = 118;

/// Which counters a release has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The hash map of private pools' reserved bytes stands in the middle (2.13).
    pub map: bool,
    /// What ends the counters.
    pub tail: Tail,
}

/// The last members of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tail {
    /// max_split_size alone (2.0 to 2.2).
    Split,
    /// Three counts of driver calls before it (2.3).
    DriverCalls,
    /// And the count of rejections (2.12).
    // Seen in 2.12.1: 123 words, no map; devices at +0x5838, the first tree at +0x408.
    Rejections,
}

impl Shape {
    /// Words of the map inside the counters.
    pub fn map_words(self) -> usize {
        if self.map { 4 } else { 0 }
    }

    /// Words of the whole structure.
    pub fn words(self) -> usize {
        FIXED
            + self.map_words()
            + match self.tail {
                Tail::Split => 1,
                Tail::DriverCalls => 4,
                Tail::Rejections => 5,
            }
    }

    /// num_sync_all_streams, num_device_alloc and num_device_free exist.
    pub fn has_driver_calls(self) -> bool {
        self.tail != Tail::Split
    }

    /// num_oom_rejections exists.
    pub fn has_rejections(self) -> bool {
        self.tail == Tail::Rejections
    }

    /// The releases that have exactly these counters, for people.
    pub fn releases(self) -> &'static str {
        match (self.map, self.tail) {
            (false, Tail::Split) => "the counters of torch 2.0 to 2.2",
            (false, Tail::DriverCalls) => "the counters of torch 2.3 to 2.11",
            (true, Tail::Rejections) => "the counters of torch 2.13 and later",
            (false, Tail::Rejections) => "the counters of torch 2.12",
            (true, Tail::Split) => "the counters of torch 2.0 and those of private pools",
            (true, Tail::DriverCalls) => "the counters of torch 2.11 and those of private pools",
        }
    }
}

/// Where things lie inside a device's allocator, in words from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// First word of the counters.
    pub start: usize,
    /// Which counters there are.
    pub shape: Shape,
    /// The comparator word of the first tree: the free blocks of the large pool.
    pub tree: usize,
}

impl Layout {
    /// One past the last word of the counters.
    pub fn end(&self) -> usize {
        self.start + self.shape.words()
    }

    /// The first tree follows the counters as in every release examined: directly, or after the device's number.
    fn is_usual(&self, words: &[u64], ordinal: usize) -> bool {
        let gap = self.tree - self.end();
        let numbered = || words.get(self.end()).is_some_and(|w| w & 0xff == ordinal as u64 & 0xff);
        self.start == USUAL_START && (gap == 0 || (gap == 1 && numbered()))
    }
}

/// A layout that fits one device's allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The layout.
    pub layout: Layout,
    /// It is of the usual form, whose parts prove one another.
    pub usual: bool,
    /// The counters have moved, so that their relations prove the layout.
    pub history: bool,
}

/// What is known of the target's other memory while one allocator is looked at.
pub struct Pointers<'a> {
    /// Whether an address can be a node of a tree.
    pub sound: &'a dyn Fn(u64) -> bool,
    /// Reads the parent of a node.
    pub parent: &'a dyn Fn(u64) -> Option<u64>,
}

/// Whether words `w ..` are the header of a `std::set` at `address` (a red-black tree: comparator, colour, root, leftmost,
/// rightmost, count). The parent of the root is the header.
pub fn is_tree(words: &[u64], w: usize, base: u64, pointers: &Pointers<'_>) -> bool {
    let Some([_, colour, root, left, right, count]) = words.get(w..w + 6).and_then(|s| <[u64; 6]>::try_from(s).ok())
    else {
        return false;
    };
    let header = base.wrapping_add(8 * (w as u64 + 1));
    if colour as u32 != 0 {
        return false;
    }
    if root == 0 {
        return left == header && right == header && count == 0;
    }
    (1..=1 << 26).contains(&count)
        && [root, left, right]
            .iter()
            .all(|p| p.is_multiple_of(8) && (pointers.sound)(*p))
        && (pointers.parent)(root) == Some(header)
}

/// Whether four words look like the flat hash map of private pools (allocator-spec 7.4): slots, their number less one, a
/// word of small fields with the load factor 0.5 in its upper half, and the number of entries.
pub fn is_pool_map(words: &[u64]) -> bool {
    let &[slots, mask, fields, entries] = words else {
        return false;
    };
    slots != 0
        && slots.is_multiple_of(8)
        && mask < 1 << 32
        && (mask + 1).is_power_of_two()
        && fields >> 32 == 0x3f00_0000
        && entries <= mask + 1
}

/// Every layout that fits the allocator whose first words are `words`, at address `base`, of device `ordinal`.
pub fn candidates(words: &[u64], base: u64, ordinal: usize, pointers: &Pointers<'_>) -> Vec<Candidate> {
    // Rule 6: the first tree, looked for from the shortest possible end.
    let trees: Vec<usize> = (USUAL_START + 108..words.len())
        .filter(|w| is_tree(words, *w, base, pointers))
        .collect();
    let mut found = Vec::new();
    for start in USUAL_START..=USUAL_START + START_SLACK {
        let Some(stats) = words.get(start..) else { break };
        let map = stats.get(MAP_AT..MAP_AT + 4).is_some_and(is_pool_map);
        // In this order: where two tails fit, the one with a device number behind it is the true one (rule 7).
        for tail in [Tail::DriverCalls, Tail::Split, Tail::Rejections] {
            let shape = Shape { map, tail };
            let end = start + shape.words();
            let Some(tree) = trees.iter().copied().find(|w| *w + 1 >= end) else {
                continue;
            };
            // A tree that begins inside the counters refutes them. Its first word may be any value, so one word of
            // overlap is the comparator's place and no proof.
            if tree < end
                || tree > end + TREE_SLACK
                || !stats.get(shape.words() - 1).is_some_and(|w| is_max_split(*w as i64))
            {
                continue;
            }
            let Some(stats) = decode(stats, shape).filter(|s| broken_invariant(s).is_none()) else {
                continue;
            };
            let layout = Layout { start, shape, tree };
            found.push(Candidate {
                layout,
                usual: layout.is_usual(words, ordinal),
                history: has_history(&stats),
            });
        }
    }
    found
}

/// The outcome of comparing the devices' candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One layout, of the usual form, whose parts prove one another.
    Usual(Layout),
    /// One layout of another form, proven by counters that moved.
    Shifted(Layout),
    /// Layouts fit and none is proven: counters that never moved can be read in several ways.
    Undecided,
    /// Nothing fits.
    Unknown,
}

/// The layout on which all devices agree. A usual one is taken at once; any other only when it is the single one left and
/// at least one device has counters that moved.
pub fn agree(devices: &[Vec<Candidate>]) -> Verdict {
    let Some(first) = devices.first() else {
        return Verdict::Unknown;
    };
    let fits = |layout: Layout, usual: bool| {
        devices
            .iter()
            .all(|d| d.iter().any(|c| c.layout == layout && (c.usual || !usual)))
    };
    if let Some(c) = first.iter().find(|c| c.usual && fits(c.layout, true)) {
        return Verdict::Usual(c.layout);
    }
    let left: Vec<Layout> = first.iter().map(|c| c.layout).filter(|l| fits(*l, false)).collect();
    let moved = |layout: Layout| devices.iter().flatten().any(|c| c.layout == layout && c.history);
    match left[..] {
        [] => Verdict::Unknown,
        [only] if moved(only) => Verdict::Shifted(only),
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;

    fn pointers<'a>() -> Pointers<'a> {
        Pointers {
            sound: &|p| p > 0x7000_0000_0000,
            parent: &|_| Some(BASE + 8),
        }
    }

    #[test]
    fn a_tree_points_at_itself_or_is_pointed_at_by_its_root() {
        let tree = |words: [u64; 6]| is_tree(&words, 0, BASE, &pointers());
        assert!(tree([9, 0, 0, BASE + 8, BASE + 8, 0]), "empty");
        assert!(
            tree([9, 0xffff_ffff_0000_0000, 0, BASE + 8, BASE + 8, 0]),
            "the colour has four bytes"
        );
        assert!(!tree([9, 0, 0, BASE, BASE + 8, 0]) && !tree([9, 0, 0, BASE + 8, BASE + 8, 1]));
        assert!(!tree([9, 1, 0, BASE + 8, BASE + 8, 0]), "a red header");
        let node = BASE + 0x1000;
        assert!(tree([9, 0, node, node, node, 1]), "filled");
        assert!(!tree([9, 0, node, node, node, 0]) && !tree([9, 0, node, node, 0x10, 1]));
        assert!(!tree([9, 0, node, node, node, 1 << 27]), "absurdly large");
        let orphan = Pointers {
            sound: &|_| true,
            parent: &|_| Some(BASE),
        };
        assert!(!is_tree(&[9, 0, node, node, node, 1], 0, BASE, &orphan));
        assert!(!is_tree(&[9, 0, node], 0, BASE, &pointers()), "cut off");
    }

    #[test]
    fn the_map_of_pools_is_told_from_counters() {
        assert!(is_pool_map(&[BASE, 0, 0x3f00_0000_0000_043d, 0]));
        assert!(is_pool_map(&[BASE, 7, 0x3f00_0000_0000_043d, 8]));
        for no in [
            [0, 7, 0x3f00_0000_0000_043d, 2],
            [BASE, 6, 0x3f00_0000_0000_043d, 2],
            [BASE, 7, 0x3f80_0000_0000_043d, 2],
            [BASE, 7, 0x3f00_0000_0000_043d, 9],
            [512, 1024, 2048, 1536],
            [BASE, u64::MAX, 0x3f00_0000_0000_043d, 2],
        ] {
            assert!(!is_pool_map(&no), "{no:x?}");
        }
    }

    #[test]
    fn only_agreement_or_one_proven_layout_counts() {
        let layout = |start: usize| Layout {
            start,
            shape: Shape {
                map: false,
                tail: Tail::DriverCalls,
            },
            tree: start + 122,
        };
        let candidate = |start, usual, history| Candidate {
            layout: layout(start),
            usual,
            history,
        };
        assert_eq!(agree(&[]), Verdict::Unknown);
        assert_eq!(agree(&[vec![]]), Verdict::Unknown);
        assert_eq!(agree(&[vec![candidate(5, true, false)]]), Verdict::Usual(layout(5)));
        // The devices do not agree.
        let (usual, other) = (vec![candidate(5, true, true)], vec![candidate(7, false, true)]);
        assert_eq!(agree(&[usual.clone(), other.clone()]), Verdict::Unknown);
        // Another form needs counters that moved, on one device at least, and to be the only one.
        let still = vec![candidate(7, false, false)];
        assert_eq!(agree(&[still.clone(), still.clone()]), Verdict::Undecided);
        assert_eq!(agree(&[still.clone(), other.clone()]), Verdict::Shifted(layout(7)));
        let two = vec![candidate(7, false, true), candidate(9, false, true)];
        assert_eq!(agree(&[two.clone(), two]), Verdict::Undecided);
    }
}
