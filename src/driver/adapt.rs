//! Adaptors around a driver: each changes one thing and leaves the rest to the driver inside.

use std::collections::VecDeque;
use std::time::Duration;

use super::{ContextMade, Driver, DriverError, EventId, MemInfo, StreamId};

/// The calls of [`Driver`], without its questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// cuMemAlloc.
    Alloc,
    /// cuMemFree.
    Free,
    /// cuMemGetInfo.
    MemInfo,
    /// The device's total.
    DeviceTotal,
    /// cuMemAddressReserve.
    Reserve,
    /// cuMemAddressFree.
    Unreserve,
    /// cuMemCreate, cuMemMap, cuMemSetAccess.
    Map,
    /// cuMemUnmap, cuMemRelease.
    Unmap,
    /// cuEventRecord.
    RecordEvent,
    /// cuEventQuery.
    EventDone,
    /// cuEventSynchronize.
    WaitEvent,
    /// cuStreamSynchronize.
    Synchronize,
}

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

/// Delegates the calls that an adaptor does not change.
macro_rules! delegate {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&mut self, $($arg: $type),*) -> $out { self.inner.$name($($arg),*) })*
    };
}

/// Delegates what a demo needs beside the allocator's calls: writing pages, streams with work, the context's cost.
macro_rules! delegate_demo {
    () => {
        delegate! {
            fill(address: u64, size: u64, stream: StreamId) -> Result<(), DriverError>;
            new_stream() -> Result<StreamId, DriverError>;
            keep_busy(stream: StreamId, time: Duration) -> Result<(), DriverError>;
            take_context() -> Option<ContextMade>;
        }
    };
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

/// Refuses memory above a ceiling, as a device that is smaller would.
#[derive(Debug)]
pub struct Limiting<D> {
    inner: D,
    ceiling: u64,
    held: std::collections::HashMap<u64, u64>,
    mapped: u64,
}

impl<D: Driver> Limiting<D> {
    /// Around `inner`, which may be held up to `ceiling` bytes (alloc and map together).
    pub fn new(inner: D, ceiling: u64) -> Self {
        Limiting {
            inner,
            ceiling,
            held: std::collections::HashMap::new(),
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

/// Fails chosen calls: the n-th call of a kind, counted from 1, fails with the error planned for it.
#[derive(Debug)]
pub struct Failing<D> {
    inner: D,
    plan: Vec<(Call, u64, DriverError)>,
    counts: std::collections::HashMap<Call, u64>,
}

impl<D: Driver> Failing<D> {
    /// Around `inner`, with a plan of (kind, which call of that kind, error).
    pub fn new(inner: D, plan: Vec<(Call, u64, DriverError)>) -> Self {
        Failing {
            inner,
            plan,
            counts: std::collections::HashMap::new(),
        }
    }

    /// Adds to the plan: the next call of that kind fails.
    pub fn fail_next(&mut self, call: Call, error: DriverError) {
        let next = self.counts.get(&call).copied().unwrap_or_default() + 1;
        self.plan.push((call, next, error));
    }

    /// Forgets what is planned.
    pub fn clear_plan(&mut self) {
        self.plan.clear();
    }

    /// The driver inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The driver inside, for settings of its own.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn try_call(&mut self, call: Call) -> Result<(), DriverError> {
        let count = self.counts.entry(call).or_default();
        *count += 1;
        match self.plan.iter().find(|(c, n, _)| *c == call && n == count) {
            Some((_, _, error)) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// As `delegate`, asking the plan first.
macro_rules! planned {
    ($($name:ident($($arg:ident: $type:ty),*) as $call:ident -> $out:ty;)*) => {
        $(fn $name(&mut self, $($arg: $type),*) -> Result<$out, DriverError> {
            self.try_call(Call::$call)?;
            self.inner.$name($($arg),*)
        })*
    };
}

impl<D: Driver> Driver for Failing<D> {
    delegate_demo! {}

    planned! {
        alloc(size: u64) as Alloc -> u64;
        free(address: u64) as Free -> ();
        mem_info() as MemInfo -> MemInfo;
        device_total() as DeviceTotal -> u64;
        reserve(size: u64) as Reserve -> u64;
        unreserve(address: u64, size: u64) as Unreserve -> ();
        map(address: u64, granule: u64, count: u64) as Map -> ();
        unmap(address: u64, granule: u64, count: u64) as Unmap -> ();
        record_event(stream: StreamId) as RecordEvent -> EventId;
        event_done(event: EventId) as EventDone -> bool;
        wait_event(event: EventId) as WaitEvent -> ();
        synchronize(stream: StreamId) as Synchronize -> ();
    }

    fn take_cost(&mut self) -> Duration {
        self.inner.take_cost()
    }
}

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

    #[test]
    fn failing_fails_as_planned_and_keeping_keeps() {
        let broken = DriverError::Failed {
            call: "cudaMalloc",
            code: 700,
            text: "illegal address".to_owned(),
        };
        let mut driver = Failing::new(StandIn::new(1 << 30), vec![(Call::Alloc, 2, broken.clone())]);
        assert!(driver.alloc(512).is_ok());
        assert_eq!(driver.alloc(512), Err(broken));
        assert!(driver.alloc(512).is_ok());
        let mut driver = Keeping::new(StandIn::new(4 << 20));
        let address = driver.alloc(4 << 20).unwrap();
        driver.free(address).unwrap();
        assert_eq!((driver.kept(), driver.mem_info().unwrap().free), (1, 0));
    }
}
