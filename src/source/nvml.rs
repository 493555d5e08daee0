//! NVIDIA's management library as a [`DeviceMonitor`], loaded at run time; no CUDA context is ever made here (AC-18).
//!
//! The safe calls go through nvml-wrapper. Memory in version 1 and the process lists in all three versions are not in it
//! and go through `raw`. Every answer passes `check` before it becomes a reading, every refusal gets its sentence in
//! `refusal`.
//!
//! Measured on an H200 (driver 580): memory 9 us, one process list 6 to 8 us, utilisation, temperature and power 0.6 us
//! each. Process utilisation (2.65 ms) is asked for once a second while the process table is open, PCIe throughput
//! (21 ms) never.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;

use crate::clock::{Clock, Moment, RealClock};
use crate::reading::{Reading, Why, WhyKind};
use crate::source::printable::printable;
use crate::source::{
    DeviceActivity, DeviceIdentity, DeviceMemory, DeviceMonitor, DeviceProcess, MemoryInfoVersion, ProcessKind,
};

mod check;
mod raw;
mod refusal;

/// Longest product name kept, in characters.
const NAME_LIMIT: usize = 96;
/// An empty list of graphics or MPS processes holds for this long.
const EMPTY_FOR: Duration = Duration::from_secs(1);
/// More devices than any host has: a larger count is a broken answer.
const DEVICE_LIMIT: u32 = 256;

/// Product names of chips whose GPU uses the host's memory (AC-9): Jetson and DGX Spark.
const UNIFIED_NAMES: [&str; 6] = ["GB10", "Thor", "Orin", "Xavier", "Tegra", "Jetson"];

/// The loaded library.
#[derive(Debug)]
pub struct Nvml {
    library: nvml_wrapper::Nvml,
    path: PathBuf,
    lists: raw::ProcessLists,
    memory_v1: HashSet<u32>,
    totals: HashMap<u32, u64>,
    refused: Vec<(u32, Why)>,
    said: HashSet<(Option<u32>, &'static str, WhyKind)>,
    impossible: u64,
    /// When a list of graphics or MPS processes was last found empty.
    empty: HashMap<(u32, ProcessKind), Moment>,
    clock: RealClock,
}

/// Where the library is looked for (AC-14): only at `explicit` if one is given, else by its names through the system's own
/// search, then in the folders where drivers, WSL and containers put it. The name without a version comes second: it is
/// often the toolkit's stub.
pub fn candidates(explicit: Option<&Path>) -> Vec<PathBuf> {
    const FOLDERS: [&str; 12] = [
        "/usr/lib/wsl/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/x86_64-linux-gnu/nvidia/current",
        "/usr/lib/nvidia",
        "/usr/lib64/nvidia",
        "/usr/local/nvidia/lib64",
        "/usr/local/nvidia/lib",
        "/run/opengl-driver/lib",
        "/opt/nvidia/lib64",
    ];
    if let Some(path) = explicit {
        return vec![path.to_path_buf()];
    }
    ["libnvidia-ml.so.1", "libnvidia-ml.so"]
        .into_iter()
        .map(PathBuf::from)
        .chain(FOLDERS.iter().map(|folder| Path::new(folder).join("libnvidia-ml.so.1")))
        .collect()
}

impl Nvml {
    /// Loads and initialises the library: `path` (`--nvml PATH`) or the first of [`candidates`] that works. The reason of
    /// a failure is one sentence with its next step (AC-13).
    pub fn open(path: Option<&Path>) -> Reading<Nvml> {
        let mut first_why: Option<Why> = None;
        for candidate in candidates(path) {
            match nvml_wrapper::Nvml::builder().lib_path(candidate.as_os_str()).init() {
                Ok(library) => return Reading::Is(Nvml::from_library(library, candidate)),
                Err(e) => {
                    let why = refusal::of_open(&e, &candidate, path.is_some());
                    // A library that loads and refuses says more than one that is not there.
                    if first_why.as_ref().is_none_or(|w| w.kind == WhyKind::Absent) && !is_not_there(&e, &candidate) {
                        first_why = Some(why);
                    }
                }
            }
        }
        Reading::Missing(first_why.unwrap_or_else(|| refusal::no_library(path)))
    }

    fn from_library(library: nvml_wrapper::Nvml, path: PathBuf) -> Self {
        Nvml {
            library,
            path,
            lists: raw::ProcessLists::default(),
            memory_v1: HashSet::new(),
            totals: HashMap::new(),
            refused: Vec::new(),
            said: HashSet::new(),
            impossible: 0,
            empty: HashMap::new(),
            clock: RealClock::start(),
        }
    }

    /// The path or name under which the library was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The reason for a failed call; it goes to the log the first time only (AC-8).
    fn why(&mut self, call: &'static str, index: Option<u32>, error: &NvmlError) -> Why {
        let why = refusal::of_call(call, index, error);
        if self.said.insert((index, call, why.kind)) {
            tracing::warn!(call, index, "{why}");
        }
        why
    }

    /// An answer that cannot be true: not shown, and counted in the log (AC-2).
    fn impossible(&mut self, index: u32, what: impl Into<std::borrow::Cow<'static, str>>) -> Why {
        let why = Why::new(WhyKind::Impossible, what);
        self.impossible += 1;
        if self.impossible.is_power_of_two() {
            tracing::warn!(index, count = self.impossible, "impossible answer left out: {why}");
        }
        why
    }

    fn identity(&mut self, index: u32) -> Result<DeviceIdentity, Why> {
        let device = match self.library.device_by_index(index) {
            Ok(device) => device,
            Err(e) => return Err(self.why("nvmlDeviceGetHandleByIndex", Some(index), &e)),
        };
        let (uuid, name, pci) = (device.uuid(), device.name(), device.pci_info());
        let uuid = match uuid {
            Ok(uuid) => printable(uuid.as_bytes(), NAME_LIMIT),
            Err(e) => return Err(self.why("nvmlDeviceGetUUID", Some(index), &e)),
        };
        let name = match name {
            Ok(name) => printable(name.as_bytes(), NAME_LIMIT),
            Err(e) => {
                self.why("nvmlDeviceGetName", Some(index), &e);
                "NVIDIA GPU (name not given)".to_owned()
            }
        };
        let pci = match pci {
            Ok(pci) => Reading::Is(printable(pci.bus_id.as_bytes(), NAME_LIMIT)),
            Err(e) => Reading::Missing(self.why("nvmlDeviceGetPciInfo", Some(index), &e)),
        };
        // A chip without memory of its own answers "not supported", also under a name that is not known yet.
        let unified = UNIFIED_NAMES.iter().any(|chip| name.contains(chip))
            || matches!(self.read_memory(index), Err((_, NvmlError::NotSupported)));
        Ok(DeviceIdentity {
            index,
            uuid,
            name,
            pci,
            simulated: false,
            unified,
        })
    }

    /// Memory from the newest call that the driver has: (total, reserved, used, free, version).
    fn read_memory(&mut self, index: u32) -> Result<check::RawMemory, (&'static str, NvmlError)> {
        let device = self
            .library
            .device_by_index(index)
            .map_err(|e| ("nvmlDeviceGetHandleByIndex", e))?;
        if !self.memory_v1.contains(&index) {
            match device.memory_info() {
                Ok(m) => {
                    return Ok(check::RawMemory {
                        total: m.total,
                        reserved: Some(m.reserved),
                        used: m.used,
                        free: m.free,
                        version: MemoryInfoVersion::V2,
                    });
                }
                Err(e) if raw::is_missing_function(&e) => {
                    self.memory_v1.insert(index);
                }
                Err(NvmlError::NotSupported) => {}
                Err(e) => return Err(("nvmlDeviceGetMemoryInfo_v2", e)),
            }
        }
        raw::memory_v1(self.library.lib(), &device).map_err(|e| ("nvmlDeviceGetMemoryInfo", e))
    }

    /// The card's total, read once.
    fn total(&mut self, index: u32) -> Option<u64> {
        if !self.totals.contains_key(&index) {
            // Stores the total when the answer stands its checks.
            let _ = self.memory(index);
        }
        self.totals.get(&index).copied()
    }

    /// One kind of process list. A driver without this kind has no such processes.
    fn list(&mut self, index: u32, kind: ProcessKind) -> Result<Vec<raw::RawProcess>, Why> {
        // A list of graphics or MPS processes that was empty stays unasked for a second: on most cards both always are,
        // and asking all three costs more than the rest of a tick together (H200: 6 to 8 us for each of six calls).
        let now = self.clock.now();
        if self
            .empty
            .get(&(index, kind))
            .is_some_and(|at| now.since(*at) < EMPTY_FOR)
        {
            return Ok(Vec::new());
        }
        let list = self.ask_list(index, kind)?;
        if kind != ProcessKind::Compute && list.is_empty() {
            self.empty.insert((index, kind), now);
        }
        Ok(list)
    }

    fn ask_list(&mut self, index: u32, kind: ProcessKind) -> Result<Vec<raw::RawProcess>, Why> {
        let device = match self.library.device_by_index(index) {
            Ok(device) => device,
            Err(e) => return Err(self.why("nvmlDeviceGetHandleByIndex", Some(index), &e)),
        };
        match self.lists.read(self.library.lib(), &device, kind) {
            Ok(list) => Ok(list),
            Err(e) if kind != ProcessKind::Compute && raw::is_missing_kind(&e) => Ok(Vec::new()),
            Err(e) => Err(self.why(raw::call_of(kind), Some(index), &e)),
        }
    }

    /// One u32 figure of a device, with its blanks and limits checked.
    fn figure(&mut self, index: u32, call: &'static str, answer: Result<u32, NvmlError>, limit: u32) -> Reading<u32> {
        match answer {
            Ok(n) => match check::known32(n) {
                None => Reading::missing(WhyKind::Absent, format!("{call}: the driver gives no value here")),
                Some(n) if n > limit => {
                    Reading::Missing(self.impossible(index, format!("{call} answered {n}, more than {limit}")))
                }
                Some(n) => Reading::Is(n),
            },
            Err(e) => Reading::Missing(self.why(call, Some(index), &e)),
        }
    }
}

impl DeviceMonitor for Nvml {
    fn devices(&mut self) -> Reading<Vec<DeviceIdentity>> {
        let count = match self.library.device_count() {
            Ok(count) => count.min(DEVICE_LIMIT),
            Err(e) => return Reading::Missing(self.why("nvmlDeviceGetCount", None, &e)),
        };
        self.refused.clear();
        let mut devices = Vec::new();
        for index in 0..count {
            match self.identity(index) {
                Ok(identity) => devices.push(identity),
                Err(why) => self.refused.push((index, why)),
            }
        }
        match (devices.is_empty(), self.refused.first()) {
            (false, _) => Reading::Is(devices),
            (true, Some((_, why))) => Reading::Missing(why.clone()),
            (true, None) => Reading::Missing(refusal::no_device()),
        }
    }

    fn refused(&mut self) -> Vec<(u32, Why)> {
        self.refused.clone()
    }

    fn memory(&mut self, index: u32) -> Reading<DeviceMemory> {
        match self.read_memory(index) {
            Ok(raw) => match check::memory(&raw) {
                Ok(memory) => {
                    self.totals.insert(index, memory.total.0);
                    Reading::Is(memory)
                }
                Err(check::Fault::Blank) => Reading::missing(
                    WhyKind::Absent,
                    "the driver gives no memory figures for this device (WSL, MIG or vGPU): ask its instance, or the host",
                ),
                Err(check::Fault::Impossible(what)) => Reading::Missing(self.impossible(index, what)),
            },
            Err((_, NvmlError::NotSupported)) => Reading::missing(
                WhyKind::Absent,
                "this GPU has no memory of its own to count: where it uses the host's memory, see CPU RAM",
            ),
            Err((call, e)) => Reading::Missing(self.why(call, Some(index), &e)),
        }
    }

    fn processes(&mut self, index: u32) -> Reading<Vec<DeviceProcess>> {
        let total = self.total(index);
        let mut list = Vec::new();
        for kind in [ProcessKind::Compute, ProcessKind::Graphics, ProcessKind::Mps] {
            match self.list(index, kind) {
                Ok(raw) => list.extend(raw.into_iter().map(|p| (p, kind))),
                Err(why) => return Reading::Missing(why),
            }
        }
        let (processes, faults) = check::processes(list, total);
        for _ in 0..faults {
            self.impossible(index, check::MORE_THAN_THE_CARD);
        }
        Reading::Is(processes)
    }

    fn activity(&mut self, index: u32) -> Reading<DeviceActivity> {
        let answers = self.library.device_by_index(index).map(|device| {
            (
                device.utilization_rates().map(|u| u.gpu),
                device.temperature(TemperatureSensor::Gpu),
                device.power_usage(),
            )
        });
        match answers {
            Err(e) => Reading::Missing(self.why("nvmlDeviceGetHandleByIndex", Some(index), &e)),
            Ok((sm, temperature, power)) => Reading::Is(DeviceActivity {
                sm_percent: self.figure(index, "nvmlDeviceGetUtilizationRates", sm, 100),
                temperature: self.figure(index, "nvmlDeviceGetTemperature", temperature, 200),
                power_mw: self.figure(index, "nvmlDeviceGetPowerUsage", power, 10_000_000),
            }),
        }
    }

    fn process_activity(&mut self, index: u32) -> Reading<Vec<(u32, u32)>> {
        let answer = self
            .library
            .device_by_index(index)
            .and_then(|device| device.process_utilization_stats(None));
        match answer {
            // The library keeps some samples of each process; the last one is the newest.
            Ok(samples) => Reading::Is(samples.iter().map(|s| (s.pid, s.sm_util.min(100))).collect()),
            // Nothing ran since the last question.
            Err(NvmlError::NotFound) => Reading::Is(Vec::new()),
            Err(e) => Reading::Missing(self.why("nvmlDeviceGetProcessUtilization", Some(index), &e)),
        }
    }

    fn driver_version(&mut self) -> Reading<String> {
        match self.library.sys_driver_version() {
            Ok(version) => Reading::Is(printable(version.as_bytes(), NAME_LIMIT)),
            Err(e) => Reading::Missing(self.why("nvmlSystemGetDriverVersion", None, &e)),
        }
    }

    fn impossible_answers(&self) -> u64 {
        self.impossible
    }
}

/// The loader found no such file, as far as that can be told: a name without folder, or a path that is not there.
fn is_not_there(error: &NvmlError, candidate: &Path) -> bool {
    matches!(error, NvmlError::LibloadingError(_))
        && (candidate.parent().is_none_or(|p| p.as_os_str().is_empty()) || !candidate.exists())
}
