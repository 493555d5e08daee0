//! A simulated device: a card's memory, its contexts and the time of its calls, without the card. [`SimDevice`] keeps
//! the books; [`SimDriver`] is one process's driver on it; [`SimMonitor`] reads it as NVML reads a card.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::driver::StreamId;

mod driver;
mod ledger;
mod monitor;
mod process;
mod spec;

pub use driver::SimDriver;
pub use ledger::{Ledger, ProcessLedger};
pub use monitor::SimMonitor;
pub use spec::{CostCurve, SimSpec};

use process::Process;

/// A simulated device. Clones are handles of the same device.
#[derive(Clone)]
pub struct SimDevice(Arc<Mutex<Card>>);

/// The device behind the handles.
struct Card {
    spec: SimSpec,
    clock: Option<Arc<dyn Clock>>,
    /// The device's own time, where no clock was given: it moves by the modelled time of each call.
    time: Duration,
    /// Processes by a number of their own: two drivers may belong to one pid.
    processes: BTreeMap<u64, Process>,
    processes_made: u64,
}

impl Card {
    fn now(&self) -> Duration {
        self.clock.as_ref().map_or(self.time, |clock| clock.now().0)
    }

    fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::idle(&self.spec);
        if self.processes.values().any(|p| p.has_context) {
            ledger.unattributed = self.spec.unattributed;
        }
        ledger.processes = self
            .processes
            .values()
            .map(|p| p.ledger.clone())
            .filter(|l| l.charged() > 0)
            .collect();
        ledger
    }

    fn add(&mut self, pid: u32) -> u64 {
        self.processes_made += 1;
        let mut process = Process::default();
        process.ledger.pid = pid;
        self.processes.insert(self.processes_made, process);
        self.processes_made
    }

    fn of_pid(&mut self, pid: u32) -> impl Iterator<Item = &mut Process> {
        self.processes.values_mut().filter(move |p| p.ledger.pid == pid)
    }
}

impl SimDevice {
    /// A device whose time moves by the modelled time of its calls and by [`SimDevice::advance`] only.
    pub fn new(spec: SimSpec) -> Self {
        SimDevice(Arc::new(Mutex::new(Card {
            spec,
            clock: None,
            time: Duration::ZERO,
            processes: BTreeMap::new(),
            processes_made: 0,
        })))
    }

    /// A device whose streams work off their queues on `clock`.
    pub fn with_clock(spec: SimSpec, clock: Arc<dyn Clock>) -> Self {
        let device = SimDevice::new(spec);
        device.card().clock = Some(clock);
        device
    }

    fn card(&self) -> MutexGuard<'_, Card> {
        // The books are whole between any two statements that can panic, so a poisoned lock still holds good books.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver of process `pid` on this device. Its context is made at the first call that needs one, and goes with
    /// the driver.
    pub fn driver(&self, pid: u32) -> SimDriver {
        let id = self.card().add(pid);
        SimDriver::new(self.clone(), id)
    }

    /// What a monitor sees of this device.
    pub fn monitor(&self) -> SimMonitor {
        SimMonitor::new(self.clone())
    }

    /// The device's books now.
    pub fn ledger(&self) -> Ledger {
        self.card().ledger()
    }

    /// What the device is like.
    pub fn spec(&self) -> SimSpec {
        self.card().spec.clone()
    }

    /// Lets another process hold `bytes` of the device; 0 takes it off again. At most what is free.
    pub fn set_foreign(&self, pid: u32, bytes: u64) {
        let mut card = self.card();
        card.processes
            .retain(|_, p| p.ledger.pid != pid || p.ledger.foreign == 0);
        let bytes = bytes.min(card.ledger().free());
        if bytes > 0 {
            let id = card.add(pid);
            if let Some(process) = card.processes.get_mut(&id) {
                process.ledger.foreign = bytes;
            }
        }
    }

    /// Moves the device's own time on. Without effect on a device that has a clock.
    pub fn advance(&self, by: Duration) {
        self.card().time += by;
    }

    /// Queues work on a stream of process `pid` that lasts until [`SimDevice::release`].
    pub fn hold(&self, pid: u32, stream: StreamId) {
        self.card().of_pid(pid).for_each(|p| p.hold(stream));
    }

    /// Lets the held work of a stream of process `pid` go on.
    pub fn release(&self, pid: u32, stream: StreamId) {
        self.card().of_pid(pid).for_each(|p| p.release(stream));
    }
}
