//! A made-up libnvidia-ml.so.1, compiled by the tests. It answers what the file `<its own path>.control` says, one
//! `key=value` a line, read at every call, so that a test can change the card while it is watched. Without a control file
//! it is one H200 with the figures of issue 2.
//!
//! Keys: init, count, driver; code.FUNCTION and code.FUNCTION.INDEX (return codes); uuid.I, name.I, pci.I;
//! memory.I=total,reserved,used,free; compute.I, graphics.I, mps.I = pid:bytes,...; stride (of version 3);
//! stall_ms (memory calls); util, temperature, power; fuzz=SEED (random numbers, codes and counts).
//! `--cfg lacks_v3`, `lacks_v2`, `lacks_v1` leave out the process lists and memory calls of that version.
#![allow(non_snake_case, clippy::all)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    name: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

fn control(key: &str) -> Option<String> {
    let mut info = DlInfo {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        name: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    let path = unsafe {
        if dladdr(nvmlInit_v2 as *const c_void, &mut info) == 0 {
            return None;
        }
        CStr::from_ptr(info.file).to_str().ok()?.to_owned()
    };
    let text = std::fs::read(format!("{path}.control")).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines()
        .filter_map(|line| line.split_once('='))
        .find(|(k, _)| *k == key)
        .map(|(_, v)| v.to_owned())
}

fn number(key: &str) -> Option<u64> {
    control(key)?.parse().ok()
}

static STATE: AtomicU64 = AtomicU64::new(1);

/// A random number that likes the edges; `None` unless fuzzing.
fn fuzz() -> Option<u64> {
    let seed = number("fuzz")?;
    let n = STATE
        .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed)
        .wrapping_add(seed);
    let mut z = n;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    Some(match z % 8 {
        0 => u64::MAX,
        1 => 0x7FFF_FFFF_FFFF_FFF0 + (z >> 8) % 4,
        2 => 0,
        3 => (z >> 8) % 100,
        4 => 150_754_820_096,
        5 => (z >> 8) % 150_754_820_096,
        _ => z >> ((z >> 3) % 60),
    })
}

fn code(function: &str, index: Option<u64>) -> Option<c_uint> {
    if let Some(n) = fuzz() {
        return (n % 16 == 3).then_some((n >> 8) as c_uint % 31 + 1);
    }
    let of_device = index.and_then(|i| number(&format!("code.{function}.{i}")));
    of_device
        .or_else(|| number(&format!("code.{function}")))
        .map(|n| n as c_uint)
}

fn index_of(device: *mut c_void) -> u64 {
    device as u64 - 1
}

unsafe fn put(text: &str, to: *mut c_char, room: c_uint) -> c_uint {
    let bytes = text.as_bytes();
    let n = bytes.len().min(room as usize - 1);
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, n);
        *to.add(n) = 0;
    }
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_uint {
    number("init").unwrap_or(0) as c_uint
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_uint {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, room: c_uint) -> c_uint {
    if let Some(code) = code("nvmlSystemGetDriverVersion", None) {
        return code;
    }
    unsafe { put(&control("driver").unwrap_or("580.159.04".into()), to, room) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_uint {
    if let Some(code) = code("nvmlDeviceGetCount_v2", None) {
        return code;
    }
    let n = fuzz().map_or_else(|| number("count").unwrap_or(1), |n| n % 5);
    unsafe { *count = n as c_uint };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) -> c_uint {
    if let Some(code) = code("nvmlDeviceGetHandleByIndex_v2", Some(index.into())) {
        return code;
    }
    unsafe { *device = (index as usize + 1) as *mut c_void };
    0
}

macro_rules! text_call {
    ($function:ident, $key:literal, $default:literal) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(device: *mut c_void, to: *mut c_char, room: c_uint) -> c_uint {
            let index = index_of(device);
            if let Some(code) = code(stringify!($function), Some(index)) {
                return code;
            }
            let text = control(&format!("{}.{index}", $key)).unwrap_or(format!("{}{index}", $default));
            unsafe { put(&text, to, room) }
        }
    };
}
text_call!(nvmlDeviceGetUUID, "uuid", "GPU-0000000");
text_call!(nvmlDeviceGetName, "name", "NVIDIA H200 ");

#[repr(C)]
pub struct Pci {
    legacy: [c_char; 16],
    numbers: [c_uint; 5],
    bus_id: [c_char; 32],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, pci: *mut Pci) -> c_uint {
    let index = index_of(device);
    if let Some(code) = code("nvmlDeviceGetPciInfo_v3", Some(index)) {
        return code;
    }
    let text = control(&format!("pci.{index}")).unwrap_or(format!("00000000:0{index}:00.0"));
    unsafe { put(&text, (*pci).bus_id.as_mut_ptr(), 32) }
}

/// total, reserved, used, free
fn memory(device: *mut c_void) -> [u64; 4] {
    if let Some(ms) = number("stall_ms") {
        std::thread::sleep(std::time::Duration::from_millis(ms));
    }
    if fuzz().is_some() {
        return [(); 4].map(|()| fuzz().unwrap_or(0));
    }
    let text = control(&format!("memory.{}", index_of(device)))
        .unwrap_or("150754820096,644939776,554500096,149555380224".into());
    let mut figures = text.split(',').map(|n| n.parse().unwrap_or(0));
    [(); 4].map(|()| figures.next().unwrap_or(0))
}

#[repr(C)]
pub struct MemoryV1 {
    total: u64,
    free: u64,
    used: u64,
}

#[cfg(not(lacks_v1))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: *mut c_void, to: *mut MemoryV1) -> c_uint {
    if let Some(code) = code("nvmlDeviceGetMemoryInfo", Some(index_of(device))) {
        return code;
    }
    let [total, reserved, used, free] = memory(device);
    unsafe {
        *to = MemoryV1 {
            total,
            free,
            used: used.wrapping_add(reserved),
        }
    };
    0
}

#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[cfg(not(lacks_v2))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, to: *mut MemoryV2) -> c_uint {
    if let Some(code) = code("nvmlDeviceGetMemoryInfo_v2", Some(index_of(device))) {
        return code;
    }
    if unsafe { (*to).version } != (size_of::<MemoryV2>() as u32 | 2 << 24) {
        return 25;
    }
    let [total, reserved, used, free] = memory(device);
    unsafe {
        (*to).total = total;
        (*to).reserved = reserved;
        (*to).used = used;
        (*to).free = free;
    }
    0
}

fn processes(device: *mut c_void, key: &str) -> Vec<(u32, u64)> {
    if let Some(n) = fuzz() {
        return (0..n % 9)
            .map(|_| (fuzz().unwrap_or(0) as u32, fuzz().unwrap_or(0)))
            .collect();
    }
    control(&format!("{key}.{}", index_of(device)))
        .unwrap_or_default()
        .split(',')
        .filter_map(|p| p.split_once(':'))
        .map(|(pid, bytes)| (pid.parse().unwrap_or(0), bytes.parse().unwrap_or(u64::MAX)))
        .collect()
}

/// Writes entries of `stride` bytes as the driver does: each field, and no padding.
unsafe fn list(function: &str, device: *mut c_void, key: &str, stride: usize, count: *mut c_uint, to: *mut u8) -> c_uint {
    if let Some(code) = code(function, Some(index_of(device))) {
        return code;
    }
    let all = processes(device, key);
    let room = unsafe { *count } as usize;
    unsafe { *count = all.len() as c_uint };
    if room < all.len() {
        return 7;
    }
    for (n, (pid, bytes)) in all.into_iter().enumerate() {
        unsafe {
            let entry = to.add(n * stride);
            entry.cast::<u32>().write_unaligned(pid);
            entry.add(8).cast::<u64>().write_unaligned(bytes);
            if stride >= 24 {
                entry.add(16).cast::<u64>().write_unaligned(u64::MAX);
            }
            if stride >= 32 {
                entry.add(24).cast::<u64>().write_unaligned(0);
            }
        }
    }
    0
}

macro_rules! list_call {
    ($lacks:ident, $function:ident, $key:literal, $stride:expr) => {
        #[cfg(not($lacks))]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(device: *mut c_void, count: *mut c_uint, to: *mut u8) -> c_uint {
            unsafe { list(stringify!($function), device, $key, $stride, count, to) }
        }
    };
}

fn newest_stride() -> usize {
    number("stride").unwrap_or(24) as usize
}

list_call!(lacks_v3, nvmlDeviceGetComputeRunningProcesses_v3, "compute", newest_stride());
list_call!(lacks_v3, nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics", newest_stride());
list_call!(lacks_v3, nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps", newest_stride());
list_call!(lacks_v2, nvmlDeviceGetComputeRunningProcesses_v2, "compute", 24);
list_call!(lacks_v2, nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics", 24);
list_call!(lacks_v2, nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps", 24);
list_call!(lacks_v1, nvmlDeviceGetComputeRunningProcesses, "compute", 16);
list_call!(lacks_v1, nvmlDeviceGetGraphicsRunningProcesses, "graphics", 16);
list_call!(lacks_v1, nvmlDeviceGetMPSComputeRunningProcesses, "mps", 16);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: *mut c_void, to: *mut [c_uint; 2]) -> c_uint {
    if let Some(code) = code("nvmlDeviceGetUtilizationRates", Some(index_of(device))) {
        return code;
    }
    let n = fuzz().unwrap_or_else(|| number("util").unwrap_or(37)) as c_uint;
    unsafe { *to = [n, n] };
    0
}

macro_rules! figure_call {
    ($function:ident, $key:literal, $default:literal $(, $sensor:ident: $kind:ty)?) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(device: *mut c_void, $($sensor: $kind,)? to: *mut c_uint) -> c_uint {
            if let Some(code) = code(stringify!($function), Some(index_of(device))) {
                return code;
            }
            unsafe { *to = fuzz().unwrap_or_else(|| number($key).unwrap_or($default)) as c_uint };
            0
        }
    };
}
figure_call!(nvmlDeviceGetTemperature, "temperature", 41, _sensor: c_uint);
figure_call!(nvmlDeviceGetPowerUsage, "power", 120_500);
