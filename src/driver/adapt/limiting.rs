//! A device that is smaller than it is.

use std::collections::HashMap;
use std::time::Duration;

use crate::driver::{ContextMade, Driver, DriverError, EventId, MemInfo, StreamId};

/// Refuses memory above a ceiling, as a device that is smaller would.
#[derive(Debug)]
pub struct Limiting<D> {
    inner: D,
    ceiling: u64,
    held: HashMap<u64, u64>,
    mapped: u64,
}

impl<D: Driver> Limiting<D> {
    /// Around `inner`, which may be held up to `ceiling` bytes (alloc and map together).
    pub fn new(inner: D, ceiling: u64) -> Self {
        Limiting {
            inner,
            ceiling,
            held: HashMap::new(),
            mapped: 0,
        }
    }

    /// Bytes held through this adaptor.
    pub fn held(&self) -> u64 {
        self.held.values().sum::<u64>() + self.mapped
    }

    /// Moves the ceiling. What is held already stays.
    pub fn set_ceiling(&mut self, ceiling: u64) {
        self.ceiling = ceiling;
    }

    fn has_room(&self, size: u64) -> Result<(), DriverError> {
        let fits = self.held().checked_add(size).is_some_and(|n| n <= self.ceiling);
        fits.then_some(()).ok_or(DriverError::OutOfMemory)
    }
}

impl<D: Driver> Driver for Limiting<D> {
    delegate_demo! {}

    fn alloc(&mut self, size: u64) -> Result<u64, DriverError> {
        self.has_room(size)?;
        let address = self.inner.alloc(size)?;
        self.held.insert(address, size);
        Ok(address)
    }

    fn free(&mut self, address: u64) -> Result<(), DriverError> {
        self.inner.free(address)?;
        self.held.remove(&address);
        Ok(())
    }

    fn map(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        let size = granule.checked_mul(count).ok_or(DriverError::OutOfMemory)?;
        self.has_room(size)?;
        self.inner.map(address, granule, count)?;
        self.mapped += size;
        Ok(())
    }

    fn unmap(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        self.inner.unmap(address, granule, count)?;
        self.mapped = self.mapped.saturating_sub(granule.saturating_mul(count));
        Ok(())
    }

    delegate! {
        mem_info() -> Result<MemInfo, DriverError>;
        device_total() -> Result<u64, DriverError>;
        reserve(size: u64) -> Result<u64, DriverError>;
        unreserve(address: u64, size: u64) -> Result<(), DriverError>;
        record_event(stream: StreamId) -> Result<EventId, DriverError>;
        event_done(event: EventId) -> Result<bool, DriverError>;
        wait_event(event: EventId) -> Result<(), DriverError>;
        synchronize(stream: StreamId) -> Result<(), DriverError>;
        take_cost() -> Duration;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::stand_in::StandIn;

    #[test]
    fn limiting_counts_memory_and_mappings_together() {
        let mut driver = Limiting::new(StandIn::new(1 << 30), 10 << 20);
        let address = driver.alloc(6 << 20).unwrap();
        assert_eq!(driver.map(1 << 40, 2 << 20, 3), Err(DriverError::OutOfMemory));
        driver.map(1 << 40, 2 << 20, 2).unwrap();
        assert_eq!(
            (driver.held(), driver.alloc(1)),
            (10 << 20, Err(DriverError::OutOfMemory))
        );
        driver.free(address).unwrap();
        driver.unmap(1 << 40, 2 << 20, 2).unwrap();
        assert_eq!(driver.held(), 0);
    }
}
