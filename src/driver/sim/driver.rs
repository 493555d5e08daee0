//! One process's driver on the simulated device.

use std::time::Duration;

use super::process::Process;
use super::{Card, SimDevice};
use crate::driver::{ContextMade, Driver, DriverError, EventId, MemInfo, StreamId};

/// The driver of one process on a [`SimDevice`]. Dropping it destroys the context: everything that the process held
/// leaves the books.
pub struct SimDriver {
    device: SimDevice,
    id: u64,
    cost: Duration,
    context: Option<ContextMade>,
}

/// CUDA_ERROR_INVALID_VALUE of `call`.
fn invalid(call: &'static str) -> DriverError {
    DriverError::Failed {
        call,
        code: 1,
        text: "CUDA_ERROR_INVALID_VALUE".into(),
    }
}

impl SimDriver {
    pub(super) fn new(device: SimDevice, id: u64) -> Self {
        SimDriver {
            device,
            id,
            cost: Duration::ZERO,
            context: None,
        }
    }

    /// Runs `f` on the card and this process, without needing a context.
    fn on_card<T>(
        &mut self,
        f: impl FnOnce(&mut Card, u64) -> Result<(T, Duration), DriverError>,
    ) -> Result<T, DriverError> {
        let (result, sleep) = {
            let mut card = self.device.card();
            let result = f(&mut card, self.id);
            if let Ok((_, cost)) = &result {
                card.time += *cost;
                self.cost += *cost;
            }
            (result, card.spec.sleep)
        };
        let (value, cost) = result?;
        if sleep {
            std::thread::sleep(cost);
        }
        Ok(value)
    }

    /// Runs `f` in this process's context, which is made first if there is none.
    fn call<T>(
        &mut self,
        f: impl FnOnce(&mut Card, u64) -> Result<(T, Duration), DriverError>,
    ) -> Result<T, DriverError> {
        self.make_context()?;
        self.on_card(f)
    }

    fn make_context(&mut self) -> Result<(), DriverError> {
        let mut card = self.device.card();
        let (bytes, took, sleep) = (card.spec.context, card.spec.context_time, card.spec.sleep);
        let room = card.ledger().free();
        let overhead = if card.processes.values().any(|p| p.has_context) {
            0
        } else {
            card.spec.unattributed
        };
        let process = process(&mut card, self.id)?;
        if process.has_context {
            return Ok(());
        }
        if bytes + overhead > room {
            return Err(DriverError::OutOfMemory);
        }
        process.has_context = true;
        process.ledger.context = bytes;
        card.time += took;
        drop(card);
        self.context = Some(ContextMade {
            bytes: Some(bytes),
            took,
        });
        if sleep {
            std::thread::sleep(took);
        }
        Ok(())
    }
}

/// The process `id` of the card. It is there as long as its driver lives.
fn process(card: &mut Card, id: u64) -> Result<&mut Process, DriverError> {
    card.processes
        .get_mut(&id)
        .ok_or_else(|| DriverError::Unavailable("the simulated device has forgotten this process".into()))
}

impl Drop for SimDriver {
    fn drop(&mut self) {
        self.device.card().processes.remove(&self.id);
    }
}

impl Driver for SimDriver {
    fn alloc(&mut self, size: u64) -> Result<u64, DriverError> {
        self.call(|card, id| {
            if size == 0 {
                return Err(invalid("cuMemAlloc"));
            }
            let room = card.ledger().free();
            let physical = card
                .spec
                .physical(size)
                .filter(|p| *p <= room)
                .ok_or(DriverError::OutOfMemory)?;
            let (page, cost) = (card.spec.page, card.spec.alloc_time.at(size));
            let process = process(card, id)?;
            let address = process.place(physical, page).ok_or(DriverError::OutOfMemory)?;
            process.blocks.insert(address, physical);
            process.ledger.allocated += physical;
            Ok((address, cost))
        })
    }

    fn free(&mut self, address: u64) -> Result<(), DriverError> {
        self.call(|card, id| {
            let size = process(card, id)?
                .blocks
                .remove(&address)
                .ok_or_else(|| invalid("cuMemFree"))?;
            process(card, id)?.ledger.allocated -= size;
            Ok(((), card.spec.free_time.at(size)))
        })
    }

    fn mem_info(&mut self) -> Result<MemInfo, DriverError> {
        self.call(|card, _| {
            let info = MemInfo {
                free: card.ledger().free(),
                total: card.spec.cuda_total(),
            };
            Ok((info, card.spec.info_time))
        })
    }

    fn device_total(&mut self) -> Result<u64, DriverError> {
        self.on_card(|card, _| Ok((card.spec.cuda_total(), Duration::ZERO)))
    }

    fn reserve(&mut self, size: u64) -> Result<u64, DriverError> {
        self.call(|card, id| {
            let page = card.spec.page;
            if size == 0 || !size.is_multiple_of(page) {
                return Err(invalid("cuMemAddressReserve"));
            }
            let address = process(card, id)?.reserve(size).ok_or(DriverError::OutOfMemory)?;
            Ok((address, Duration::ZERO))
        })
    }

    fn unreserve(&mut self, address: u64, size: u64) -> Result<(), DriverError> {
        self.call(|card, id| {
            let process = process(card, id)?;
            if process.ranges.get(&address) != Some(&size) || process.any_mapped(address, size) {
                return Err(invalid("cuMemAddressFree"));
            }
            process.ranges.remove(&address);
            Ok(((), Duration::ZERO))
        })
    }

    fn map(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        self.call(|card, id| {
            let page = card.spec.page;
            let size = granule
                .checked_mul(count)
                .filter(|s| *s > 0 && granule.is_multiple_of(page))
                .ok_or_else(|| invalid("cuMemCreate"))?;
            let room = card.ledger().free();
            // The cost of mapping was not measured: the same physical pages are taken as by an allocation of that size.
            let cost = card
                .spec
                .alloc_time
                .at(granule)
                .saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
            let process = process(card, id)?;
            if !process.in_range(address, size) || process.any_mapped(address, size) {
                return Err(invalid("cuMemMap"));
            }
            if size > room {
                return Err(DriverError::OutOfMemory);
            }
            process
                .granules
                .extend((0..count).map(|i| (address + i * granule, granule)));
            process.ledger.mapped += size;
            Ok(((), cost))
        })
    }

    fn unmap(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        self.call(|card, id| {
            let cost = card
                .spec
                .free_time
                .at(granule)
                .saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
            let process = process(card, id)?;
            let fits = granule
                .checked_mul(count)
                .and_then(|size| address.checked_add(size))
                .is_some();
            let mapped = |i: u64| process.granules.get(&(address + i * granule)) == Some(&granule);
            if count == 0 || !fits || !(0..count).all(mapped) {
                return Err(invalid("cuMemUnmap"));
            }
            for i in 0..count {
                process.granules.remove(&(address + i * granule));
            }
            process.ledger.mapped -= granule * count;
            Ok(((), cost))
        })
    }

    fn record_event(&mut self, stream: StreamId) -> Result<EventId, DriverError> {
        self.call(|card, id| Ok((process(card, id)?.record(stream), Duration::ZERO)))
    }

    fn event_done(&mut self, event: EventId) -> Result<bool, DriverError> {
        self.call(|card, id| {
            let now = card.now();
            let done = process(card, id)?
                .done(event, now)
                .ok_or_else(|| invalid("cuEventQuery"))?;
            Ok((done, Duration::ZERO))
        })
    }

    fn wait_event(&mut self, event: EventId) -> Result<(), DriverError> {
        self.call(|card, id| {
            let now = card.now();
            let left = process(card, id)?
                .wait(event, now)
                .ok_or_else(|| invalid("cuEventSynchronize"))?;
            Ok(((), left))
        })
    }

    fn synchronize(&mut self, stream: StreamId) -> Result<(), DriverError> {
        self.call(|card, id| {
            let now = card.now();
            Ok(((), process(card, id)?.drain(stream, now)))
        })
    }

    fn take_cost(&mut self) -> Duration {
        std::mem::take(&mut self.cost)
    }

    fn fill(&mut self, address: u64, size: u64, _stream: StreamId) -> Result<(), DriverError> {
        self.call(|card, id| {
            let (kernel, room) = (card.spec.first_kernel, card.ledger().free());
            let process = process(card, id)?;
            if !process.backed(address, size) {
                return Err(invalid("cuMemsetD8Async"));
            }
            if process.ledger.kernels == 0 {
                if kernel > room {
                    return Err(DriverError::OutOfMemory);
                }
                process.ledger.kernels = kernel;
            }
            Ok(((), Duration::ZERO))
        })
    }

    fn new_stream(&mut self) -> Result<StreamId, DriverError> {
        self.call(|card, id| Ok((process(card, id)?.new_stream(), Duration::ZERO)))
    }

    fn keep_busy(&mut self, stream: StreamId, time: Duration) -> Result<(), DriverError> {
        self.call(|card, id| {
            let now = card.now();
            process(card, id)?.busy(stream, now, time);
            Ok(((), Duration::ZERO))
        })
    }

    fn take_context(&mut self) -> Option<ContextMade> {
        self.context.take()
    }
}
