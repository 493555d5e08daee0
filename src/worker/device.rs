//! The commands that concern the device: each is what a line of PyTorch would do.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use super::command::{Done, Refusal};
use super::owner::{Owner, size_of};
use super::setup::Setup;
use super::state::{BlockKey, LiveBlock, Place};
use super::tensor::{Dtype, Shape};
use crate::allocator::Allocator;
use crate::allocator::size::{ONE_EXABYTE, SMALL_LIMIT, SMALL_SEGMENT, block_size, segment_size};
use crate::driver::{Driver, StreamId};
use crate::snapshot;
use crate::units::{Bytes, MIB};

/// How long [`super::Command::BusyStream`] keeps a stream busy: long enough to look at the pending block.
pub const BUSY_FOR: Duration = Duration::from_secs(5);

/// The ceiling of the out-of-memory lesson is at least this, and the request exceeds it by as much.
const LESSON: u64 = 64 * MIB;

impl Owner {
    pub(super) fn alloc_gpu(&mut self, shape: &Shape, dtype: Dtype) -> Result<Done, Refusal> {
        let bytes = size_of(shape, dtype)?;
        self.within_budget_at_once(bytes)?;
        let stream = self.handle(self.stream)?;
        self.within_budget(bytes, stream)?;
        let taken = self.allocator.stats().reserved_bytes.all.allocated;
        let address = self.timed(|a| a.malloc(bytes, stream))?;
        if let Err(error) = self.meter.fill(address, bytes, stream) {
            self.allocator.free(address)?;
            return Err(error.into());
        }
        let block_bytes = Bytes(self.allocator.block(address).map_or(bytes, |b| b.size));
        let entry = LiveBlock {
            block_bytes,
            ..self.entry(Place::Gpu, shape, dtype, bytes, address)
        };
        let key = self.hold(entry, None);
        let cached = self.allocator.stats().reserved_bytes.all.allocated == taken;
        Ok(Done::Made {
            key,
            bytes: Bytes(bytes),
            block_bytes,
            cached,
        })
    }

    /// What the driver would have to give for a request that the cache cannot serve.
    fn growth(&self, bytes: u64) -> u64 {
        let (config, rules) = (self.allocator.config(), self.allocator.rules());
        let size = block_size(bytes, config, rules);
        if config.expandable_segments && rules.expandable_segments {
            let granule = if size <= SMALL_LIMIT {
                SMALL_SEGMENT
            } else {
                config.large_segment_size
            };
            return size.checked_next_multiple_of(granule).unwrap_or(u64::MAX);
        }
        segment_size(size, config)
    }

    fn reserved(&self) -> Bytes {
        Bytes(self.allocator.stats().reserved_bytes.all.current as u64)
    }

    /// Refuses what the budget forbids on any device, before anything is made on this one.
    fn within_budget_at_once(&self, bytes: u64) -> Result<(), Refusal> {
        // The allocator itself refuses an exabyte, in PyTorch's words and without the driver.
        if bytes < ONE_EXABYTE && self.growth(bytes) > self.reserved().0 {
            self.budget.device_at_once(Bytes(0), Bytes(self.growth(bytes)))?;
        }
        Ok(())
    }

    fn within_budget(&mut self, bytes: u64, stream: StreamId) -> Result<(), Refusal> {
        if bytes >= ONE_EXABYTE || self.allocator.would_hit(bytes, stream) {
            return Ok(());
        }
        let free = self.meter.aside(|d| d.mem_info())?.free;
        self.budget
            .device(self.reserved(), Bytes(self.growth(bytes)), Bytes(free))?;
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<Done, Refusal> {
        let before = self.reserved();
        self.timed(Allocator::empty_cache)?;
        let kept = self.reserved();
        Ok(Done::Flushed {
            returned: Bytes(before.0.saturating_sub(kept.0)),
            kept,
        })
    }

    /// The stream beside the current one, for the lessons about streams.
    fn side(&self) -> StreamId {
        StreamId(if self.stream.0 == 1 { 2 } else { 1 })
    }

    pub(super) fn record_and_delete(&mut self, key: BlockKey) -> Result<Done, Refusal> {
        let at = self.find(key)?;
        if self.blocks[at].block.place == Place::Cpu {
            return Err(Refusal::Invalid(
                "a CPU block belongs to no stream: d deletes it".into(),
            ));
        }
        let address = self.blocks[at].block.address;
        let side = self.side();
        let side = self.handle(side)?;
        self.timed(|a| a.record_stream(address, side))?;
        self.delete_at(at)
    }

    pub(super) fn busy_stream(&mut self) -> Result<Done, Refusal> {
        let side = self.side();
        let handle = self.handle(side)?;
        self.meter.keep_busy(handle, BUSY_FOR)?;
        Ok(Done::Busy(side, BUSY_FOR))
    }

    /// An OutOfMemory that takes nothing from anybody: a ceiling by memory fraction at what is reserved now, a request
    /// above it, and the ceiling off again.
    pub(super) fn out_of_memory(&mut self) -> Result<Done, Refusal> {
        let total = self.meter.aside(|d| d.device_total())?;
        let ceiling = self.reserved().0.max(LESSON);
        let stream = self.handle(self.stream)?;
        let fraction = self.allocator.config().memory_fraction.unwrap_or(1.0);
        self.allocator
            .set_memory_fraction((ceiling as f64 / total.max(1) as f64).min(1.0))?;
        // No cached block is as large as all that is reserved, so the cache cannot serve this.
        let result = self.timed(|a| a.malloc(ceiling + LESSON, stream));
        self.allocator.set_memory_fraction(fraction)?;
        let address = result?;
        self.allocator.free(address)?;
        Err(Refusal::Invalid("the device gave the memory all the same".into()))
    }

    pub(super) fn reconfigure(&mut self, conf: &str, torch: Option<&str>) -> Result<Done, Refusal> {
        let present = self.setup.torch();
        let setup = Setup::read(conf, Some(torch.unwrap_or(&present)))?;
        while let Some(at) = self
            .blocks
            .iter()
            .rposition(|h| h.block.place == Place::Gpu && !h.block.pending)
        {
            self.delete_at(at)?;
        }
        self.timed(Allocator::empty_cache)?;
        self.blocks.retain(|h| h.block.place == Place::Cpu);
        self.allocator = Allocator::new(self.meter.clone(), setup.settings.clone());
        self.log.clear();
        self.setup = setup;
        Ok(Done::Reconfigured {
            conf: self.setup.conf.clone(),
            torch: self.setup.torch(),
            notes: self.setup.notes.clone(),
        })
    }

    /// Writes what the allocator holds and its newest events, as torch.cuda.memory._dump_snapshot does.
    pub(super) fn snapshot(&mut self, path: &Path) -> Result<Done, Refusal> {
        let (rules, config) = (self.allocator.rules(), self.allocator.config());
        let events = self.log.make_contiguous();
        let written = File::create(path).and_then(|file| {
            let mut out = BufWriter::new(file);
            snapshot::write(&self.allocator.report(), events, rules, config, &mut out)?;
            out.flush()
        });
        written.map_err(|e| {
            let path = path.display();
            Refusal::Invalid(format!(
                "the snapshot {path} cannot be written: {e}; choose another folder"
            ))
        })?;
        self.allocator.log_snapshot();
        Ok(Done::Written(path.to_owned()))
    }
}
