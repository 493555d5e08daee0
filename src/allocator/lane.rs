//! A lane: the free blocks of one pool half (small or large) on one stream in PyTorch's order, and its unmapped ranges by
//! address.
//!
//! PyTorch keeps one set per half keyed by the stream first. A search never leaves its stream, so one set per stream
//! gives the same blocks; walks over a half visit its lanes in ascending order of the stream's handle.

use std::collections::BTreeSet;

use super::block::BlockId;
use super::free_set::FreeSet;
use crate::driver::StreamId;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    /// Index of the pool in `Heap::pools`.
    pub pool: u32,
    pub small: bool,
    pub stream: StreamId,
    pub free: FreeSet,
    pub unmapped: BTreeSet<(u64, BlockId)>,
}
