//! Rows for the process table: every process on the devices with its VRAM per device and its side on the host, and those
//! that hold a device without being listed for it (issue 3, point 1; AC-11, 12, 30, 39). Collected about once a second on
//! a thread of its own.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::clock::Moment;
use crate::reading::{Reading, Why, WhyKind};
use crate::source::host::HostSource;
use crate::source::host::facts::{ProcessFacts, ProcessKey, ProcessState, Users};
use crate::source::{DeviceIdentity, DeviceMemory, DeviceProcess, ProcessKind};
use crate::units::Bytes;

pub mod container;
pub mod holders;

use holders::Holder;

/// PSS walks the page tables of a process: asked for at most this often for each.
const PSS_EVERY: Duration = Duration::from_secs(5);
/// The search for open device files reads the open files of all processes: at most this often.
const HOLDERS_EVERY: Duration = Duration::from_secs(10);
/// Most descendants of one process that are summed.
const FAMILY_LIMIT: usize = 1000;

/// What one device says, for the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSurvey {
    /// Which device.
    pub device: DeviceIdentity,
    /// Its memory.
    pub memory: Reading<DeviceMemory>,
    /// Its processes.
    pub processes: Reading<Vec<DeviceProcess>>,
    /// Percent of its time that each process used.
    pub activity: Reading<Vec<(u32, u32)>>,
}

impl DeviceSurvey {
    /// What `pid` used of the device lately: a process that the device does not name used nothing.
    fn sm_percent(&self, pid: u32) -> Reading<u32> {
        self.activity.as_ref().map(|list| {
            list.iter()
                .rev()
                .find(|(p, _)| *p == pid)
                .map_or(0, |(_, percent)| *percent)
        })
    }
}

/// A process's share of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceShare {
    /// The monitor's index.
    pub index: u32,
    /// The device's key.
    pub uuid: String,
    /// What the driver charges to the process there.
    pub vram: Reading<Bytes>,
    /// Its kinds of context there.
    pub kinds: Vec<ProcessKind>,
    /// Percent of the device's time that it used lately.
    pub sm_percent: Reading<u32>,
}

/// How the bytes of a family of processes were summed (AC-30).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyBasis {
    /// By PSS: each shared page counts once.
    Pss,
    /// By RSS, because the PSS of at least one is refused: shared pages are counted this many times at most.
    RssSharedCountedTimes(usize),
}

/// A process and its descendants (data-loader workers) together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// How many descendants.
    pub descendants: usize,
    /// Bytes of all of them and of the process itself.
    pub bytes: Bytes,
    /// How they were summed.
    pub basis: FamilyBasis,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRow {
    /// The PID that the driver or /proc names.
    pub pid: u32,
    /// Who it is; missing for a host PID that is not visible here, or a process that just ended.
    pub facts: Reading<ProcessFacts>,
    /// Its owner's name.
    pub user: Reading<String>,
    /// The first digits of its container's id, where it runs in one.
    pub container: Option<String>,
    /// Its share of each device that lists it.
    pub devices: Vec<DeviceShare>,
    /// Device files that it holds open, where it was found by them.
    pub holds: Vec<String>,
    /// Resident set.
    pub rss: Reading<Bytes>,
    /// Proportional set size, up to 5 s old.
    pub pss: Reading<Bytes>,
    /// It and its descendants, where it has some.
    pub family: Option<Family>,
    /// What is to be said of it: zombie, D state, not listed, not visible.
    pub note: Option<Why>,
}

impl ProcessRow {
    /// Its VRAM on all devices; missing when one share is.
    pub fn vram(&self) -> Reading<Bytes> {
        let mut sum: u64 = 0;
        for share in &self.devices {
            match &share.vram {
                Reading::Is(bytes) => sum = sum.saturating_add(bytes.0),
                Reading::Missing(why) => return Reading::Missing(why.clone()),
            }
        }
        if self.devices.is_empty() {
            return Reading::missing(WhyKind::Absent, "no device lists it");
        }
        Reading::Is(Bytes(sum))
    }
}

/// All rows of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessTable {
    /// When they were collected.
    pub at: Moment,
    /// Processes that a device lists, then those that only hold one open; each part by PID.
    pub rows: Vec<ProcessRow>,
    /// Devices whose list is missing, with the reason: an empty table is never shown without one.
    pub unlisted: Vec<(u32, Why)>,
}

/// Collects tables; remembers what is dear.
#[derive(Debug)]
pub struct TableReader {
    host: HostSource,
    users: Users,
    pss: HashMap<ProcessKey, (Moment, Reading<Bytes>)>,
    holders: Option<(Moment, Vec<Holder>)>,
    nested: bool,
}

impl TableReader {
    /// A reader on `host`'s /proc.
    pub fn new(host: HostSource) -> Self {
        let nested = container::in_nested_namespace(host.root());
        TableReader {
            host,
            users: Users::default(),
            pss: HashMap::new(),
            holders: None,
            nested,
        }
    }

    /// The table of this moment. Processes of `also` (the watched one, ourselves) have a row although no device lists them.
    pub fn read(&mut self, now: Moment, surveys: &[DeviceSurvey], also: &[u32]) -> ProcessTable {
        let listed = shares(surveys);
        self.pss.retain(|_, (at, _)| now.since(*at) < PSS_EVERY * 2);
        let mut rows: Vec<ProcessRow> = listed
            .into_iter()
            .map(|(pid, devices)| self.listed_row(now, pid, devices))
            .collect();
        for holder in self.holders(now) {
            if rows.iter().all(|row| row.pid != holder.pid) {
                rows.push(self.holder_row(now, &holder));
            }
        }
        for pid in also {
            if rows.iter().all(|row| row.pid != *pid) {
                let facts = self.host.facts(*pid);
                rows.push(self.row(now, *pid, facts, Vec::new(), Vec::new(), None));
            }
        }
        let unlisted = surveys
            .iter()
            .filter_map(|s| Some((s.device.index, s.processes.why()?.clone())))
            .collect();
        ProcessTable {
            at: now,
            rows,
            unlisted,
        }
    }

    /// A process that a device lists.
    fn listed_row(&mut self, now: Moment, pid: u32, devices: Vec<DeviceShare>) -> ProcessRow {
        let facts = listed_facts(&self.host, self.nested, pid);
        let note = match &facts {
            Reading::Missing(why) if why.kind == WhyKind::Gone && self.nested => {
                Some(Why::new(WhyKind::Absent, "host PID, not visible here"))
            }
            Reading::Missing(why) => Some(why.clone()),
            Reading::Is(facts) => state_note(facts),
        };
        self.row(now, pid, facts, devices, Vec::new(), note)
    }

    /// A process that holds a device open and is not listed for one.
    fn holder_row(&mut self, now: Moment, holder: &Holder) -> ProcessRow {
        let facts = self.host.facts(holder.pid);
        let note = facts.value().and_then(state_note).unwrap_or_else(|| holder.why());
        self.row(now, holder.pid, facts, Vec::new(), holder.files.clone(), Some(note))
    }

    fn row(
        &mut self,
        now: Moment,
        pid: u32,
        facts: Reading<ProcessFacts>,
        devices: Vec<DeviceShare>,
        holds: Vec<String>,
        note: Option<Why>,
    ) -> ProcessRow {
        let here = facts.as_ref().map(|f| f.key);
        let rss = here.clone().and_then(|key| self.host.rss(key.pid));
        let pss = here.clone().and_then(|key| self.pss(now, key));
        let family = here.value().and_then(|key| self.family(now, *key));
        ProcessRow {
            pid,
            user: facts
                .as_ref()
                .and_then(|f| f.uid.clone())
                .map(|uid| self.users.name(uid).to_owned()),
            container: here.value().and_then(|_| container::id_of(self.host.root(), pid)),
            facts,
            devices,
            holds,
            rss,
            pss,
            family,
            note,
        }
    }

    /// PSS, at most 5 s old.
    fn pss(&mut self, now: Moment, key: ProcessKey) -> Reading<Bytes> {
        if let Some((at, pss)) = self.pss.get(&key)
            && now.since(*at) < PSS_EVERY
        {
            return pss.clone();
        }
        let pss = self.host.pss(key.pid);
        self.pss.insert(key, (now, pss.clone()));
        pss
    }

    /// A process and its descendants: by PSS if all of them permit it, else by RSS.
    fn family(&mut self, now: Moment, key: ProcessKey) -> Option<Family> {
        let descendants = self.host.descendants(key.pid, FAMILY_LIMIT).value()?.clone();
        if descendants.is_empty() {
            return None;
        }
        let (mut pss, mut rss) = (Some(0_u64), 0_u64);
        let mut counted = 0;
        for pid in std::iter::once(key.pid).chain(descendants) {
            // One that ended meanwhile holds nothing any more.
            let (Reading::Is(key), Reading::Is(bytes)) = (self.host.key(pid), self.host.rss(pid)) else {
                continue;
            };
            counted += 1;
            rss = rss.saturating_add(bytes.0);
            pss = match self.pss(now, key) {
                Reading::Is(bytes) => pss.map(|sum| sum.saturating_add(bytes.0)),
                // A zombie among the children has no memory and no PSS.
                Reading::Missing(why) if why.kind == WhyKind::Absent || why.kind == WhyKind::Gone => pss,
                Reading::Missing(_) => None,
            };
        }
        Some(Family {
            descendants: counted.max(1) - 1,
            bytes: Bytes(pss.unwrap_or(rss)),
            basis: if pss.is_some() {
                FamilyBasis::Pss
            } else {
                FamilyBasis::RssSharedCountedTimes(counted)
            },
        })
    }

    /// Processes with open device files, at most 10 s old.
    fn holders(&mut self, now: Moment) -> Vec<Holder> {
        match &self.holders {
            Some((at, holders)) if now.since(*at) < HOLDERS_EVERY => holders.clone(),
            _ => {
                let holders = holders::find(self.host.root(), std::process::id());
                self.holders = Some((now, holders.clone()));
                holders
            }
        }
    }
}

/// Who a process is that a device lists under `pid`. Where we are `nested` in a PID namespace, the driver's number may be
/// one of the host's that is not visible here, or belong to an unrelated process here (AC-11).
pub fn listed_facts(host: &HostSource, nested: bool, pid: u32) -> Reading<ProcessFacts> {
    if nested && !holders::uses_nvidia(host.root(), pid) {
        Reading::missing(
            WhyKind::Absent,
            "host PID, not visible here: run alloctop on the host or with --pid=host",
        )
    } else {
        host.facts(pid)
    }
}

/// The shares of each listed process.
fn shares(surveys: &[DeviceSurvey]) -> BTreeMap<u32, Vec<DeviceShare>> {
    let mut by_pid: BTreeMap<u32, Vec<DeviceShare>> = BTreeMap::new();
    for survey in surveys {
        for process in survey.processes.value().into_iter().flatten() {
            let shares = by_pid.entry(process.pid).or_default();
            match shares.iter_mut().find(|s| s.uuid == survey.device.uuid) {
                // Two kinds of context, listed with the same bytes.
                Some(share) => share.kinds.push(process.kind),
                None => shares.push(DeviceShare {
                    index: survey.device.index,
                    uuid: survey.device.uuid.clone(),
                    vram: process.vram.clone(),
                    kinds: vec![process.kind],
                    sm_percent: survey.sm_percent(process.pid),
                }),
            }
        }
    }
    by_pid
}

/// What is to be said of a process because of its state (AC-39).
fn state_note(facts: &ProcessFacts) -> Option<Why> {
    match facts.state {
        ProcessState::Zombie => Some(Why::new(
            WhyKind::Gone,
            format!(
                "has ended, and its parent {} has not noticed (zombie): end the parent to clear it",
                facts.parent
            ),
        )),
        ProcessState::Uninterruptible => Some(Why::new(
            WhyKind::Late,
            "waits inside the kernel and cannot be killed (D state): often a driver call that does not return",
        )),
        _ => None,
    }
}
