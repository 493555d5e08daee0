//! The allocators of all processes in the table, read about once a second on a thread of their own: reading is automatic
//! for every process that permits it (issue 3.2).

use std::collections::HashMap;
use std::sync::Arc;

use crate::attach::{DeviceRead, ProcRoot};
use crate::clock::Clock;
use crate::reading::{Reading, WhyKind};
use crate::source::host::facts::ProcessKey;
use crate::source::processes::ProcessTable;
use crate::source::torch::TorchCounters;

/// The counters of each process of a table, or why there are none.
pub type AllocatorsRead = HashMap<u32, Reading<Vec<DeviceRead>>>;

/// One reader a process, kept as long as the process is in the table and is the same one.
pub struct Readers {
    root: ProcRoot,
    clock: Arc<dyn Clock>,
    own_pid: u32,
    by_process: HashMap<ProcessKey, TorchCounters>,
}

impl Readers {
    /// Readers below `root`; `own_pid` is us, and not read from outside.
    pub fn new(root: ProcRoot, clock: Arc<dyn Clock>, own_pid: u32) -> Self {
        Readers {
            root,
            clock,
            own_pid,
            by_process: HashMap::new(),
        }
    }

    /// Reads every process of `table` except those in `stopped`.
    pub fn read(&mut self, table: &ProcessTable, stopped: &[u32]) -> AllocatorsRead {
        let mut out = AllocatorsRead::new();
        let mut seen = Vec::new();
        for row in &table.rows {
            let key = match &row.facts {
                _ if row.pid == self.own_pid => continue,
                _ if stopped.contains(&row.pid) => {
                    let why = Reading::missing(WhyKind::Absent, "reading is stopped: A resumes it");
                    out.insert(row.pid, why);
                    continue;
                }
                Reading::Is(facts) => facts.key,
                Reading::Missing(why) => {
                    out.insert(row.pid, Reading::Missing(why.clone()));
                    continue;
                }
            };
            seen.push(key);
            let reader = self
                .by_process
                .entry(key)
                .or_insert_with(|| TorchCounters::new(key.pid, self.root.clone(), self.clock.clone()));
            out.insert(row.pid, reader.read_all(None).map(|read| read.devices));
        }
        self.by_process.retain(|key, _| seen.contains(key));
        out
    }
}
