//! Read-only attach: the counters of a live PyTorch process, read out of its memory without touching it (allocator-spec
//! section 7, issue 3). Nothing is injected, stopped or written; the only call is process_vm_readv.
//!
//! - `process`, `maps`: who the target is and what its addresses are; `remote`: the bounded reader;
//! - `image`, `class`, `typeinfo`: from the ELF images in its memory to the allocator object and its class;
//! - `native`, `layout`, `counters`: from the object to the devices, and to proven places of the counters;
//! - `snapshot`: a consistent copy of them while the process works;
//! - `survey`, `free`, `card`: what is worth a slower look: memory limit, largest free block, which card it is;
//! - `search`: repeated attempts at processes that are not ready yet;
//! - `refusal`: the sentence for everything that can be in the way.
//!
//! Invariant: nothing here trusts the target. Every length is bounded, every address is checked against its mappings or
//! by the kernel, and a layout that does not prove itself is *unknown*.

mod card;
mod class;
mod counters;
mod free;
mod image;
mod layout;
mod maps;
mod native;
mod process;
pub mod refusal;
mod remote;
mod search;
mod snapshot;
mod survey;
mod typeinfo;

use std::path::{Path, PathBuf};

use crate::allocator::stats::DeviceStats;
use crate::reading::{Reading, Why};
use crate::source::DeviceIdentity;

pub use class::{Backend, Route};
pub use layout::{Shape, Tail};
pub use process::{ProcRoot, Process, printable};
pub use search::Search;

use class::{Failure, Found};
use native::Devices;
use remote::{Fault, Remote};
use snapshot::{Outcome, Reader};
use survey::{Subject, Survey};

/// After so many reads without a survey its results are no longer shown.
const SURVEY_LASTS: u32 = 100;
/// After so many reads in a row without one consistent set of counters the layout is doubted.
const MAX_BAD_READS: u32 = 50;

/// A live PyTorch process whose allocator was found.
#[derive(Debug)]
pub struct Attached {
    root: ProcRoot,
    process: Process,
    remote: Remote,
    found: Found,
    library: PathBuf,
    native: Option<Native>,
}

/// What is kept about a native allocator between two reads.
#[derive(Debug)]
struct Native {
    devices: Devices,
    cuda: Option<u32>,
    readers: Vec<Reader>,
    surveys: Vec<Survey>,
    gpus: Vec<DeviceIdentity>,
    reads_since_survey: u32,
}

/// The counters of all devices of one process, of one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// By the process's own device numbers.
    pub devices: Vec<DeviceRead>,
}

/// The counters of one device, as one process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRead {
    /// The process's own number of the device, after CUDA_VISIBLE_DEVICES.
    pub ordinal: u32,
    /// Which card it is ("GPU-..."); needs [`Attached::identify`].
    pub uuid: Reading<String>,
    /// The counters.
    pub stats: DeviceStats,
    /// False: the target was busy in every try of this read, and these are the last good counters.
    pub fresh: bool,
    /// The limit in bytes that set_per_process_memory_fraction gave; `None` if there is none. As of the last survey.
    pub memory_limit: Reading<Option<u64>>,
    /// The largest free block of the default pools in bytes, 0 if there is none. As of the last survey.
    pub largest_free: Reading<u64>,
    /// Expandable segments are in use. As of the last survey.
    pub expandable: Reading<bool>,
    /// Private pools whose reserved bytes are in `stats`; missing where the release does not count them or the map could
    /// not be read consistently.
    pub private_pools: Reading<usize>,
}

impl Attached {
    /// Finds the allocator of process `pid`. Expensive (a millisecond or a few): maps, ELF images, discovery. The reason
    /// of a failure names its next step; `NotYet` means that a later call may succeed. To try again and again, use
    /// [`Search`].
    pub fn find(root: &ProcRoot, pid: u32) -> Reading<Attached> {
        attach(root, pid).into()
    }

    /// Reads the counters of all devices; a few microseconds. Notices death, exec and reuse of the PID.
    pub fn read(&mut self) -> Reading<Read> {
        let Some(native) = &mut self.native else {
            return Reading::Missing(refusal::no_counters(&self.found.backend.describe()));
        };
        match native.read(&self.remote, &self.found) {
            // Looked at after the read: a process that lives now lived then, and its number was not another's.
            Ok(read) if self.process.alive() => Reading::Is(read),
            Ok(_) => Reading::Missing(self.diagnose(Trouble::Fault(Fault::Gone))),
            Err(trouble) => Reading::Missing(self.diagnose(trouble)),
        }
    }

    /// Looks again at what changes slowly and costs more: memory limit, largest free block, expandable segments. Call it
    /// about once a second; it costs up to a few milliseconds.
    pub fn survey(&mut self) {
        let Some(native) = &mut self.native else { return };
        native.survey(&self.remote, &self.process);
    }

    /// Tells which cards there are, in the order of the bus: from then on reads say which one each device is.
    pub fn identify(&mut self, gpus: &[DeviceIdentity]) {
        if let Some(native) = &mut self.native {
            native.gpus = gpus.to_vec();
            native.survey(&self.remote, &self.process);
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// When it started, in clock ticks after the boot.
    pub fn start_time(&self) -> u64 {
        self.process.start
    }

    /// The file that holds the allocator's code (libc10_cuda.so, or the program it is linked into), as the target names it,
    /// without control characters.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// That file was removed or replaced since the process loaded it.
    pub fn library_deleted(&self) -> bool {
        self.found.deleted
    }

    /// How the allocator was found.
    pub fn route(&self) -> Route {
        self.found.route
    }

    /// Which allocator it is.
    pub fn backend(&self) -> &Backend {
        &self.found.backend
    }

    /// Which counters the release has; `None` for other allocators.
    pub fn shape(&self) -> Option<Shape> {
        self.native.as_ref().map(|n| n.devices.layout.shape)
    }

    /// Where things were found, for people: releases, offsets.
    pub fn describe_layout(&self) -> String {
        match &self.native {
            None => "no counters in memory".to_owned(),
            Some(native) => {
                let Devices { vector, layout, .. } = &native.devices;
                format!(
                    "{}: devices at +{:#x}, counters at +{:#x} ({} words), free blocks at +{:#x}",
                    layout.shape.releases(),
                    vector - self.found.object,
                    layout.start * 8,
                    layout.shape.words(),
                    layout.tree * 8
                )
            }
        }
    }

    /// The version of PyTorch that the library's package claims; a hint for people, never used to find anything.
    pub fn torch_version(&self) -> Reading<String> {
        survey::torch_version(&self.process, &self.library)
    }

    /// The allocator's settings in the environment that the process was started with (PYTORCH_CUDA_ALLOC_CONF or its newer
    /// names); `None` if there are none. What was changed at run time is not seen.
    pub fn configuration(&self) -> Reading<Option<String>> {
        survey::configuration(&self.process)
    }

    /// The reason of a read that failed or no longer fits.
    fn diagnose(&self, trouble: Trouble) -> Why {
        let pid = self.process.pid;
        let fault = match trouble {
            Trouble::Fault(fault) => fault,
            // A look at the process explains more, if it is no longer the same.
            Trouble::Moved | Trouble::Busy | Trouble::Contradiction => Fault::Unmapped,
        };
        refusal::of_fault(fault, &self.root, &self.process, || {
            let same = self.remote.word(self.found.object) == Ok(self.found.vptr);
            match trouble {
                _ if !same => refusal::replaced(pid),
                Trouble::Busy => refusal::busy(pid),
                Trouble::Contradiction => refusal::contradiction(pid),
                Trouble::Moved | Trouble::Fault(_) => refusal::moved(pid),
            }
        })
    }
}

/// Why a read of an allocator that was found gives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The memory could not be read.
    Fault(Fault),
    /// The object or its vector of devices is no longer what it was.
    Moved,
    /// No consistent counters since the attach: somebody holds the lock.
    Busy,
    /// The counters contradict themselves again and again.
    Contradiction,
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Trouble::Fault(fault)
    }
}

/// See [`Attached::find`].
fn attach(root: &ProcRoot, pid: u32) -> Result<Attached, Why> {
    let process = Process::open(root, pid)?;
    let remote = Remote::new(pid);
    let outcome = discover(&process, &remote);
    let (found, native) = match outcome {
        Ok(found) => found,
        // Dead, replaced or reused in the middle of it explains more than what was then read.
        Err(Failure::Why(why)) => return Err(process.check().err().unwrap_or(why)),
        Err(Failure::Fault(fault)) => {
            return Err(refusal::of_fault(fault, root, &process, || {
                refusal::unknown_layout(pid, "a pointer leads nowhere")
            }));
        }
    };
    process.check()?;
    let native = native.map(|mut native| {
        native.survey(&remote, &process);
        native
    });
    Ok(Attached {
        root: root.clone(),
        library: PathBuf::from(&found.library),
        process,
        remote,
        found,
        native,
    })
}

/// From a process to its allocator, and to the devices of a native one.
fn discover(process: &Process, remote: &Remote) -> Result<(Found, Option<Native>), Failure> {
    class::check_program(process).map_err(Failure::Why)?;
    let maps = maps::Maps::read(process.dir()).map_err(|_| Fault::Refused)?;
    if maps.regions().is_empty() {
        return Err(Failure::Why(refusal::kernel_thread(process.pid)));
    }
    // One byte of what is certainly mapped: a refusal shows here, before anything is concluded from missing files.
    if let Some(region) = maps.regions().iter().find(|r| r.readable && r.name.starts_with('/')) {
        let mut byte = [0];
        match remote.read(region.start, &mut byte) {
            Ok(()) | Err(Fault::Unmapped) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    let found = class::find(remote, process, &maps)?;
    let native = match found.backend {
        Backend::Native => {
            let devices = native::find(remote, process, found.object)?;
            Some(Native::new(devices, maps.cuda_runtime()))
        }
        _ => None,
    };
    Ok((found, native))
}

impl Native {
    fn new(devices: Devices, cuda: Option<u32>) -> Native {
        let readers = devices
            .elements
            .iter()
            .map(|at| Reader::new(*at, devices.layout))
            .collect();
        let surveys = vec![Survey::default(); devices.elements.len()];
        Native {
            devices,
            cuda,
            readers,
            surveys,
            gpus: Vec::new(),
            reads_since_survey: 0,
        }
    }

    fn read(&mut self, remote: &Remote, found: &Found) -> Result<Read, Trouble> {
        let (mut vptr, mut bounds) = ([0u64; 1], [0u64; 3]);
        let mut elements = vec![0u64; self.devices.elements.len()];
        // Everything in one call, first of all what tells that the rest is still where it was.
        let mut header = vec![
            (found.object, object::pod::bytes_of_slice_mut(&mut vptr)),
            (self.devices.vector, object::pod::bytes_of_slice_mut(&mut bounds)),
            (self.devices.bounds[0], object::pod::bytes_of_slice_mut(&mut elements)),
        ];
        let known = header.len();
        header.extend(self.readers.iter_mut().flat_map(Reader::pieces));
        let copied = match remote.read_pieces(&mut header) {
            Ok(()) => true,
            // One of many pieces: which one shows when they are read one by one.
            Err(Fault::Unmapped) => {
                remote.read_pieces(&mut header[..known])?;
                false
            }
            Err(fault) => return Err(fault.into()),
        };
        if vptr[0] != found.vptr || bounds != self.devices.bounds || elements != self.devices.elements {
            return Err(Trouble::Moved);
        }
        self.reads_since_survey = self.reads_since_survey.saturating_add(1);
        let mut devices = Vec::with_capacity(self.readers.len());
        for (ordinal, reader) in self.readers.iter_mut().enumerate() {
            let outcome = reader.read(remote, copied)?;
            if reader.bad_reads() > MAX_BAD_READS {
                return Err(Trouble::Contradiction);
            }
            let (stats, fresh) = match outcome {
                Outcome::Fresh(stats) => (stats, true),
                Outcome::Stale(stats) => (stats, false),
                Outcome::Nothing => return Err(Trouble::Busy),
            };
            let survey = &self.surveys[ordinal];
            let aged = self.reads_since_survey > SURVEY_LASTS;
            devices.push(DeviceRead {
                ordinal: ordinal as u32,
                uuid: survey.uuid.clone(),
                fresh,
                memory_limit: survey::recent(&survey.memory_limit, aged),
                largest_free: survey::recent(&survey.largest_free, aged),
                expandable: survey::recent(&survey.expandable, aged),
                private_pools: reader.private_pools(),
                stats,
            });
        }
        Ok(Read { devices })
    }

    fn survey(&mut self, remote: &Remote, process: &Process) {
        self.reads_since_survey = 0;
        let mut nodes = free::NODE_BUDGET;
        for (ordinal, survey) in self.surveys.iter_mut().enumerate() {
            let subject = Subject {
                remote,
                process,
                layout: &self.devices.layout,
                address: self.devices.elements[ordinal],
                ordinal,
                devices: self.devices.elements.len(),
                cuda: self.cuda,
                gpus: &self.gpus,
            };
            survey::look(&subject, survey, &mut nodes);
        }
    }
}
