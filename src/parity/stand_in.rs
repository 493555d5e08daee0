//! The driver stand-in that the golden recordings were made with (end of allocator-spec section 8): what matters to a
//! caching allocator is the order of the addresses and when memory runs out.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::driver::{Driver, DriverError, EventId, MemInfo, StreamId};

const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
const FIRST_RANGE: u64 = 0x3000_0000_0000;
const STEP: u64 = 2 << 20;

/// A device of `total` bytes without anything behind its addresses.
#[derive(Clone, Debug)]
pub struct StandIn {
    total: u64,
    used: u64,
    /// Address to (bytes asked for, bytes rounded up to 2 MiB).
    live: BTreeMap<u64, (u64, u64)>,
    next_range: u64,
    next_event: u64,
    /// Whether events count as completed.
    pub events_ready: bool,
}

impl StandIn {
    /// A device of `total` bytes. Events have completed unless told otherwise.
    pub fn new(total: u64) -> Self {
        StandIn {
            total,
            used: 0,
            live: BTreeMap::new(),
            next_range: FIRST_RANGE,
            next_event: 0,
            events_ready: true,
        }
    }

    /// Bytes that are allocated or mapped.
    pub fn used(&self) -> u64 {
        self.used
    }

    fn take(&mut self, size: u64) -> Result<(), DriverError> {
        let used = self
            .used
            .checked_add(size)
            .filter(|n| *n <= self.total)
            .ok_or(DriverError::OutOfMemory)?;
        self.used = used;
        Ok(())
    }
}

impl Driver for StandIn {
    fn alloc(&mut self, size: u64) -> Result<u64, DriverError> {
        self.take(size)?;
        let rounded = size.next_multiple_of(STEP);
        let mut address = FIRST_ADDRESS;
        for (start, (_, length)) in &self.live {
            if start - address >= rounded {
                break;
            }
            address = start + length;
        }
        self.live.insert(address, (size, rounded));
        Ok(address)
    }

    fn free(&mut self, address: u64) -> Result<(), DriverError> {
        let (size, _) = self.live.remove(&address).ok_or_else(|| DriverError::Failed {
            call: "cudaFree",
            code: 1,
            text: format!("{address:#x} was not allocated"),
        })?;
        self.used -= size;
        Ok(())
    }

    fn mem_info(&mut self) -> Result<MemInfo, DriverError> {
        Ok(MemInfo {
            free: self.total - self.used,
            total: self.total,
        })
    }

    fn device_total(&mut self) -> Result<u64, DriverError> {
        Ok(self.total)
    }

    fn reserve(&mut self, size: u64) -> Result<u64, DriverError> {
        let next = self
            .next_range
            .checked_add(size.next_multiple_of(STEP))
            .ok_or(DriverError::OutOfMemory)?;
        Ok(std::mem::replace(&mut self.next_range, next))
    }

    fn unreserve(&mut self, _: u64, _: u64) -> Result<(), DriverError> {
        Ok(())
    }

    fn map(&mut self, _: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        self.take(granule.checked_mul(count).ok_or(DriverError::OutOfMemory)?)
    }

    fn unmap(&mut self, _: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        self.used -= granule * count;
        Ok(())
    }

    fn record_event(&mut self, _: StreamId) -> Result<EventId, DriverError> {
        self.next_event += 1;
        Ok(EventId(self.next_event))
    }

    fn event_done(&mut self, _: EventId) -> Result<bool, DriverError> {
        Ok(self.events_ready)
    }

    fn wait_event(&mut self, _: EventId) -> Result<(), DriverError> {
        Ok(())
    }

    fn synchronize(&mut self, _: StreamId) -> Result<(), DriverError> {
        Ok(())
    }

    fn take_cost(&mut self) -> Duration {
        Duration::ZERO
    }
}
