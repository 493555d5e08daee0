//! Which allocator a process has: the exported variable that points at it, and the run-time type information of what it
//! points at (allocator-spec 7.1, 7.2).

use super::image::{Image, ImageError, OUR_MACHINE};
use super::maps::{Maps, Region};
use super::process::{Process, printable};
use super::refusal;
use super::remote::{Fault, Remote};
use crate::reading::Why;

/// `c10::cuda::CUDACachingAllocator::allocator`, exported by every release since 2.0.
pub const SYMBOL: &str = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
/// RTTI name of the native caching allocator.
pub const NATIVE: &str = "N3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE";
/// RTTI name of the back-end on the driver's own pools.
pub const ASYNC: &str = "N3c104cuda20CUDACachingAllocator15CudaMallocAsync24CudaMallocAsyncAllocatorE";
/// RTTI name of an allocator that a user plugged in.
pub const PLUGGABLE: &str = "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE";

/// How the allocator was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By the exported variable of the main program: PyTorch linked into it, or a copy of the variable (a program that was
    /// linked against PyTorch holds the only true one).
    Program,
    /// By the exported variable of libc10_cuda.so.
    Library,
    /// By the run-time type information of the native allocator's class: the variable is not exported.
    TypeInfo,
}

impl Route {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Route::Program => "exported symbol of the program",
            Route::Library => "exported symbol of libc10_cuda.so",
            Route::TypeInfo => "run-time type information (no exported symbol)",
        }
    }
}

/// Which allocator it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// PyTorch's native caching allocator: all counters can be read.
    Native,
    /// cudaMallocAsync: the counters live in the driver, and what it calls reserved is the driver's pool.
    CudaMallocAsync,
    /// An allocator that a user plugged in (CUDAPluggableAllocator).
    Pluggable,
    /// A class that is not known, by its mangled name.
    Other(String),
}

impl Backend {
    fn of(class: &[u8]) -> Backend {
        // A leading '*' marks a type with internal linkage.
        let class = class.strip_prefix(b"*").unwrap_or(class);
        if class == NATIVE.as_bytes() {
            Backend::Native
        } else if class == ASYNC.as_bytes() {
            Backend::CudaMallocAsync
        } else if class == PLUGGABLE.as_bytes() {
            Backend::Pluggable
        } else {
            Backend::Other(printable(class))
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        match self {
            Backend::Native => "PyTorch's native caching allocator".into(),
            Backend::CudaMallocAsync => "cudaMallocAsync (the driver's own pools)".into(),
            Backend::Pluggable => "a pluggable allocator".into(),
            Backend::Other(class) => format!("an allocator of unknown class ({class})"),
        }
    }
}

/// The allocator object of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Address of the object.
    pub object: u64,
    /// Its first word, the virtual table: as long as it is the same, the object is.
    pub vptr: u64,
    /// Which class.
    pub backend: Backend,
    /// How it was found.
    pub route: Route,
    /// File that holds the code, as the target names it.
    pub library: String,
    /// That file was removed or replaced since it was loaded.
    pub deleted: bool,
}

/// A failed look into the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A remote read failed.
    Fault(Fault),
    /// Anything that is already a sentence.
    Why(Why),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure::Fault(fault)
    }
}

/// Whether a file's name is that of the library (wheels may add a hash: `libc10_cuda-1a2b3c4d.so`).
fn is_library(name: &str) -> bool {
    name.starts_with("libc10_cuda") && name.contains(".so")
}

/// The class name of the object at `object`, from the type information before its virtual table, and the table's address.
fn class_of(remote: &Remote, maps: &Maps, object: u64) -> Result<(u64, Vec<u8>), Fault> {
    let readable = |address: u64| {
        if address.is_multiple_of(8) && maps.readable(address) {
            Ok(address)
        } else {
            Err(Fault::Unmapped)
        }
    };
    let vptr = readable(remote.word(readable(object)?)?)?;
    let info = readable(remote.word(vptr.wrapping_sub(8))?)?;
    let name = remote.word(info.wrapping_add(8))?;
    Ok((vptr, remote.text(name, 256)?))
}

/// Finds the allocator, as the dynamic linker resolves the variable: the main program first, then the library.
pub fn find(remote: &Remote, process: &Process, maps: &Maps) -> Result<Found, Failure> {
    let pid = process.pid;
    let why = |why| Err(Failure::Why(why));
    let libraries: Vec<&Region> = maps.starts_of(is_library).collect();
    let program = main_program(remote, process, maps);
    let mut null = false;
    if let Some((image, region)) = &program
        && let Some(symbol) = image.symbol(SYMBOL)
    {
        // A copy of the library's variable, or PyTorch linked in: the code is where the library is, if there is one.
        let file = libraries.first().unwrap_or(region);
        match at_symbol(remote, maps, symbol.address, Route::Program, file)? {
            Some(found) => return Ok(found),
            None => null = true,
        }
    }
    if libraries.is_empty() && !null {
        let loaded = |prefix: &str| maps.starts_of(|n| n.starts_with(prefix)).next().is_some();
        if let Some(found) = stripped_program(remote, maps, program.as_ref().map(|(_, region)| *region))? {
            return Ok(found);
        }
        return why(if loaded("libc10_hip.so") {
            refusal::rocm(pid)
        } else if loaded("libc10.so") {
            refusal::cpu_torch(pid)
        } else {
            refusal::no_torch(pid)
        });
    }
    let mut worst = None;
    for first in libraries {
        let image = match Image::at(remote, first.start) {
            Ok(image) => image,
            Err(ImageError::Fault(fault)) => return Err(fault.into()),
            Err(ImageError::Narrow) => return why(refusal::narrow(pid)),
            Err(ImageError::Foreign(machine)) => return why(refusal::foreign(pid, machine)),
            Err(ImageError::Broken) => {
                worst = Some(refusal::broken_image(pid, &first.name));
                continue;
            }
        };
        let found = match image.symbol(SYMBOL) {
            Some(symbol) => at_symbol(remote, maps, symbol.address, Route::Library, first)?,
            None => super::typeinfo::find(remote, maps, first)?,
        };
        match found {
            Some(found) => return Ok(found),
            None if image.symbol(SYMBOL).is_some() => null = true,
            None => {
                worst = Some(refusal::unknown_layout(pid, "it has neither the symbol nor the class"));
            }
        }
    }
    match worst {
        Some(worst) if !null => why(worst),
        _ => why(refusal::not_initialised(pid, maps.holds_gpu())),
    }
}

/// What the variable at `symbol` points at; `None` while it is null: its initialiser has not run.
fn at_symbol(remote: &Remote, maps: &Maps, symbol: u64, route: Route, file: &Region) -> Result<Option<Found>, Failure> {
    let object = remote.word(symbol)?;
    if object == 0 {
        return Ok(None);
    }
    let (vptr, class) = class_of(remote, maps, object)?;
    Ok(Some(Found {
        object,
        vptr,
        backend: Backend::of(&class),
        route,
        library: file.name.clone(),
        deleted: file.deleted,
    }))
}

/// The main program's image and file name. `None` if it cannot be read: then only libraries are looked at.
fn main_program<'a>(remote: &'a Remote, process: &Process, maps: &'a Maps) -> Option<(Image<'a>, &'a Region)> {
    const AT_PHDR: u64 = 3;
    const AT_PHNUM: u64 = 5;
    let table = process.auxiliary(AT_PHDR)?;
    let image = Image::main(remote, table, process.auxiliary(AT_PHNUM)?).ok()?;
    Some((image, maps.at(table)?))
}

/// PyTorch linked into a program that exports nothing: looked for by type information, only where the program uses CUDA.
fn stripped_program(remote: &Remote, maps: &Maps, program: Option<&Region>) -> Result<Option<Found>, Failure> {
    let uses_cuda = maps
        .starts_of(|n| n.starts_with("libcuda.so") || n.starts_with("libcudart.so"))
        .next()
        .is_some();
    let Some(first) = program
        .filter(|_| uses_cuda)
        .and_then(|program| maps.starts_of(|_| true).find(|r| r.name == program.name))
    else {
        return Ok(None);
    };
    Ok(super::typeinfo::find(remote, maps, first)?)
}

/// The ELF class and machine of the program itself: a 32-bit or foreign program has no PyTorch that could be read.
pub fn check_program(process: &Process) -> Result<(), Why> {
    let mut header = [0u8; 20];
    // Unreadable is no verdict here: the remote read that follows gives the exact refusal.
    let Ok(()) = std::fs::File::open(process.dir().join("exe"))
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut header))
    else {
        return Ok(());
    };
    if !header.starts_with(&object::elf::ELFMAG) {
        return Ok(());
    }
    if header[4] == 1 {
        return Err(refusal::narrow(process.pid));
    }
    let machine = if header[5] == 2 {
        u16::from_be_bytes([header[18], header[19]])
    } else {
        u16::from_le_bytes([header[18], header[19]])
    };
    if header[5] != 1 || machine != OUR_MACHINE {
        return Err(refusal::foreign(process.pid, machine));
    }
    Ok(())
}
