//! Where numbers come from: the host (`host`), the driver's monitor (`nvml`), a live PyTorch process (through
//! [`crate::attach`]), the simulated device (through [`crate::driver::sim`]). A source cannot see the application; it
//! answers with [`Reading`]s, so a figure that is missing always carries its reason.

use crate::reading::{Reading, Why};
use crate::units::Bytes;

pub mod host;
pub mod nvml;
pub mod printable;
pub mod processes;

/// The memory of one process as Linux counts it (/proc/PID/statm and status).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// Resident set size.
    pub rss: Bytes,
    /// Anonymous part: heap that lives or that the C library kept.
    pub anon: Reading<Bytes>,
    /// Pages of mapped files.
    pub file: Reading<Bytes>,
    /// Shared memory.
    pub shmem: Reading<Bytes>,
    /// The highest RSS so far (VmHWM).
    pub high_water: Reading<Bytes>,
    /// Part that is swapped out.
    pub swap: Reading<Bytes>,
}

/// The host's own memory (/proc/meminfo).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTotals {
    /// MemTotal.
    pub total: Bytes,
    /// MemAvailable.
    pub available: Reading<Bytes>,
}

/// The memory that bounds a process on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCeiling {
    /// The smallest cgroup limit on the path; missing (`Absent`) when no cgroup limits it.
    pub cgroup_limit: Reading<Bytes>,
    /// What that cgroup uses now.
    pub cgroup_used: Reading<Bytes>,
    /// MemTotal.
    pub host_total: Reading<Bytes>,
    /// MemAvailable.
    pub host_available: Reading<Bytes>,
}

impl HostCeiling {
    /// The limit that holds: the cgroup's where there is one, else the host's memory.
    pub fn limit(&self) -> Reading<Bytes> {
        match (&self.cgroup_limit, &self.host_total) {
            (Reading::Is(c), Reading::Is(h)) => Reading::Is(*c.min(h)),
            (Reading::Is(c), Reading::Missing(_)) => Reading::Is(*c),
            (Reading::Missing(_), host) => host.clone(),
        }
    }
}

/// Which NVML call the device's figures came from: they count the driver's own part differently (users.md 2.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryInfoVersion {
    /// v2: total = reserved + used + free; `used` leaves the driver's own part out.
    V2,
    /// v1: total = used + free; `used` includes the driver's own part. Labelled "incl. driver".
    V1,
}

/// The memory of one device, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Everything on the board.
    pub total: Bytes,
    /// What the driver keeps for itself (v2 only).
    pub reserved: Reading<Bytes>,
    /// In use; see [`MemoryInfoVersion`].
    pub used: Bytes,
    /// Free.
    pub free: Bytes,
    /// Which call answered.
    pub version: MemoryInfoVersion,
}

/// What a process does on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProcessKind {
    /// A CUDA context.
    Compute,
    /// A graphics context.
    Graphics,
    /// A client of the multi-process service.
    Mps,
}

/// One process that the driver lists for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceProcess {
    /// Its process id in the driver's PID namespace (the host's).
    pub pid: u32,
    /// What the driver charges to it.
    pub vram: Reading<Bytes>,
    /// Kind of context.
    pub kind: ProcessKind,
}

/// Who a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Index in the monitor's order (by bus), not CUDA's.
    pub index: u32,
    /// "GPU-..." with the UUID; the key of a card (AC-40).
    pub uuid: String,
    /// The product's name, free of control characters.
    pub name: String,
    /// PCI bus id.
    pub pci: Reading<String>,
    /// True for a simulated device: the screen must say so (AC: cannot be overlooked).
    pub simulated: bool,
    /// True where device memory is host memory (AC-9).
    pub unified: bool,
}

/// Slow-changing figures of a device, read once a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceActivity {
    /// Percent of time that kernels ran.
    pub sm_percent: Reading<u32>,
    /// Degrees Celsius.
    pub temperature: Reading<u32>,
    /// Milliwatts.
    pub power_mw: Reading<u32>,
}

/// The monitor of devices: NVML on a real machine, the ledger of a simulated one. Calls may block for seconds: the
/// sampler runs them on a thread of its own with a deadline.
pub trait DeviceMonitor: Send {
    /// The devices, in the monitor's order; missing with the reason why there is none.
    fn devices(&mut self) -> Reading<Vec<DeviceIdentity>>;
    /// The memory of device `index`.
    fn memory(&mut self, index: u32) -> Reading<DeviceMemory>;
    /// The processes on device `index`: compute, graphics and MPS, one entry a (pid, kind).
    fn processes(&mut self, index: u32) -> Reading<Vec<DeviceProcess>>;
    /// Activity of device `index`.
    fn activity(&mut self, index: u32) -> Reading<DeviceActivity>;
    /// The driver's version, for people.
    fn driver_version(&mut self) -> Reading<String>;
    /// Devices that exist and refuse to be asked, with the reason: found by the last call of `devices` (AC-13).
    fn refused(&mut self) -> Vec<(u32, Why)> {
        Vec::new()
    }
    /// How many answers were left out so far because they cannot be true (AC-2).
    fn impossible_answers(&self) -> u64 {
        0
    }
}
