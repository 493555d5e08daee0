//! Who owns the allocator: one command after the other, without a thread of its own (the thread is in [`super`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::command::{Command, ContextCost, Done, Outcome, Refusal};
use super::host::HostBlock;
use super::meter::Meter;
use super::setup::Setup;
use super::state::{BlockKey, LiveBlock, Place, State};
use super::tensor::{Dtype, Shape};
use crate::allocator::{AllocError, Allocator, TraceEntry};
use crate::budget::{Budget, OverBudget};
use crate::clock::{Clock, Moment, timed};
use crate::driver::{Driver, DriverError, StreamId};
use crate::units::Bytes;

/// How many streams this program counts: the default one and some of its own.
pub(super) const MAX_STREAMS: u64 = 8;

/// How many events a snapshot holds at most: PyTorch's own default of a recorded history is unlimited, ours must not grow.
const LOG_CAPACITY: usize = 1 << 16;

/// A block and, on the host, its memory.
pub(super) struct Held {
    pub block: LiveBlock,
    memory: Option<HostBlock>,
}

/// The allocator, the blocks that are made with it, and what the commands need.
pub(super) struct Owner {
    pub allocator: Allocator<Meter>,
    pub meter: Meter,
    pub budget: Budget,
    clock: Arc<dyn Clock>,
    pub setup: Setup,
    pub blocks: Vec<Held>,
    blocks_made: u64,
    /// The current stream, as this program counts them.
    pub stream: StreamId,
    /// The driver's handle of each stream that was used.
    pub streams: Vec<StreamId>,
    context_made: bool,
    /// The allocator's newest events, for snapshots.
    pub log: VecDeque<TraceEntry>,
    /// Time of the present command's action so far.
    took: Duration,
    page: u64,
}

impl From<DriverError> for Refusal {
    fn from(error: DriverError) -> Self {
        Refusal::Driver(error.to_string())
    }
}

impl From<AllocError> for Refusal {
    fn from(error: AllocError) -> Self {
        match error {
            AllocError::OutOfMemory(oom) => Refusal::OutOfMemory(oom.to_string()),
            AllocError::Driver(error) => error.into(),
            other => Refusal::Invalid(other.to_string()),
        }
    }
}

impl From<OverBudget> for Refusal {
    fn from(over: OverBudget) -> Self {
        Refusal::Budget(over.0)
    }
}

impl Owner {
    /// An owner that holds nothing on `driver`. Makes no driver call.
    pub fn new(driver: Box<dyn Driver>, setup: Setup, budget: Budget, clock: Arc<dyn Clock>) -> Self {
        let meter = Meter::new(driver);
        Owner {
            allocator: Allocator::new(meter.clone(), setup.settings.clone()),
            meter,
            budget,
            clock,
            setup,
            blocks: Vec::new(),
            blocks_made: 0,
            stream: StreamId(0),
            streams: vec![StreamId(0)],
            context_made: false,
            log: VecDeque::new(),
            took: Duration::ZERO,
            page: procfs::page_size(),
        }
    }

    /// The moment now.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Gives everything back: blocks first, then the cache; the driver ends its context when it is dropped. Errors cannot
    /// be helped any more: the context's end frees what is left.
    pub fn close(mut self) {
        _ = self.delete_all();
        _ = self.allocator.empty_cache();
    }

    /// Does one command.
    pub fn perform(&mut self, command: Command) -> Outcome {
        let before = self.allocator.stats().clone();
        self.allocator.set_time(self.clock.now().0.as_micros() as u64);
        self.took = Duration::ZERO;
        let result = self.act(&command);
        self.forget_finished();
        let events = self.allocator.take_events();
        self.log.extend(&events);
        self.log.drain(..self.log.len().saturating_sub(LOG_CAPACITY));
        let context = self.meter.take_context();
        self.context_made |= context.is_some();
        Outcome {
            at: self.clock.now(),
            command,
            result,
            before,
            after: self.allocator.stats().clone(),
            calls: self.meter.take_calls(),
            events,
            took: self.took,
            first_use: context.map(|c| ContextCost {
                process: c.bytes.map(Bytes),
                took: c.took,
            }),
        }
    }

    fn act(&mut self, command: &Command) -> Result<Done, Refusal> {
        match command {
            Command::AllocGpu { shape, dtype } => self.alloc_gpu(shape, *dtype),
            Command::AllocCpu { shape, dtype } => self.alloc_cpu(shape, *dtype),
            Command::Delete(key) => self.delete(*key),
            Command::DeleteAll => self.delete_all(),
            Command::Flush => self.flush(),
            Command::ResetPeaks => {
                self.allocator.reset_peak();
                Ok(Done::PeaksReset)
            }
            Command::Stream(stream) if stream.0 < MAX_STREAMS => {
                self.stream = *stream;
                Ok(Done::Stream(*stream))
            }
            Command::Stream(_) => Err(Refusal::Invalid(format!(
                "streams are counted from 0 to {}",
                MAX_STREAMS - 1
            ))),
            Command::RecordAndDelete(key) => self.record_and_delete(*key),
            Command::BusyStream => self.busy_stream(),
            Command::OutOfMemory => self.out_of_memory(),
            Command::Reconfigure { conf, torch } => self.reconfigure(conf, torch.as_deref()),
            Command::Snapshot(path) => self.snapshot(path),
        }
    }

    /// Runs an operation of the allocator and counts its time: its own as measured, its driver calls as the driver says.
    pub fn timed<T>(&mut self, f: impl FnOnce(&mut Allocator<Meter>) -> T) -> T {
        let (cost, spent) = self.meter.totals();
        let (value, real) = timed(|| f(&mut self.allocator));
        let (cost_after, spent_after) = self.meter.totals();
        let own = real.saturating_sub(spent_after.saturating_sub(spent));
        self.took += own + cost_after.saturating_sub(cost);
        value
    }

    /// The driver's handle of a stream, which is made now if it was not used before.
    pub fn handle(&mut self, stream: StreamId) -> Result<StreamId, Refusal> {
        while self.streams.len() as u64 <= stream.0 {
            let made = self.meter.new_stream()?;
            self.streams.push(made);
        }
        Ok(self.streams[stream.0 as usize])
    }

    /// Puts a block on the list and gives it its key.
    pub fn hold(&mut self, block: LiveBlock, memory: Option<HostBlock>) -> BlockKey {
        self.blocks_made += 1;
        let key = BlockKey(self.blocks_made);
        self.blocks.push(Held {
            block: LiveBlock { key, ..block },
            memory,
        });
        key
    }

    /// A new block's entry; [`Owner::hold`] gives it its key.
    pub fn entry(&self, place: Place, shape: &Shape, dtype: Dtype, bytes: u64, address: u64) -> LiveBlock {
        LiveBlock {
            key: BlockKey(0),
            place,
            shape: shape.clone(),
            dtype,
            bytes: Bytes(bytes),
            block_bytes: Bytes(bytes),
            made: self.clock.now(),
            stream: self.stream,
            pending: false,
            address,
        }
    }

    fn alloc_cpu(&mut self, shape: &Shape, dtype: Dtype) -> Result<Done, Refusal> {
        let bytes = size_of(shape, dtype)?;
        self.budget.host(self.host_bytes(), Bytes(bytes))?;
        let (memory, took) = timed(|| HostBlock::zeros(bytes, self.page));
        self.took = took;
        let memory = memory.map_err(|e| {
            Refusal::Invalid(format!(
                "the system gives no {} of host memory: {e}; choose a smaller size ([)",
                Bytes(bytes)
            ))
        })?;
        let entry = self.entry(Place::Cpu, shape, dtype, bytes, memory.address());
        let key = self.hold(entry, Some(memory));
        Ok(Done::Made {
            key,
            bytes: Bytes(bytes),
            block_bytes: Bytes(bytes),
            cached: false,
        })
    }

    fn delete(&mut self, key: BlockKey) -> Result<Done, Refusal> {
        let at = self.find(key)?;
        self.delete_at(at)
    }

    fn delete_all(&mut self) -> Result<Done, Refusal> {
        let (mut count, mut gpu_bytes, mut cpu_bytes) = (0, 0, 0);
        while let Some(at) = self.blocks.iter().rposition(|h| !h.block.pending) {
            if let Done::Deleted { blocks, gpu, cpu, .. } = self.delete_at(at)? {
                count += blocks;
                gpu_bytes += gpu.0;
                cpu_bytes += cpu.0;
            }
        }
        let pending = self.blocks.len();
        Ok(Done::Deleted {
            blocks: count,
            gpu: Bytes(gpu_bytes),
            cpu: Bytes(cpu_bytes),
            pending,
        })
    }

    /// Deletes the block at this place of the list. On an error the block stays on it.
    pub fn delete_at(&mut self, at: usize) -> Result<Done, Refusal> {
        let block = &self.blocks[at].block;
        let (place, size, address) = (block.place, block.block_bytes, block.address);
        match place {
            Place::Gpu => {
                self.timed(|a| a.free(address))?;
                let pending = self.allocator.block(address).is_some_and(|b| b.pending);
                if pending {
                    self.blocks[at].block.pending = true;
                } else {
                    self.blocks.remove(at);
                }
                Ok(Done::Deleted {
                    blocks: 1,
                    gpu: size,
                    cpu: Bytes(0),
                    pending: usize::from(pending),
                })
            }
            Place::Cpu => {
                let held = self.blocks.remove(at);
                let ((), took) = timed(|| drop(held.memory));
                self.took += took;
                Ok(Done::Deleted {
                    blocks: 1,
                    gpu: Bytes(0),
                    cpu: size,
                    pending: 0,
                })
            }
        }
    }

    /// The place on the list of a live block.
    pub fn find(&self, key: BlockKey) -> Result<usize, Refusal> {
        let at = self.blocks.iter().position(|h| h.block.key == key);
        match at {
            Some(at) if self.blocks[at].block.pending => Err(Refusal::Invalid(
                "this block was deleted already; it waits for a stream".into(),
            )),
            Some(at) => Ok(at),
            None => Err(Refusal::Invalid("this block is not there any more".into())),
        }
    }

    /// Takes pending blocks off the list whose events have completed: the allocator holds them no more.
    fn forget_finished(&mut self) {
        let allocator = &self.allocator;
        self.blocks
            .retain(|h| !h.block.pending || allocator.block(h.block.address).is_some_and(|b| b.pending));
    }

    fn host_bytes(&self) -> Bytes {
        Bytes(
            self.blocks
                .iter()
                .filter(|h| h.block.place == Place::Cpu)
                .map(|h| h.block.bytes.0)
                .sum(),
        )
    }

    /// Everything, as plain data.
    pub fn state(&self) -> State {
        State {
            blocks: self.blocks.iter().map(|h| h.block.clone()).collect(),
            stats: self.allocator.stats().clone(),
            report: Arc::new(self.allocator.report()),
            stream: self.stream,
            streams: self.streams.clone(),
            conf: self.setup.conf.clone(),
            torch: self.setup.torch(),
            context_made: self.context_made,
            host_bytes: self.host_bytes(),
            ended: None,
        }
    }
}

/// The bytes of a tensor, if they can be counted.
pub(super) fn size_of(shape: &Shape, dtype: Dtype) -> Result<u64, Refusal> {
    shape.bytes(dtype).ok_or_else(|| {
        Refusal::Invalid(format!(
            "{shape} {dtype} is more than 16 EiB: choose a smaller size ([)"
        ))
    })
}
