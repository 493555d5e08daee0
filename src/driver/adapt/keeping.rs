//! Memory that is not given back.

use std::time::Duration;

use crate::driver::{ContextMade, Driver, DriverError, EventId, MemInfo, StreamId};

/// A test double that says it freed and keeps the memory: with it a flush must be seen to fail (issue 2).
#[derive(Debug)]
pub struct Keeping<D> {
    inner: D,
    kept: u64,
}

impl<D: Driver> Keeping<D> {
    /// Around `inner`.
    pub fn new(inner: D) -> Self {
        Keeping { inner, kept: 0 }
    }

    /// How many frees and unmaps were swallowed.
    pub fn kept(&self) -> u64 {
        self.kept
    }
}

impl<D: Driver> Driver for Keeping<D> {
    delegate_demo! {}

    fn free(&mut self, _: u64) -> Result<(), DriverError> {
        self.kept += 1;
        Ok(())
    }

    fn unmap(&mut self, _: u64, _: u64, _: u64) -> Result<(), DriverError> {
        self.kept += 1;
        Ok(())
    }

    fn unreserve(&mut self, _: u64, _: u64) -> Result<(), DriverError> {
        Ok(())
    }

    delegate! {
        alloc(size: u64) -> Result<u64, DriverError>;
        mem_info() -> Result<MemInfo, DriverError>;
        device_total() -> Result<u64, DriverError>;
        reserve(size: u64) -> Result<u64, DriverError>;
        map(address: u64, granule: u64, count: u64) -> Result<(), DriverError>;
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
    fn freed_memory_stays_taken() {
        let mut driver = Keeping::new(StandIn::new(4 << 20));
        let address = driver.alloc(4 << 20).unwrap();
        driver.free(address).unwrap();
        assert_eq!((driver.kept(), driver.mem_info().unwrap().free), (1, 0));
    }
}
