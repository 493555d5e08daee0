//! A log of every call.

use std::collections::VecDeque;
use std::time::Duration;

use super::Call;
use crate::driver::{ContextMade, Driver, DriverError, EventId, MemInfo, StreamId};

/// One call as [`Recording`] saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which call.
    pub call: Call,
    /// The address given, or returned by the call; the stream's handle or the event's number for calls on those.
    pub address: Option<u64>,
    /// Bytes, where the call has a size.
    pub size: Option<u64>,
    /// What it took, as the driver inside says.
    pub cost: Duration,
    /// How it failed.
    pub error: Option<DriverError>,
}

/// Logs every call with its address, size, cost and failure. The log is bounded: the oldest entries are dropped.
#[derive(Debug)]
pub struct Recording<D> {
    inner: D,
    log: VecDeque<Record>,
    capacity: usize,
    cost: Duration,
}

impl<D: Driver> Recording<D> {
    /// Around `inner`, with room for `capacity` calls.
    pub fn new(inner: D, capacity: usize) -> Self {
        Recording {
            inner,
            log: VecDeque::new(),
            capacity,
            cost: Duration::ZERO,
        }
    }

    /// The calls since the last take, oldest first.
    pub fn take_log(&mut self) -> Vec<Record> {
        self.log.drain(..).collect()
    }

    /// The driver inside.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn note<T: Copy>(
        &mut self,
        call: Call,
        given: Option<u64>,
        size: Option<u64>,
        result: Result<T, DriverError>,
        returned: impl FnOnce(T) -> Option<u64>,
    ) -> Result<T, DriverError> {
        let cost = self.inner.take_cost();
        self.cost += cost;
        let address = result.as_ref().ok().and_then(|r| returned(*r)).or(given);
        if self.log.len() >= self.capacity {
            self.log.pop_front();
        }
        if self.capacity > 0 {
            self.log.push_back(Record {
                call,
                address,
                size,
                cost,
                error: result.as_ref().err().cloned(),
            });
        }
        result
    }
}

impl<D: Driver> Driver for Recording<D> {
    fn fill(&mut self, address: u64, size: u64, stream: StreamId) -> Result<(), DriverError> {
        let result = self.inner.fill(address, size, stream);
        self.cost += self.inner.take_cost();
        result
    }

    fn new_stream(&mut self) -> Result<StreamId, DriverError> {
        let result = self.inner.new_stream();
        self.cost += self.inner.take_cost();
        result
    }

    fn keep_busy(&mut self, stream: StreamId, time: Duration) -> Result<(), DriverError> {
        let result = self.inner.keep_busy(stream, time);
        self.cost += self.inner.take_cost();
        result
    }

    delegate! {
        take_context() -> Option<ContextMade>;
    }

    fn alloc(&mut self, size: u64) -> Result<u64, DriverError> {
        let result = self.inner.alloc(size);
        self.note(Call::Alloc, None, Some(size), result, Some)
    }

    fn free(&mut self, address: u64) -> Result<(), DriverError> {
        let result = self.inner.free(address);
        self.note(Call::Free, Some(address), None, result, |()| None)
    }

    fn mem_info(&mut self) -> Result<MemInfo, DriverError> {
        let result = self.inner.mem_info();
        self.note(Call::MemInfo, None, None, result, |_| None)
    }

    fn device_total(&mut self) -> Result<u64, DriverError> {
        let result = self.inner.device_total();
        self.note(Call::DeviceTotal, None, None, result, |_| None)
    }

    fn reserve(&mut self, size: u64) -> Result<u64, DriverError> {
        let result = self.inner.reserve(size);
        self.note(Call::Reserve, None, Some(size), result, Some)
    }

    fn unreserve(&mut self, address: u64, size: u64) -> Result<(), DriverError> {
        let result = self.inner.unreserve(address, size);
        self.note(Call::Unreserve, Some(address), Some(size), result, |()| None)
    }

    fn map(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        let result = self.inner.map(address, granule, count);
        self.note(Call::Map, Some(address), granule.checked_mul(count), result, |()| None)
    }

    fn unmap(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        let result = self.inner.unmap(address, granule, count);
        self.note(Call::Unmap, Some(address), granule.checked_mul(count), result, |()| {
            None
        })
    }

    fn record_event(&mut self, stream: StreamId) -> Result<EventId, DriverError> {
        let result = self.inner.record_event(stream);
        self.note(Call::RecordEvent, Some(stream.0), None, result, |_| None)
    }

    fn event_done(&mut self, event: EventId) -> Result<bool, DriverError> {
        let result = self.inner.event_done(event);
        self.note(Call::EventDone, Some(event.0), None, result, |_| None)
    }

    fn wait_event(&mut self, event: EventId) -> Result<(), DriverError> {
        let result = self.inner.wait_event(event);
        self.note(Call::WaitEvent, Some(event.0), None, result, |()| None)
    }

    fn synchronize(&mut self, stream: StreamId) -> Result<(), DriverError> {
        let result = self.inner.synchronize(stream);
        self.note(Call::Synchronize, Some(stream.0), None, result, |()| None)
    }

    fn take_cost(&mut self) -> Duration {
        std::mem::take(&mut self.cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::stand_in::StandIn;

    #[test]
    fn recording_notes_every_call_within_its_bounds() {
        let mut driver = Recording::new(StandIn::new(10 << 20), 3);
        let address = driver.alloc(4 << 20).unwrap();
        assert_eq!(driver.alloc(8 << 20), Err(DriverError::OutOfMemory));
        driver.free(address).unwrap();
        let log = driver.take_log();
        let calls: Vec<_> = log
            .iter()
            .map(|r| (r.call, r.address, r.size, r.error.clone()))
            .collect();
        assert_eq!(
            calls,
            [
                (Call::Alloc, Some(address), Some(4 << 20), None),
                (Call::Alloc, None, Some(8 << 20), Some(DriverError::OutOfMemory)),
                (Call::Free, Some(address), None, None),
            ]
        );
        for _ in 0..5 {
            driver.mem_info().unwrap();
        }
        assert_eq!(driver.take_log().len(), 3);
    }
}
