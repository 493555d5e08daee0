//! What the memory looks like now, as plain data: segments, each with its blocks. The same shape describes our own
//! allocator, a snapshot file and an attached process, so that every pane works on all three.

use super::pool::PoolId;
use crate::driver::StreamId;

/// Every segment of one device, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments in ascending order of address.
    pub segments: Vec<SegmentReport>,
}

/// Memory got from the driver in one piece, or a run of mapped granules of an expandable segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// First byte.
    pub address: u64,
    /// Bytes; the blocks add up to it.
    pub size: u64,
    /// The stream whose blocks it holds.
    pub stream: StreamId,
    /// It belongs to the small pool (blocks of at most 1 MiB).
    pub small: bool,
    /// Its pool; (0, 0) is the default pool.
    pub pool: PoolId,
    /// Part of an expandable segment.
    pub expandable: bool,
    /// Its blocks in ascending order of address.
    pub blocks: Vec<BlockReport>,
}

/// One block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockReport {
    /// First byte.
    pub address: u64,
    /// Bytes of the block.
    pub size: u64,
    /// Bytes as asked for; of a free block: by its last owner, 0 if it had none (PyTorch keeps the stale value too).
    pub requested: u64,
    /// What it is used for.
    pub state: BlockState,
}

/// The addresses of one expandable segment, with or without memory behind them. What of them no segment of the report
/// covers is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeReport {
    /// First byte.
    pub address: u64,
    /// Bytes of address space.
    pub size: u64,
    /// Bytes that are mapped at a time.
    pub granule: u64,
    /// Bytes that are mapped.
    pub mapped: u64,
    /// The stream whose blocks it holds.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolId,
}

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Owned by the caller.
    Live,
    /// Given back, but an event on another stream has not completed.
    Pending,
    /// Cached.
    Free,
}

impl BlockState {
    /// PyTorch's name of the state in a snapshot.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::Live => "active_allocated",
            BlockState::Pending => "active_pending_free",
            BlockState::Free => "inactive",
        }
    }

    /// The state of that name; older files write `active_awaiting_free` for a pending block.
    pub fn from_name(name: &str) -> Option<BlockState> {
        match name {
            "active_allocated" => Some(BlockState::Live),
            "active_pending_free" | "active_awaiting_free" => Some(BlockState::Pending),
            "inactive" => Some(BlockState::Free),
            _ => None,
        }
    }
}

impl SegmentReport {
    /// Bytes of live blocks.
    pub fn allocated(&self) -> u64 {
        self.sum(|b| b.state == BlockState::Live, |b| b.size)
    }

    /// Bytes of live and pending blocks.
    pub fn active(&self) -> u64 {
        self.sum(|b| b.state != BlockState::Free, |b| b.size)
    }

    /// Bytes asked for by live and pending blocks.
    pub fn requested(&self) -> u64 {
        self.sum(|b| b.state != BlockState::Free, |b| b.requested)
    }

    /// Bytes of its largest free block; 0 if it has none.
    pub fn largest_free(&self) -> u64 {
        self.blocks
            .iter()
            .filter(|b| b.state == BlockState::Free)
            .map(|b| b.size)
            .max()
            .unwrap_or_default()
    }

    /// A flush would give it back: no live or pending block in it (regular segments).
    pub fn wholly_free(&self) -> bool {
        self.blocks.iter().all(|b| b.state == BlockState::Free)
    }

    fn sum(&self, which: impl Fn(&BlockReport) -> bool, what: impl Fn(&BlockReport) -> u64) -> u64 {
        self.blocks.iter().filter(|b| which(b)).map(what).sum()
    }
}
