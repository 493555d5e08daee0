//! The allocator's thread on a driver that fails: a sentence each time, and never the end of the program.

use std::sync::Arc;
use std::time::Duration;

use alloctop::budget::Budget;
use alloctop::clock::{Clock, RealClock};
use alloctop::driver::{Driver, DriverError, EventId, MemInfo, StreamId};
use alloctop::reading::{Reading, WhyKind};
use alloctop::units::GIB;
use alloctop::worker::{BackendChoice, Command, Dtype, Outcome, Refusal, Setup, Worker};

fn run(worker: &mut Worker, command: Command) -> Outcome {
    assert!(worker.send(command));
    worker.outcomes.blocking_recv().unwrap()
}

fn small() -> Command {
    Command::AllocGpu {
        shape: "1000".parse().unwrap(),
        dtype: Dtype::UInt8,
    }
}

/// A driver that breaks in its own way.
struct Broken(fn() -> DriverError);

impl Driver for Broken {
    fn alloc(&mut self, _: u64) -> Result<u64, DriverError> {
        Err((self.0)())
    }
    fn free(&mut self, _: u64) -> Result<(), DriverError> {
        Err((self.0)())
    }
    fn mem_info(&mut self) -> Result<MemInfo, DriverError> {
        Ok(MemInfo {
            free: 64 * GIB,
            total: 64 * GIB,
        })
    }
    fn device_total(&mut self) -> Result<u64, DriverError> {
        Ok(64 * GIB)
    }
    fn reserve(&mut self, _: u64) -> Result<u64, DriverError> {
        Err((self.0)())
    }
    fn unreserve(&mut self, _: u64, _: u64) -> Result<(), DriverError> {
        Ok(())
    }
    fn map(&mut self, _: u64, _: u64, _: u64) -> Result<(), DriverError> {
        Err((self.0)())
    }
    fn unmap(&mut self, _: u64, _: u64, _: u64) -> Result<(), DriverError> {
        Err((self.0)())
    }
    fn record_event(&mut self, _: StreamId) -> Result<EventId, DriverError> {
        Err((self.0)())
    }
    fn event_done(&mut self, _: EventId) -> Result<bool, DriverError> {
        Err((self.0)())
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

fn on_broken(error: fn() -> DriverError) -> Worker {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::start());
    let budget = Budget::new(
        None,
        Box::new(|| Reading::missing(WhyKind::Absent, "no host blocks here")),
    );
    let backend = BackendChoice::Other(Box::new(move || Box::new(Broken(error))));
    Worker::start(backend, Setup::default(), budget, clock, Box::new(|| {}))
}

#[test]
fn a_failing_driver_is_a_sentence_and_the_thread_lives() {
    let mut worker = on_broken(|| DriverError::Unavailable("no CUDA driver; pass --backend sim".into()));
    let outcome = run(&mut worker, small());
    assert_eq!(
        outcome.result,
        Err(Refusal::Driver("no CUDA driver; pass --backend sim".into()))
    );
    assert!(outcome.calls.iter().any(|c| c.failed));
    assert_eq!(outcome.before.allocated_bytes, outcome.after.allocated_bytes);
    assert!(matches!(
        run(&mut worker, Command::BusyStream).result,
        Err(Refusal::Driver(_))
    ));
    assert!(run(&mut worker, Command::Flush).result.is_ok());
    assert_eq!(worker.latest().ended, None);
}

#[test]
fn a_panic_in_the_thread_is_a_sentence_and_the_end_of_it() {
    let mut worker = on_broken(|| panic!("a defect, made for this test"));
    let outcome = run(&mut worker, small());
    assert!(matches!(&outcome.result, Err(Refusal::Driver(text)) if text.contains("has stopped")));
    assert!(worker.outcomes.blocking_recv().is_none(), "closed");
    assert!(
        worker
            .latest()
            .ended
            .as_deref()
            .is_some_and(|why| why.contains("restart"))
    );
    assert!(!worker.send(Command::Flush));
}
