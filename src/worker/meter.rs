//! The driver as the worker hands it to the allocator: every call is noted with its time. Clones share one driver, so
//! that a fresh allocator goes on in the same context.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::command::DriverCall;
use crate::clock::timed;
use crate::driver::{ContextMade, Driver, DriverError, EventId, MemInfo, StreamId};

/// A handle of the one driver.
#[derive(Clone)]
pub(super) struct Meter(Rc<RefCell<Metered>>);

struct Metered {
    driver: Box<dyn Driver>,
    calls: Vec<DriverCall>,
    cost: Duration,
    spent: Duration,
    context: Option<ContextMade>,
}

impl Meter {
    /// Puts a meter before `driver`.
    pub fn new(driver: Box<dyn Driver>) -> Self {
        Meter(Rc::new(RefCell::new(Metered {
            driver,
            calls: Vec::new(),
            cost: Duration::ZERO,
            spent: Duration::ZERO,
            context: None,
        })))
    }

    /// The calls since the last take.
    pub fn take_calls(&self) -> Vec<DriverCall> {
        std::mem::take(&mut self.0.borrow_mut().calls)
    }

    /// The context's cost, if it was made since the last take.
    pub fn take_context(&self) -> Option<ContextMade> {
        self.0.borrow_mut().context.take()
    }

    /// Over all calls so far: what they cost (as the driver says), and how long they really took.
    pub fn totals(&self) -> (Duration, Duration) {
        let meter = self.0.borrow();
        (meter.cost, meter.spent)
    }

    /// A call that is the program's own question and not part of the action: it is not noted.
    pub fn aside<T>(&self, f: impl FnOnce(&mut dyn Driver) -> Result<T, DriverError>) -> Result<T, DriverError> {
        let mut meter = self.0.borrow_mut();
        let result = f(meter.driver.as_mut());
        _ = meter.driver.take_cost();
        meter.keep_context();
        result
    }

    fn call<T>(
        &self,
        name: &'static str,
        size: u64,
        f: impl FnOnce(&mut dyn Driver) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let mut meter = self.0.borrow_mut();
        let (result, spent) = timed(|| f(meter.driver.as_mut()));
        let took = meter.driver.take_cost();
        meter.keep_context();
        meter.cost += took;
        meter.spent += spent;
        meter.calls.push(DriverCall {
            name,
            size,
            took,
            failed: result.is_err(),
        });
        result
    }
}

impl Metered {
    fn keep_context(&mut self) {
        self.context = self.driver.take_context().or(self.context);
    }
}

impl Driver for Meter {
    fn alloc(&mut self, size: u64) -> Result<u64, DriverError> {
        self.call("cuMemAlloc", size, |d| d.alloc(size))
    }

    fn free(&mut self, address: u64) -> Result<(), DriverError> {
        self.call("cuMemFree", 0, |d| d.free(address))
    }

    fn mem_info(&mut self) -> Result<MemInfo, DriverError> {
        self.call("cuMemGetInfo", 0, |d| d.mem_info())
    }

    fn device_total(&mut self) -> Result<u64, DriverError> {
        self.call("cuDeviceTotalMem", 0, |d| d.device_total())
    }

    fn reserve(&mut self, size: u64) -> Result<u64, DriverError> {
        self.call("cuMemAddressReserve", size, |d| d.reserve(size))
    }

    fn unreserve(&mut self, address: u64, size: u64) -> Result<(), DriverError> {
        self.call("cuMemAddressFree", size, |d| d.unreserve(address, size))
    }

    fn map(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        self.call("cuMemMap", granule.saturating_mul(count), |d| {
            d.map(address, granule, count)
        })
    }

    fn unmap(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        self.call("cuMemUnmap", granule.saturating_mul(count), |d| {
            d.unmap(address, granule, count)
        })
    }

    fn record_event(&mut self, stream: StreamId) -> Result<EventId, DriverError> {
        self.call("cuEventRecord", 0, |d| d.record_event(stream))
    }

    fn event_done(&mut self, event: EventId) -> Result<bool, DriverError> {
        self.call("cuEventQuery", 0, |d| d.event_done(event))
    }

    fn wait_event(&mut self, event: EventId) -> Result<(), DriverError> {
        self.call("cuEventSynchronize", 0, |d| d.wait_event(event))
    }

    fn synchronize(&mut self, stream: StreamId) -> Result<(), DriverError> {
        self.call("cuStreamSynchronize", 0, |d| d.synchronize(stream))
    }

    fn take_cost(&mut self) -> Duration {
        std::mem::take(&mut self.0.borrow_mut().cost)
    }

    fn fill(&mut self, address: u64, size: u64, stream: StreamId) -> Result<(), DriverError> {
        self.call("cuMemsetD8Async", size, |d| d.fill(address, size, stream))
    }

    fn new_stream(&mut self) -> Result<StreamId, DriverError> {
        self.call("cuStreamCreate", 0, |d| d.new_stream())
    }

    fn keep_busy(&mut self, stream: StreamId, time: Duration) -> Result<(), DriverError> {
        self.call("cuLaunchHostFunc", 0, |d| d.keep_busy(stream, time))
    }

    fn take_context(&mut self) -> Option<ContextMade> {
        Meter::take_context(self)
    }
}
