//! `--once` and `--json`: one look at the devices and the processes on them, as text or as one versioned JSON document
//! (issue 3.5, AC-36). Bytes are integers, unknown is null, and every null has its reason beside it.

use std::io::Write;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::allocator::stats::DeviceStats;
use crate::allocator::{Rules, memory_stats};
use crate::attach::{Attached, DeviceRead, ProcRoot};
use crate::clock::timed;
use crate::reading::{Reading, WhyKind};
use crate::source::host::HostSource;
use crate::source::host::facts::{ProcessFacts, Users};
use crate::source::printable::printable;
use crate::source::processes::{container, listed_facts};
use crate::source::{DeviceIdentity, DeviceMonitor};
use crate::units::Bytes;

pub mod text;

/// The name and version of the document's shape. A field may be added without a new number; none changes its meaning.
pub const SCHEMA: &str = "alloctop.once/1";

/// The document.
#[derive(Debug, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of this program.
    pub version: &'static str,
    /// The driver's version.
    pub driver: Option<String>,
    /// Every device that is shown.
    pub devices: Vec<Device>,
    /// Why there is no device.
    pub devices_reason: Option<String>,
    /// The processes.
    pub processes: Vec<Process>,
    /// What this look itself cost.
    pub own: Own,
}

/// One device, bytes.
#[derive(Debug, Serialize)]
pub struct Device {
    /// The monitor's index.
    pub index: u32,
    /// Its UUID.
    pub uuid: String,
    /// The product's name.
    pub name: String,
    /// True for the simulated device.
    pub simulated: bool,
    /// Everything on the board.
    pub total_bytes: Option<u64>,
    /// What the driver keeps for itself.
    pub driver_bytes: Option<u64>,
    /// In use.
    pub used_bytes: Option<u64>,
    /// True if `used_bytes` holds the driver's own part (an old driver).
    pub used_includes_driver: Option<bool>,
    /// Free.
    pub free_bytes: Option<u64>,
    /// Percent of time that kernels ran.
    pub sm_percent: Option<u32>,
    /// Sum of what the listed processes hold; null if one of them is unknown.
    pub processes_bytes: Option<u64>,
    /// `used` less the processes: context overhead and what no visible process explains (AC-4).
    pub unexplained_bytes: Option<i64>,
    /// Why a figure is null.
    pub reason: Option<String>,
}

/// One process.
#[derive(Debug, Serialize)]
pub struct Process {
    /// Its PID in our namespace (the driver's own where it is not visible here).
    pub pid: u32,
    /// The PID that it sees itself, in a container.
    pub inner_pid: Option<u32>,
    /// The first digits of its container's id, where it runs in one.
    pub container: Option<String>,
    /// Its owner.
    pub user: Option<String>,
    /// Its command line.
    pub command: Option<String>,
    /// Resident set.
    pub rss_bytes: Option<u64>,
    /// Its share on each device.
    pub gpus: Vec<Share>,
    /// Its PyTorch allocator.
    pub torch: Option<Torch>,
    /// Why `torch` or a figure is null.
    pub reason: Option<String>,
}

/// What a process holds on one device.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The device's index.
    pub index: u32,
    /// The device's UUID.
    pub uuid: String,
    /// What the driver charges to the process.
    pub vram_bytes: Option<u64>,
}

/// A PyTorch allocator, read from outside.
#[derive(Debug, Serialize)]
pub struct Torch {
    /// How it was found.
    pub route: String,
    /// The file that holds it.
    pub library: String,
    /// Which allocator it is.
    pub backend: String,
    /// PyTorch's version, where the process's memory says it.
    pub version: Option<String>,
    /// The allocator's configuration, as its environment gave it.
    pub configuration: Option<String>,
    /// Its devices.
    pub devices: Vec<TorchDevice>,
}

/// The allocator's counters on one device.
#[derive(Debug, Serialize)]
pub struct TorchDevice {
    /// The process's own number of the device.
    pub ordinal: u32,
    /// Which card it is.
    pub uuid: Option<String>,
    /// False if the counters are not from this look but the last consistent ones.
    pub fresh: bool,
    /// Limit by set_per_process_memory_fraction.
    pub memory_limit_bytes: Option<u64>,
    /// Largest free block of the default pools.
    pub largest_free_bytes: Option<u64>,
    /// Expandable segments are in use.
    pub expandable_segments: Option<bool>,
    /// `torch.cuda.memory_stats()` under its own key names.
    pub stats: Map<String, Value>,
}

/// What this look cost.
#[derive(Debug, Serialize)]
pub struct Own {
    /// Our own resident set.
    pub rss_bytes: Option<u64>,
    /// Time in the monitor library, microseconds.
    pub monitor_us: u64,
    /// Time for reading allocators, microseconds.
    pub attach_us: u64,
}

/// What to look at.
#[derive(Debug, Default)]
pub struct Request {
    /// These processes, on a GPU or not; empty: all on the GPUs.
    pub pids: Vec<u32>,
    /// Only this user's (name or uid).
    pub user: Option<String>,
    /// Only these devices, by index.
    pub devices: Option<Vec<u32>>,
}

/// PyTorch's keys with their values; a counter that this release does not have is null.
pub fn stats_map(stats: &DeviceStats) -> Map<String, Value> {
    let mut map: Map<String, Value> = memory_stats(stats, &Rules::default())
        .into_iter()
        .map(|(key, value)| (key, Value::from(value)))
        .collect();
    for key in [
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "num_oom_rejections",
    ] {
        map.entry(key).or_insert(Value::Null);
    }
    map
}

/// Looks once.
pub fn look(monitor: &mut dyn DeviceMonitor, root: &ProcRoot, request: &Request) -> Document {
    let mut host = HostSource::new(&root.0);
    let (monitored, monitor_time) = timed(|| Monitored::read(monitor, request));
    let mut pids: Vec<u32> = if request.pids.is_empty() {
        monitored.shares.iter().map(|(pid, _)| *pid).collect()
    } else {
        request.pids.clone()
    };
    pids.sort_unstable();
    pids.dedup();
    let mut users = Users::default();
    let nested = container::in_nested_namespace(&root.0);
    let mut attach_time = std::time::Duration::ZERO;
    let mut processes = Vec::new();
    for pid in pids {
        let listed = listed_facts(&host, nested, pid);
        // A PID that was asked for is one of ours, whatever the driver calls by that number.
        let facts = if request.pids.is_empty() {
            listed.clone()
        } else {
            host.facts(pid)
        };
        let uid = facts.value().and_then(|f| f.uid.value().copied());
        let user = uid.map(|uid| users.name(uid).to_string());
        if let Some(wanted) = &request.user
            && user.as_ref() != Some(wanted)
            && uid.map(|u| u.to_string()).as_ref() != Some(wanted)
        {
            continue;
        }
        let ((torch, rss), took) = timed(|| match &facts {
            Reading::Is(_) => (
                torch(root, pid, &monitored.identities),
                host.memory(pid).map(|m| m.rss.0),
            ),
            Reading::Missing(why) if why.kind == WhyKind::Gone => {
                let gone = crate::attach::refusal::gone(pid);
                (Reading::Missing(gone.clone()), Reading::Missing(gone))
            }
            Reading::Missing(why) => (Reading::Missing(why.clone()), Reading::Missing(why.clone())),
        });
        attach_time += took;
        let stranger = facts.value().is_some() && listed.value().is_none();
        let mut reasons: Vec<String> = torch
            .why()
            .into_iter()
            .chain(rss.why())
            .map(|w| w.text.to_string())
            .collect();
        reasons.extend(listed.why().filter(|_| stranger).map(|w| format!("VRAM: {w}")));
        reasons.dedup();
        processes.push(Process {
            pid,
            inner_pid: facts.value().and_then(ProcessFacts::inner_pid),
            container: facts.value().and_then(|_| container::id_of(&root.0, pid)),
            user,
            command: facts.value().map(|f| f.command.clone()),
            rss_bytes: rss.value().copied(),
            gpus: monitored
                .shares
                .iter()
                .filter(|(p, _)| *p == pid && !stranger)
                .map(|(_, s)| s.clone())
                .collect(),
            torch: match torch {
                Reading::Is(torch) => Some(torch),
                Reading::Missing(_) => None,
            },
            reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
        });
    }
    Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        driver: monitor.driver_version().value().cloned(),
        devices: monitored.devices,
        devices_reason: monitored.reason,
        processes,
        own: Own {
            rss_bytes: host.rss(std::process::id()).value().map(|b| b.0),
            monitor_us: monitor_time.as_micros() as u64,
            attach_us: attach_time.as_micros() as u64,
        },
    }
}

/// The devices' part of a look.
struct Monitored {
    identities: Vec<DeviceIdentity>,
    devices: Vec<Device>,
    shares: Vec<(u32, Share)>,
    reason: Option<String>,
}

impl Monitored {
    fn read(monitor: &mut dyn DeviceMonitor, request: &Request) -> Monitored {
        let mut out = Monitored {
            identities: Vec::new(),
            devices: Vec::new(),
            shares: Vec::new(),
            reason: None,
        };
        let identities = match monitor.devices() {
            Reading::Is(list) => list,
            Reading::Missing(why) => {
                out.reason = Some(why.text.to_string());
                return out;
            }
        };
        out.identities.clone_from(&identities);
        for identity in identities {
            if request
                .devices
                .as_ref()
                .is_some_and(|wanted| !wanted.contains(&identity.index))
            {
                continue;
            }
            let device = out.one(monitor, &identity);
            out.devices.push(device);
        }
        out
    }

    fn one(&mut self, monitor: &mut dyn DeviceMonitor, identity: &DeviceIdentity) -> Device {
        let memory = monitor.memory(identity.index);
        let processes = monitor.processes(identity.index);
        let activity = monitor.activity(identity.index);
        let mut charged: Option<u64> = processes.value().map(|_| 0);
        let mut seen: Vec<u32> = Vec::new();
        for process in processes.value().into_iter().flatten() {
            // A process with a compute and a graphics context is listed twice with one figure.
            if seen.contains(&process.pid) {
                continue;
            }
            seen.push(process.pid);
            let vram = process.vram.value().map(|b| b.0);
            charged = charged.zip(vram).map(|(a, b)| a + b);
            let share = Share {
                index: identity.index,
                uuid: identity.uuid.clone(),
                vram_bytes: vram,
            };
            self.shares.push((process.pid, share));
        }
        let m = memory.value();
        let used = m.map(|m| m.used.0);
        Device {
            index: identity.index,
            uuid: identity.uuid.clone(),
            name: identity.name.clone(),
            simulated: identity.simulated,
            total_bytes: m.map(|m| m.total.0),
            driver_bytes: m.and_then(|m| m.reserved.value().map(|b| b.0)),
            used_bytes: used,
            used_includes_driver: m.map(|m| m.version == crate::source::MemoryInfoVersion::V1),
            free_bytes: m.map(|m| m.free.0),
            sm_percent: activity.value().and_then(|a| a.sm_percent.value().copied()),
            processes_bytes: charged,
            unexplained_bytes: used
                .zip(charged)
                .and_then(|(u, c)| i64::try_from(i128::from(u) - i128::from(c)).ok()),
            reason: memory.why().or(processes.why()).map(|w| w.text.to_string()),
        }
    }
}

fn torch(root: &ProcRoot, pid: u32, gpus: &[DeviceIdentity]) -> Reading<Torch> {
    Attached::find(root, pid).and_then(|mut attached| {
        attached.identify(gpus);
        attached.survey();
        let read = attached.read();
        read.map(|read| Torch {
            route: attached.route().describe().to_string(),
            library: printable(attached.library().as_os_str().as_encoded_bytes(), 300),
            backend: attached.backend().describe(),
            version: attached.torch_version().value().cloned(),
            configuration: attached.configuration().value().cloned().flatten(),
            devices: read.devices.iter().map(torch_device).collect(),
        })
    })
}

fn torch_device(device: &DeviceRead) -> TorchDevice {
    TorchDevice {
        ordinal: device.ordinal,
        uuid: device.uuid.value().cloned(),
        fresh: device.fresh,
        memory_limit_bytes: device.memory_limit.value().copied().flatten(),
        largest_free_bytes: device.largest_free.value().copied(),
        expandable_segments: device.expandable.value().copied(),
        stats: stats_map(&device.stats),
    }
}

/// Writes the document as JSON.
///
/// # Errors
/// The output cannot be written.
pub fn write_json(document: &Document, out: &mut dyn Write) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

/// Exit status of a look: 1 if something that was asked for could not be read at all: a process of the request, or, where
/// it names none, the devices or the memory of one.
pub fn status(document: &Document, request: &Request) -> u8 {
    let lost = |pid: &u32| {
        !document
            .processes
            .iter()
            .any(|p| p.pid == *pid && (p.rss_bytes.is_some() || p.torch.is_some()))
    };
    let devices = || document.devices_reason.is_some() || document.devices.iter().any(|d| d.total_bytes.is_none());
    u8::from(request.pids.iter().any(lost) || (request.pids.is_empty() && devices()))
}

/// "-" for what is not known.
pub(crate) fn bytes(value: Option<u64>) -> String {
    value.map_or("-".into(), |b| Bytes(b).to_string())
}
