//! The simulated device's books: every byte of it belongs to one line. The bill on the screen is compared with these
//! lines (issue 2, "Bill").

use super::spec::SimSpec;

/// What one process holds on the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessLedger {
    /// Its process id.
    pub pid: u32,
    /// Its context; 0 before it has one.
    pub context: u64,
    /// Kernels that it has loaded.
    pub kernels: u64,
    /// cuMemAlloc, in physical pages.
    pub allocated: u64,
    /// cuMemCreate + cuMemMap, in physical pages.
    pub mapped: u64,
    /// What another process holds, of which nothing is known (set by tests and scenes).
    pub foreign: u64,
}

impl ProcessLedger {
    /// What the driver charges to the process.
    pub fn charged(&self) -> u64 {
        self.context + self.kernels + self.allocated + self.mapped + self.foreign
    }
}

/// The whole device, line by line. The lines sum to `total`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Everything on the board.
    pub total: u64,
    /// What the driver keeps for itself.
    pub driver: u64,
    /// Charged to the device for its contexts, but to no process.
    pub unattributed: u64,
    /// The processes that hold something, in the order in which they came.
    pub processes: Vec<ProcessLedger>,
}

impl Ledger {
    /// An idle device.
    pub fn idle(spec: &SimSpec) -> Self {
        Ledger {
            total: spec.total,
            driver: spec.driver_reserved,
            unattributed: 0,
            processes: Vec::new(),
        }
    }

    /// NVML v2's used: everything but the driver's own part and what is free.
    pub fn used(&self) -> u64 {
        self.unattributed + self.processes.iter().map(ProcessLedger::charged).sum::<u64>()
    }

    /// What a call could still get.
    pub fn free(&self) -> u64 {
        self.total.saturating_sub(self.driver).saturating_sub(self.used())
    }

    /// The lines of one process, over all its contexts.
    pub fn of(&self, pid: u32) -> Option<ProcessLedger> {
        let mut lines = self.processes.iter().filter(|p| p.pid == pid);
        let mut sum = lines.next()?.clone();
        for line in lines {
            sum.context += line.context;
            sum.kernels += line.kernels;
            sum.allocated += line.allocated;
            sum.mapped += line.mapped;
            sum.foreign += line.foreign;
        }
        Some(sum)
    }
}
