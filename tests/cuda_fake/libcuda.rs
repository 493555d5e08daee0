//! A stand-in for libcuda.so.1, compiled by the tests with rustc: the functions that the program calls, answering as
//! FAKE_CUDA says. It owns no memory; it keeps books, so that a test can see what was asked.
//!
//! FAKE_CUDA: `ok`, `init=N` (cuInit answers N), `alloc=N` (cuMemAlloc answers N), `create=N` (cuMemCreate answers N from
//! the third granule on), `context=N`. The books are printed by the exported `fake_books`.
#![allow(non_snake_case, clippy::missing_safety_doc)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Mutex;

const TOTAL: usize = 8 << 30;

struct Books {
    used: usize,
    next: u64,
    blocks: BTreeMap<u64, usize>,
    handles: BTreeMap<u64, usize>,
    mapped: BTreeMap<u64, (u64, usize)>,
    objects: BTreeSet<u64>,
    waiting: Vec<std::thread::JoinHandle<()>>,
    busy: BTreeMap<u64, u64>,
    events: BTreeMap<u64, u64>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    used: 0,
    next: 0,
    blocks: BTreeMap::new(),
    handles: BTreeMap::new(),
    mapped: BTreeMap::new(),
    objects: BTreeSet::new(),
    waiting: Vec::new(),
    busy: BTreeMap::new(),
    events: BTreeMap::new(),
});

impl Books {
    fn fresh(&mut self, size: usize) -> u64 {
        let at = 0x7f11_0000_0000 + self.next;
        self.next += (size as u64).next_multiple_of(2 << 20);
        at
    }
}

fn answer(what: &str) -> Option<u32> {
    let mode = std::env::var("FAKE_CUDA").unwrap_or_default();
    mode.strip_prefix(what)?.strip_prefix('=')?.parse().ok()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> u32 {
    answer("init").unwrap_or(0)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    unsafe { *count = 2 };
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, n: c_int) -> u32 {
    unsafe { *device = n };
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut u8, device: c_int) -> u32 {
    for i in 0..16 {
        unsafe { *uuid.add(i) = 0xf0 + device as u8 };
    }
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> u32 {
    unsafe { *bytes = TOTAL + device as usize };
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) -> u32 {
    BOOKS.lock().unwrap().objects.insert(0xc0 + device as u64);
    unsafe { *context = 0xc0 + device as u64 };
    answer("context").unwrap_or(0)
}
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32 {
    u32::from(!BOOKS.lock().unwrap().objects.remove(&(0xc0 + device as u64)))
}
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(_context: u64) -> u32 {
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> u32 {
    let waiting = std::mem::take(&mut BOOKS.lock().unwrap().waiting);
    waiting.into_iter().for_each(|t| t.join().unwrap());
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, size: usize) -> u32 {
    if let Some(code) = answer("alloc") {
        return code;
    }
    let mut books = BOOKS.lock().unwrap();
    if size > TOTAL - books.used {
        return 2;
    }
    let at = books.fresh(size);
    books.used += size;
    books.blocks.insert(at, size);
    unsafe { *address = at };
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    let mut books = BOOKS.lock().unwrap();
    match books.blocks.remove(&address) {
        Some(size) => {
            books.used -= size;
            0
        }
        None => 1,
    }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    unsafe {
        *free = TOTAL - BOOKS.lock().unwrap().used;
        *total = TOTAL;
    }
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(at: *mut u64, size: usize, _a: usize, _h: u64, _f: u64) -> u32 {
    unsafe { *at = BOOKS.lock().unwrap().fresh(size) };
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(_address: u64, _size: usize) -> u32 {
    0
}
/// An old driver (`--cfg old`) lacks this one. CUmemAllocationProp: type, handle types, location (type, id), a pointer, flags.
#[cfg(not(old))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(handle: *mut u64, size: usize, wanted: *const u32, _flags: u64) -> u32 {
    let (kind, location) = unsafe { (*wanted, *wanted.add(2)) };
    if (kind, location) != (1, 1) {
        return 1;
    }
    let mut books = BOOKS.lock().unwrap();
    if let Some(code) = answer("create")
        && books.handles.len() >= 2
    {
        return code;
    }
    books.next += 1;
    let id = books.next;
    books.used += size;
    books.handles.insert(id, size);
    unsafe { *handle = id };
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> u32 {
    let mut books = BOOKS.lock().unwrap();
    match books.handles.remove(&handle) {
        Some(size) => {
            books.used -= size;
            0
        }
        None => 1,
    }
}
#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(at: u64, size: usize, _offset: usize, handle: u64, _flags: u64) -> u32 {
    u32::from(BOOKS.lock().unwrap().mapped.insert(at, (handle, size)).is_some())
}
#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(at: u64, size: usize) -> u32 {
    u32::from(BOOKS.lock().unwrap().mapped.remove(&at).is_none_or(|(_, s)| s != size))
}
/// CUmemAccessDesc: location (type, id), flags: 3 = read and write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemSetAccess(at: u64, _size: usize, access: *const u32, count: usize) -> u32 {
    let flags = unsafe { *access.add(2) };
    u32::from(count != 1 || flags != 3 || !BOOKS.lock().unwrap().mapped.contains_key(&at))
}
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(_at: u64, _value: u8, _size: usize, _stream: u64) -> u32 {
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut u64, flags: c_uint) -> u32 {
    let mut books = BOOKS.lock().unwrap();
    let id = 0x5000 + books.fresh(1);
    books.objects.insert(id);
    unsafe { *stream = id };
    u32::from(flags != 1)
}
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: u64) -> u32 {
    u32::from(!BOOKS.lock().unwrap().objects.remove(&stream))
}
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(_stream: u64) -> u32 {
    cuCtxSynchronize()
}
struct Work(*mut c_void);
unsafe impl Send for Work {}
#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchHostFunc(stream: u64, f: extern "C" fn(*mut c_void), work: *mut c_void) -> u32 {
    let work = Work(work);
    *BOOKS.lock().unwrap().busy.entry(stream).or_default() += 1;
    let thread = std::thread::spawn(move || {
        let work = work;
        f(work.0);
        *BOOKS.lock().unwrap().busy.entry(stream).or_default() -= 1;
    });
    BOOKS.lock().unwrap().waiting.push(thread);
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut u64, flags: c_uint) -> u32 {
    let mut books = BOOKS.lock().unwrap();
    let id = 0x9000 + books.fresh(1);
    books.objects.insert(id);
    unsafe { *event = id };
    u32::from(flags != 2)
}
#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: u64, stream: u64) -> u32 {
    BOOKS.lock().unwrap().events.insert(event, stream);
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: u64) -> u32 {
    let books = BOOKS.lock().unwrap();
    let busy = books.events.get(&event).and_then(|s| books.busy.get(s)).is_some_and(|n| *n > 0);
    if busy { 600 } else { 0 }
}
#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(_event: u64) -> u32 {
    cuCtxSynchronize()
}
#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: u64) -> u32 {
    u32::from(!BOOKS.lock().unwrap().objects.remove(&event))
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(_code: u32, name: *mut *const c_char) -> u32 {
    unsafe { *name = std::ptr::null() };
    1
}
/// Bytes in use, and objects (contexts, streams, events, handles, mappings) that live.
#[unsafe(no_mangle)]
pub extern "C" fn fake_books(used: &mut usize, objects: &mut usize) {
    let books = BOOKS.lock().unwrap();
    *used = books.used;
    *objects = books.objects.len() + books.handles.len() + books.mapped.len();
}
