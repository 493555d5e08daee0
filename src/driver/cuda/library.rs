//! Finding libcuda and a device in it. Nothing here runs before the first GPU allocation (AC-18).

use std::ffi::c_int;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cudarc::driver::sys::{self, CUdevice, CUuuid};

use super::error::{check, check_init};
use crate::driver::DriverError;

/// Which device, as the user or the monitor names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CudaDevice {
    /// CUDA's own count, after CUDA_VISIBLE_DEVICES.
    Ordinal(u32),
    /// "GPU-" and the UUID: the key that CUDA and NVML share (AC-40).
    Uuid(String),
}

/// The functions that the driver here calls. The bindings panic on one that is missing, so they are looked up first.
const FUNCTIONS: [&str; 29] = [
    "cuInit",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetUuid_v2",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemsetD8Async",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuLaunchHostFunc",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuCtxSynchronize",
];

/// Loads libcuda, starts the driver and finds `device`.
pub(super) fn open(device: &CudaDevice) -> Result<CUdevice, DriverError> {
    // The bindings panic where they cannot go on. What they need is looked up before; should one panic all the same, the
    // user gets a sentence and the thread lives.
    catch_unwind(AssertUnwindSafe(|| {
        load()?;
        find(device)
    }))
    .unwrap_or_else(|_| Err(unavailable("the CUDA library could not be used")))
}

/// `what`, with the step that always helps.
fn unavailable(what: &str) -> DriverError {
    DriverError::Unavailable(format!("{what}; pass --backend sim to go on without a GPU"))
}

fn load() -> Result<(), DriverError> {
    // SAFETY: opens and closes shared libraries by name; their initialisers are those of the CUDA driver.
    if !unsafe { sys::is_culib_present() } {
        return Err(unavailable(
            "no CUDA driver: libcuda.so.1 was not found (is the NVIDIA driver installed?)",
        ));
    }
    // SAFETY: `culib` opens the library that was found above and keeps it open for the life of the program.
    let library = unsafe { sys::culib() };
    for name in FUNCTIONS {
        // SAFETY: the symbol is only looked up here; its type is never used for a call.
        if unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
            return Err(unavailable(&format!(
                "this CUDA driver is too old: its library has no {name}"
            )));
        }
    }
    // SAFETY: the function was found above; flags must be 0.
    check_init(unsafe { sys::cuInit(0) })
}

fn find(wanted: &CudaDevice) -> Result<CUdevice, DriverError> {
    let mut count: c_int = 0;
    // SAFETY: `count` outlives the call, which writes one int.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    let seen = u32::try_from(count).unwrap_or_default();
    match wanted {
        CudaDevice::Ordinal(n) if *n < seen => get(*n),
        CudaDevice::Ordinal(n) => Err(unavailable(&format!(
            "CUDA sees {seen} device(s), so there is no device {n}; choose another with --gpu, or check \
             CUDA_VISIBLE_DEVICES"
        ))),
        CudaDevice::Uuid(uuid) => {
            for n in 0..seen {
                let device = get(n)?;
                if uuid_of(device)?.eq_ignore_ascii_case(uuid.trim()) {
                    return Ok(device);
                }
            }
            Err(unavailable(&format!(
                "CUDA does not see this device among its {seen}; CUDA_VISIBLE_DEVICES may hide it"
            )))
        }
    }
}

fn get(ordinal: u32) -> Result<CUdevice, DriverError> {
    let mut device: CUdevice = 0;
    // SAFETY: `device` outlives the call, which writes one int.
    check("cuDeviceGet", unsafe {
        sys::cuDeviceGet(&raw mut device, ordinal as c_int)
    })?;
    Ok(device)
}

/// "GPU-" and the UUID in groups of 8-4-4-4-12, as NVML writes it.
fn uuid_of(device: CUdevice) -> Result<String, DriverError> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` outlives the call, which writes its 16 bytes.
    check("cuDeviceGetUuid", unsafe {
        sys::cuDeviceGetUuid_v2(&raw mut uuid, device)
    })?;
    let mut text = String::from("GPU-");
    for (i, byte) in uuid.bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        _ = write!(text, "{:02x}", byte.to_ne_bytes()[0]);
    }
    Ok(text)
}
