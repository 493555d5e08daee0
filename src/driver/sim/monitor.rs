//! The simulated device as a monitor sees it: what NVML would answer of a card in this state.

use super::SimDevice;
use crate::reading::{Reading, WhyKind};
use crate::source::{
    DeviceActivity, DeviceIdentity, DeviceMemory, DeviceMonitor, DeviceProcess, MemoryInfoVersion, ProcessKind,
};
use crate::units::Bytes;

/// Reads a [`SimDevice`] as NVML reads a card. It sees one device, with index 0.
#[derive(Clone)]
pub struct SimMonitor(SimDevice);

impl SimMonitor {
    pub(super) fn new(device: SimDevice) -> Self {
        SimMonitor(device)
    }

    fn answer<T>(&self, index: u32, read: impl FnOnce(&SimDevice) -> T) -> Reading<T> {
        if index == 0 {
            Reading::Is(read(&self.0))
        } else {
            Reading::missing(WhyKind::Absent, "the simulated machine has one device, with index 0")
        }
    }
}

impl DeviceMonitor for SimMonitor {
    fn devices(&mut self) -> Reading<Vec<DeviceIdentity>> {
        let spec = self.0.spec();
        Reading::Is(vec![DeviceIdentity {
            index: 0,
            uuid: spec.uuid,
            name: spec.name,
            pci: Reading::missing(WhyKind::Absent, "a simulated device is on no bus"),
            simulated: true,
            unified: false,
        }])
    }

    fn memory(&mut self, index: u32) -> Reading<DeviceMemory> {
        self.answer(index, |device| {
            let ledger = device.ledger();
            DeviceMemory {
                total: Bytes(ledger.total),
                reserved: Reading::Is(Bytes(ledger.driver)),
                used: Bytes(ledger.used()),
                free: Bytes(ledger.free()),
                version: MemoryInfoVersion::V2,
            }
        })
    }

    fn processes(&mut self, index: u32) -> Reading<Vec<DeviceProcess>> {
        self.answer(index, |device| {
            let ledger = device.ledger();
            let mut pids: Vec<u32> = ledger.processes.iter().map(|p| p.pid).collect();
            pids.sort_unstable();
            pids.dedup();
            pids.into_iter()
                .filter_map(|pid| ledger.of(pid))
                .map(|line| DeviceProcess {
                    pid: line.pid,
                    vram: Reading::Is(Bytes(line.charged())),
                    kind: ProcessKind::Compute,
                })
                .collect()
        })
    }

    fn activity(&mut self, index: u32) -> Reading<DeviceActivity> {
        let why = || Reading::missing(WhyKind::Absent, "a simulated device computes nothing");
        self.answer(index, |_| DeviceActivity {
            sm_percent: why(),
            temperature: why(),
            power_mw: why(),
        })
    }

    fn driver_version(&mut self) -> Reading<String> {
        Reading::missing(WhyKind::Absent, "no driver: the device is simulated")
    }
}
