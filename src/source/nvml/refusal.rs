//! The sentence for each way in which the driver refuses, with its next step (AC-8, AC-13, design rule 11).

use std::path::Path;

use nvml_wrapper::error::NvmlError;

use crate::reading::{Why, WhyKind};
use crate::source::printable::printable;

/// Longest foreign part of a sentence, in characters.
const DETAIL_LIMIT: usize = 160;

/// No library was found at all.
pub(super) fn no_library(explicit: Option<&Path>) -> Why {
    match explicit {
        Some(path) => Why::new(
            WhyKind::Absent,
            format!("{} is not there: check the path given to --nvml", shown(path)),
        ),
        None => Why::new(
            WhyKind::Absent,
            "no NVIDIA driver library (libnvidia-ml.so.1) was found: install the driver or pass --nvml PATH",
        ),
    }
}

/// The driver works and lists nothing.
pub(super) fn no_device() -> Why {
    Why::new(
        WhyKind::Absent,
        "the NVIDIA driver lists no GPU: check `nvidia-smi -L` (in a container: was it started with --gpus?)",
    )
}

/// The library at `path` could not be loaded or initialised.
pub(super) fn of_open(error: &NvmlError, path: &Path, explicit: bool) -> Why {
    let hint = if explicit {
        "check the path given to --nvml"
    } else {
        "pass --nvml PATH"
    };
    match error {
        NvmlError::LibloadingError(e) => Why::new(
            WhyKind::Absent,
            format!(
                "{} cannot be loaded ({}): {hint}",
                shown(path),
                printable(e.to_string().as_bytes(), DETAIL_LIMIT)
            ),
        ),
        NvmlError::FailedToLoadSymbol(_) => Why::new(
            WhyKind::Absent,
            format!(
                "{} is not NVIDIA's management library (it has no nvmlInit_v2): {hint}",
                shown(path)
            ),
        ),
        NvmlError::LibRmVersionMismatch => Why::new(
            WhyKind::Refused,
            "the NVIDIA library and the loaded kernel module are of different versions: reboot, or reload the nvidia module",
        ),
        NvmlError::NoPermission => Why::new(
            WhyKind::Refused,
            "the NVIDIA driver refuses access: check the rights of /dev/nvidiactl (ls -l /dev/nvidia*)",
        ),
        NvmlError::DriverNotLoaded => Why::new(
            WhyKind::Absent,
            "the NVIDIA library is here but its kernel module is not loaded: run `modprobe nvidia`",
        ),
        other => Why::new(
            kind_of(other),
            format!(
                "the NVIDIA library could not start ({}): run nvidia-smi to see why",
                words(other)
            ),
        ),
    }
}

/// One call failed.
pub(super) fn of_call(call: &'static str, index: Option<u32>, error: &NvmlError) -> Why {
    let device = index.map_or_else(|| "the NVIDIA driver".to_owned(), |n| format!("GPU {n}"));
    let text = match error {
        NvmlError::GpuLost => {
            format!("{device} is lost (fell off the bus): see `dmesg | grep Xid`, then reset it or reboot")
        }
        NvmlError::ResetRequired => format!("{device} needs a reset: nvidia-smi --gpu-reset, or reboot"),
        NvmlError::NoPermission => format!(
            "{device} refuses access ({call}): check the rights of /dev/nvidia{} or run as its user",
            index.map_or_else(|| "ctl".to_owned(), |n| n.to_string())
        ),
        NvmlError::NotSupported => format!("{device} does not support {call}"),
        other => format!("{device}: {call} failed ({})", words(other)),
    };
    Why::new(kind_of(error), text)
}

/// The kind of absence behind an error.
fn kind_of(error: &NvmlError) -> WhyKind {
    match error {
        NvmlError::GpuLost | NvmlError::ResetRequired => WhyKind::Gone,
        NvmlError::NoPermission | NvmlError::OperatingSystem | NvmlError::InUse | NvmlError::LibRmVersionMismatch => {
            WhyKind::Refused
        }
        NvmlError::NotSupported
        | NvmlError::NotFound
        | NvmlError::NoData
        | NvmlError::FunctionNotFound
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::LibraryNotFound
        | NvmlError::DriverNotLoaded => WhyKind::Absent,
        NvmlError::Timeout => WhyKind::Late,
        _ => WhyKind::Unknown,
    }
}

/// What the library says of an error, cut and free of control characters.
fn words(error: &NvmlError) -> String {
    match error {
        NvmlError::FailedToLoadSymbol(_) => "this driver has no such function".to_owned(),
        NvmlError::UnexpectedVariant(code) => format!("error {code}"),
        other => printable(other.to_string().as_bytes(), DETAIL_LIMIT),
    }
}

fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes(), DETAIL_LIMIT)
}
