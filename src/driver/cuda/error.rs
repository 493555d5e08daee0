//! The driver's error numbers. A number that the bindings do not know must never be printed as their enum (it would be
//! undefined behaviour), so everything here goes by number.

use cudarc::driver::sys::CUresult;

use crate::driver::DriverError;

/// CUDA_ERROR_INVALID_VALUE.
pub(super) const INVALID_VALUE: u32 = 1;
/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: u32 = 2;
/// CUDA_ERROR_STUB_LIBRARY: the library to link with, not the driver.
const STUB_LIBRARY: u32 = 34;
/// CUDA_ERROR_NO_DEVICE.
const NO_DEVICE: u32 = 100;
/// CUDA_ERROR_INVALID_HANDLE.
pub(super) const INVALID_HANDLE: u32 = 400;
/// CUDA_ERROR_NOT_READY: an event that has not completed.
pub(super) const NOT_READY: u32 = 600;

/// The names of the numbers that people meet (cuda.h, CUDA 13).
const NAMES: &[(u32, &str)] = &[
    (INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"),
    (OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"),
    (3, "CUDA_ERROR_NOT_INITIALIZED"),
    (4, "CUDA_ERROR_DEINITIALIZED"),
    (STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY"),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    (NO_DEVICE, "CUDA_ERROR_NO_DEVICE"),
    (101, "CUDA_ERROR_INVALID_DEVICE"),
    (201, "CUDA_ERROR_INVALID_CONTEXT"),
    (205, "CUDA_ERROR_MAP_FAILED"),
    (206, "CUDA_ERROR_UNMAP_FAILED"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (304, "CUDA_ERROR_OPERATING_SYSTEM"),
    (INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"),
    (NOT_READY, "CUDA_ERROR_NOT_READY"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (719, "CUDA_ERROR_LAUNCH_FAILED"),
    (800, "CUDA_ERROR_NOT_PERMITTED"),
    (801, "CUDA_ERROR_NOT_SUPPORTED"),
    (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
    (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
    (999, "CUDA_ERROR_UNKNOWN"),
];

/// The number of what a driver function returned. A newer driver may return numbers that the bindings' enum lacks; the
/// compiler may take those for impossible, so the number is taken out of its sight before anything is decided by it.
pub(super) fn code(result: CUresult) -> u32 {
    const { assert!(size_of::<CUresult>() == size_of::<u32>()) };
    // SAFETY: both are 32 bits wide, and every bit pattern is a u32.
    let number: u32 = unsafe { std::mem::transmute(result) };
    std::hint::black_box(number)
}

/// An error of `call` with this number.
pub(super) fn failed(call: &'static str, code: u32) -> DriverError {
    let name = NAMES.iter().find(|(n, _)| *n == code).map(|(_, name)| *name);
    let text = name.unwrap_or("an error that this program has no name for").to_owned();
    DriverError::Failed { call, code, text }
}

/// What `call` answered: done, out of memory, or failed.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), DriverError> {
    match code(result) {
        0 => Ok(()),
        OUT_OF_MEMORY => Err(DriverError::OutOfMemory),
        code => Err(failed(call, code)),
    }
}

/// What cuInit answered: its usual failures name the next step.
pub(super) fn check_init(result: CUresult) -> Result<(), DriverError> {
    let unavailable = |text: &str| Err(DriverError::Unavailable(text.to_owned()));
    match code(result) {
        STUB_LIBRARY => unavailable(
            "the libcuda that was found is CUDA's stub for linking, not a driver: take the \"stubs\" folder off \
             LD_LIBRARY_PATH, or pass --backend sim",
        ),
        NO_DEVICE => unavailable(
            "the CUDA driver sees no device: check CUDA_VISIBLE_DEVICES and nvidia-smi, or pass --backend sim",
        ),
        803 => unavailable(
            "the CUDA library does not fit the kernel's driver module: reboot after the driver update, or pass \
             --backend sim",
        ),
        _ => check("cuInit", result),
    }
}
