//! What the allocator's thread holds, as plain data that everyone may read.

use std::sync::Arc;

use super::tensor::{Dtype, Shape};
use crate::allocator::Report;
use crate::allocator::stats::DeviceStats;
use crate::clock::Moment;
use crate::driver::StreamId;
use crate::units::Bytes;

/// The name of one block of this program: counted from 1, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub u64);

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Device memory from the caching allocator.
    Gpu,
    /// Host memory.
    Cpu,
}

/// One block of this program that lives, or that was deleted and waits for a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Its name.
    pub key: BlockKey,
    /// Where it lies.
    pub place: Place,
    /// Its shape.
    pub shape: Shape,
    /// Its element type.
    pub dtype: Dtype,
    /// Bytes as asked for.
    pub bytes: Bytes,
    /// Bytes of the block that holds it.
    pub block_bytes: Bytes,
    /// When it was made.
    pub made: Moment,
    /// The stream it was made on, as this program counts them.
    pub stream: StreamId,
    /// Deleted, but another stream's work is outstanding.
    pub pending: bool,
    /// Its address.
    pub address: u64,
}

/// Everything that the allocator's thread holds, after its last command.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Blocks, oldest first.
    pub blocks: Vec<LiveBlock>,
    /// The allocator's counters.
    pub stats: DeviceStats,
    /// Its segments and blocks.
    pub report: Arc<Report>,
    /// The current stream, as this program counts them.
    pub stream: StreamId,
    /// The driver's handle of each stream that this program counts; the first is the default stream.
    pub streams: Vec<StreamId>,
    /// The configuration text that holds.
    pub conf: String,
    /// The PyTorch release whose rules hold.
    pub torch: String,
    /// The GPU has been used: a context exists.
    pub context_made: bool,
    /// Bytes of the live host blocks.
    pub host_bytes: Bytes,
    /// The thread has ended; why. Nothing that is sent to it is done any more.
    pub ended: Option<Arc<str>>,
}
