//! PyTorch's caching allocator: no I/O, no clock, no threads, no printing; it fails only with a value.
//!
//! The rules are those of c10/cuda/CUDACachingAllocator, release by release (see [`Rules`]). Structure:
//!
//! * `size`, `config`, `rules`: from the request to the block, and what changes that;
//! * `block`, `lane`, `pool`, `heap`, `place`: the blocks and where they go, without the driver;
//! * `ladder`, `flush`, `expandable`, `pending`: what calls the driver;
//! * `stats`, `keys`, `summary`, `event`, `report`, `oom`: what it says;
//! * `check`: the invariants.
//!
//! Architecture invariant: nothing here knows which driver it runs on, and no counter is derived from another one.

mod block;
mod check;
pub mod config;
pub mod event;
mod expandable;
mod flush;
mod free_set;
mod heap;
pub mod keys;
mod ladder;
mod lane;
mod live;
pub mod oom;
mod pending;
mod place;
pub mod pool;
pub mod report;
mod restore;
pub mod rules;
pub mod size;
pub mod stats;
mod summary;

use std::collections::{BTreeMap, VecDeque};

use crate::driver::{Driver, DriverError, EventId, StreamId};

use block::{BlockId, NONE, State};
pub use check::Violation;
pub use config::Config;
pub use event::{Action, TraceEntry};
use expandable::Range;
use heap::Heap;
pub use keys::memory_stats;
pub use oom::{OomKind, OutOfMemory, ProcessUse};
use pool::Redirection;
pub use pool::{Filter, PoolError, PoolId, PoolOptions};
pub use report::{BlockReport, BlockState, RangeReport, Report, SegmentReport};
pub use rules::Rules;
pub use stats::DeviceStats;
pub use summary::memory_summary;

/// What an allocator is made with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Whose rules hold: the newest examined release by default.
    pub rules: Rules,
    /// PyTorch's defaults by default.
    pub config: Config,
}

/// Why an operation failed. After any failure the invariants hold and the allocator can be used on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AllocError {
    /// The whole ladder could not find memory.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),
    /// The driver failed with something else than a lack of memory.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// No live block begins at this address (it may have been freed already).
    #[error("invalid device pointer: {0:#x}")]
    UnknownAddress(u64),
    /// PyTorch's own sentence for a fraction outside 0 .. 1.
    #[error("invalid fraction:{0}. Please set within [0, 1].")]
    Fraction(f64),
    /// A wrong use of private pools.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The release whose rules hold stops here with an internal assert; the sentence says where.
    #[error("torch {release} stops here with an internal assert: {what}")]
    Assert {
        /// The release.
        release: rules::Release,
        /// What it meets.
        what: &'static str,
    },
}

/// A block as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// First byte.
    pub address: u64,
    /// Bytes of the block.
    pub size: u64,
    /// Bytes as asked for.
    pub requested: u64,
    /// Its stream.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolId,
    /// Given back, but an event or a capture still holds it.
    pub pending: bool,
    /// It comes from the small pool.
    pub small: bool,
}

/// Events of one stream, each with the block that waits for it, oldest first.
type Queue = VecDeque<(EventId, BlockId)>;

/// A caching allocator on one device. See the module. A clone (of one on a driver that can be cloned) answers what-if
/// questions.
#[derive(Clone, Debug)]
pub struct Allocator<D: Driver> {
    driver: D,
    heap: Heap,
    redirections: Vec<Redirection>,
    captures: u32,
    /// Blocks that were freed under a capture while other streams used them.
    deferred: Vec<BlockId>,
    queues: Vec<(StreamId, Queue)>,
    ranges: BTreeMap<u32, Range>,
    /// Numbers of segments and of address ranges: both only grow.
    next_segment: u32,
    next_range: u32,
    /// A fraction that was configured and waits for the first request, so that no context is made before.
    fraction: Option<f64>,
    device_total: Option<u64>,
    device: u32,
}

impl<D: Driver> Allocator<D> {
    /// An allocator that holds nothing. Makes no driver call: a configured memory fraction takes effect with the first
    /// request.
    pub fn new(driver: D, settings: Settings) -> Self {
        let fraction = settings
            .config
            .memory_fraction
            .filter(|_| settings.rules.generic_config);
        Allocator {
            driver,
            heap: Heap::new(settings.rules, settings.config),
            redirections: Vec::new(),
            captures: 0,
            deferred: Vec::new(),
            queues: Vec::new(),
            ranges: BTreeMap::new(),
            next_segment: 1,
            next_range: 0,
            fraction,
            device_total: None,
            device: 0,
        }
    }

    /// Gives a block back. With uses on other streams it stays active until their events have completed.
    ///
    /// # Errors
    /// [`AllocError::UnknownAddress`] for an address that is not a live block's; a driver error while recording events.
    pub fn free(&mut self, address: u64) -> Result<(), AllocError> {
        if address == 0 {
            return Ok(());
        }
        let id = self.live_block(address)?;
        self.heap.give_back(id);
        if !self.heap.blocks[id].used {
            self.heap.finish(id);
            return Ok(());
        }
        if self.capture_underway() {
            self.deferred.push(id);
            return Ok(());
        }
        self.insert_events(id)
    }

    fn live_block(&self, address: u64) -> Result<BlockId, AllocError> {
        let id = self.heap.live.get(&address).copied();
        id.filter(|id| self.heap.blocks[*id].state == State::Live)
            .ok_or(AllocError::UnknownAddress(address))
    }

    /// The block at `address`, live or pending.
    pub fn block(&self, address: u64) -> Option<BlockInfo> {
        let id = *self.heap.live.get(&address)?;
        let block = &self.heap.blocks[id];
        Some(BlockInfo {
            address,
            size: block.size,
            requested: block.requested,
            stream: self.heap.stream(id),
            pool: self.heap.pool_id(id),
            pending: block.state == State::Pending,
            small: self.heap.small(id),
        })
    }

    /// Every counter.
    pub fn stats(&self) -> &DeviceStats {
        &self.heap.stats
    }

    /// `torch.cuda.reset_peak_memory_stats`: every peak becomes the current value.
    pub fn reset_peak(&mut self) {
        self.heap.stats.reset_peak();
    }

    /// `torch.cuda.reset_accumulated_memory_stats`: sums and event counts become 0.
    pub fn reset_accumulated(&mut self) {
        self.heap.stats.reset_accumulated();
    }

    /// The rules that hold.
    pub fn rules(&self) -> &Rules {
        &self.heap.rules
    }

    /// The configuration that holds.
    pub fn config(&self) -> &Config {
        &self.heap.config
    }

    /// Replaces the configuration at run time. Blocks stay as they are; max_split_size in the counters and a memory
    /// fraction keep the values they had when the allocator was made (allocator-spec 1.4, 3.2).
    pub fn set_config(&mut self, config: Config) {
        self.heap.config = config;
    }

    /// The ceiling on reserved bytes, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.heap.limit
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The driver, for settings of its own. Memory that the allocator holds must not be freed through it.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The device's number in the out-of-memory sentence; 0 unless set.
    pub fn set_device(&mut self, device: u32) {
        self.device = device;
    }

    /// The time stamp of the events from now on, in microseconds. The allocator itself reads no clock.
    pub fn set_time(&mut self, time_us: u64) {
        self.heap.events.time_us = time_us;
    }

    /// How many events the log holds (65,536 unless set); older ones are dropped.
    pub fn set_event_capacity(&mut self, entries: usize) {
        self.heap.events.set_capacity(entries);
    }

    /// The events since the last take, oldest first, without those that [`Allocator::events_dropped`] counts.
    pub fn take_events(&mut self) -> Vec<TraceEntry> {
        self.heap.events.take()
    }

    /// As `take_events`, appending to `out`, so that a caller in a loop allocates nothing.
    pub fn drain_events(&mut self, out: &mut Vec<TraceEntry>) {
        self.heap.events.drain_into(out);
    }

    /// Events that were dropped since the last take because the log was full.
    pub fn events_dropped(&self) -> u64 {
        self.heap.events.dropped
    }

    /// Logs that a snapshot was taken, as PyTorch does after it has copied its log.
    pub fn log_snapshot(&mut self) {
        let active = self.heap.stats.active_bytes.all.current as u64;
        self.heap
            .events
            .push(Action::Snapshot, 0, active, StreamId(0), PoolId::DEFAULT);
    }

    /// Segments with their blocks, by address. Of an expandable segment every run of mapped granules is one entry.
    pub fn report(&self) -> Report {
        let mut segments = Vec::new();
        for first in self.heap.segments.values() {
            let mut id = *first;
            let mut run: Option<SegmentReport> = None;
            while id != NONE {
                let block = &self.heap.blocks[id];
                if block.state == State::Unmapped {
                    segments.extend(run.take());
                } else {
                    let run = run.get_or_insert_with(|| self.empty_segment(id));
                    run.size += block.size;
                    run.blocks.push(BlockReport {
                        address: block.address,
                        size: block.size,
                        requested: block.requested,
                        state: match block.state {
                            State::Live => BlockState::Live,
                            State::Pending => BlockState::Pending,
                            State::Free | State::Unmapped | State::Vacant => BlockState::Free,
                        },
                    });
                }
                id = block.next;
            }
            segments.extend(run);
        }
        Report { segments }
    }

    fn empty_segment(&self, first: BlockId) -> SegmentReport {
        SegmentReport {
            address: self.heap.blocks[first].address,
            size: 0,
            stream: self.heap.stream(first),
            small: self.heap.small(first),
            pool: self.heap.pool_id(first),
            expandable: self.heap.blocks[first].expandable,
            blocks: Vec::new(),
        }
    }
}
