//! What the screen asks the allocator's thread to do, and what came of it.

use std::path::PathBuf;
use std::time::Duration;

use super::state::BlockKey;
use super::tensor::{Dtype, Shape};
use crate::allocator::TraceEntry;
use crate::allocator::stats::DeviceStats;
use crate::clock::Moment;
use crate::driver::StreamId;
use crate::units::Bytes;

/// One request to the allocator's thread. Requests are done in the order in which they were sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `torch.zeros(shape, dtype=dtype, device="cuda")` on the current stream: allocated, and every page written.
    AllocGpu {
        /// Its shape.
        shape: Shape,
        /// Its element type.
        dtype: Dtype,
    },
    /// The same on the host: real memory, every page written.
    AllocCpu {
        /// Its shape.
        shape: Shape,
        /// Its element type.
        dtype: Dtype,
    },
    /// `del` of one block.
    Delete(BlockKey),
    /// `del` of every block.
    DeleteAll,
    /// `torch.cuda.empty_cache()`.
    Flush,
    /// `torch.cuda.reset_peak_memory_stats()`.
    ResetPeaks,
    /// Makes this the current stream: 0 is the default stream, 1 and up are streams of this program, made when first
    /// used. (The driver's own handles are in [`super::State::streams`].)
    Stream(StreamId),
    /// `tensor.record_stream(side)`, then `del`: the block waits for the side stream's work.
    RecordAndDelete(BlockKey),
    /// Gives the side stream work that lasts some seconds.
    BusyStream,
    /// Makes the next segment impossible by the memory fraction, asks for one, and sets the fraction back: an
    /// OutOfMemory that harms nobody.
    OutOfMemory,
    /// A fresh allocator with another configuration; the blocks of the old one are deleted and flushed first.
    Reconfigure {
        /// The text of PYTORCH_CUDA_ALLOC_CONF.
        conf: String,
        /// The PyTorch release whose rules hold; `None` keeps the present one.
        torch: Option<String>,
    },
    /// Writes a snapshot that pytorch.org/memory_viz opens.
    Snapshot(PathBuf),
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// A block was made.
    Made {
        /// Its key in [`super::State::blocks`].
        key: BlockKey,
        /// Bytes as asked for.
        bytes: Bytes,
        /// Bytes of the block that the allocator gave (as asked for on the host).
        block_bytes: Bytes,
        /// True if the block came from the cache: no driver call was made.
        cached: bool,
    },
    /// So many blocks were deleted, GPU bytes counted in blocks.
    Deleted {
        /// How many.
        blocks: usize,
        /// Bytes that left *allocated*.
        gpu: Bytes,
        /// Bytes that went back to the host's kernel.
        cpu: Bytes,
        /// Blocks of these that wait for another stream.
        pending: usize,
    },
    /// The cache was flushed: so many bytes went back to the driver.
    Flushed {
        /// The fall of *reserved*.
        returned: Bytes,
        /// What stays reserved: live or pending blocks, and free parts of segments that hold one.
        kept: Bytes,
    },
    /// Peaks start again at the current values.
    PeaksReset,
    /// This is the current stream now.
    Stream(StreamId),
    /// The stream has work for this long.
    Busy(StreamId, Duration),
    /// A fresh allocator with these settings.
    Reconfigured {
        /// The configuration text.
        conf: String,
        /// The release whose rules hold.
        torch: String,
        /// What the configuration's reader had to say (keys without effect here, a release that was never examined).
        notes: Vec<String>,
    },
    /// A snapshot was written here.
    Written(PathBuf),
}

/// Why a command was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The budget or the host's ceiling forbids it; the allocator was not asked and no counter moved (design rule 16).
    #[error("{0}")]
    Budget(String),
    /// The allocator's OutOfMemory, in PyTorch's words.
    #[error("{0}")]
    OutOfMemory(String),
    /// The driver is missing or failed; names the next step.
    #[error("{0}")]
    Driver(String),
    /// The command itself cannot be done: no such block, a bad configuration, a file that cannot be written.
    #[error("{0}")]
    Invalid(String),
}

/// One call of the driver within a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCall {
    /// The driver's function.
    pub name: &'static str,
    /// Bytes that it was about; 0 where it has no size.
    pub size: u64,
    /// Measured on a card, modelled on the simulated one.
    pub took: Duration,
    /// The driver refused.
    pub failed: bool,
}

/// What the first use of the GPU cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextCost {
    /// Bytes that the driver charges to this process for it, where the driver tells (the simulated one does; on a card
    /// the monitor's next reading shows them).
    pub process: Option<Bytes>,
    /// How long making it took.
    pub took: Duration,
}

/// What came of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When it was done.
    pub at: Moment,
    /// What was asked.
    pub command: Command,
    /// What was done, or why not.
    pub result: Result<Done, Refusal>,
    /// The counters before.
    pub before: DeviceStats,
    /// The counters after.
    pub after: DeviceStats,
    /// The driver's calls, in order.
    pub calls: Vec<DriverCall>,
    /// The allocator's own events of this command, in order.
    pub events: Vec<TraceEntry>,
    /// How long the action took: the allocator's own time and its driver calls, without the writing of the pages and
    /// without the context's making.
    pub took: Duration,
    /// Set on the command that made the context.
    pub first_use: Option<ContextCost>,
}
