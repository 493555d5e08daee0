//! Calls that fail as planned.

use std::collections::HashMap;
use std::time::Duration;

use super::Call;
use crate::driver::{ContextMade, Driver, DriverError, EventId, MemInfo, StreamId};

/// Fails chosen calls: the n-th call of a kind, counted from 1, fails with the error planned for it.
#[derive(Debug)]
pub struct Failing<D> {
    inner: D,
    plan: Vec<(Call, u64, DriverError)>,
    counts: HashMap<Call, u64>,
}

impl<D: Driver> Failing<D> {
    /// Around `inner`, with a plan of (kind, which call of that kind, error).
    pub fn new(inner: D, plan: Vec<(Call, u64, DriverError)>) -> Self {
        Failing {
            inner,
            plan,
            counts: HashMap::new(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::stand_in::StandIn;

    #[test]
    fn chosen_calls_fail_and_the_others_do_not() {
        let broken = DriverError::Failed {
            call: "cudaMalloc",
            code: 700,
            text: "illegal address".to_owned(),
        };
        let mut driver = Failing::new(StandIn::new(1 << 30), vec![(Call::Alloc, 2, broken.clone())]);
        assert!(driver.alloc(512).is_ok());
        assert_eq!(driver.alloc(512), Err(broken));
        assert!(driver.alloc(512).is_ok());
    }
}
