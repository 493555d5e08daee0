//! A lane: the free blocks of one pool half (small or large) on one stream, ordered as PyTorch's comparator orders them
//! (size, from 2.13 the number of the segment, address), and its unmapped ranges by address.
//!
//! PyTorch keeps one set per half keyed by the stream first. A search never leaves its stream, so one set per stream
//! gives the same blocks; walks over a half visit its lanes in ascending order of the stream's handle.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::block::BlockId;
use crate::driver::StreamId;

/// The place of a free block in its lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeKey {
    pub size: u64,
    /// 0 unless ties go by segment.
    pub segment: u32,
    pub id: BlockId,
    pub address: u64,
}

#[cfg(test)]
thread_local! {
    /// Comparisons made in trees by this thread: the cost that issue 4 bounds.
    pub(super) static COMPARISONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Ord for FreeKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        COMPARISONS.with(|c| c.set(c.get() + 1));
        (self.size, self.segment, self.address).cmp(&(other.size, other.segment, other.address))
    }
}

impl PartialOrd for FreeKey {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for FreeKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for FreeKey {}

impl FreeKey {
    /// The smallest key of at least `size` bytes.
    pub fn at_least(size: u64) -> FreeKey {
        FreeKey {
            size,
            segment: 0,
            id: 0,
            address: 0,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lane {
    /// Index of the pool in `Heap::pools`.
    pub pool: u32,
    pub small: bool,
    pub stream: StreamId,
    pub free: BTreeSet<FreeKey>,
    pub unmapped: BTreeSet<(u64, BlockId)>,
}
