//! The calls that nvml-wrapper does not have: memory in version 1, and the process lists in versions 3, 2 and 1 with
//! whatever stride the driver really uses. This is the only place outside `driver/cuda` and the remote reader with
//! `unsafe`: the library is C and its lists are written through pointers.
//!
//! The entry of a process list is 16 bytes in version 1 (pid, bytes) and 24 in versions 2 and 3 (and two instance ids);
//! drivers 535.43 to 535.86 wrote 32 in version 3. The version number does not tell, so the stride is read off the
//! answer: the buffer is filled with a pattern first, and how far it was overwritten shows the size of an entry (AC-6).

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlMemory_t, nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    nvmlReturn_enum_NVML_ERROR_DEPRECATED, nvmlReturn_t,
};

use super::check::RawMemory;
use crate::source::{MemoryInfoVersion, ProcessKind};

/// Words of 8 bytes in the largest known entry.
const ENTRY_WORDS: usize = 4;
/// What the buffer is filled with before a call.
const PATTERN: u64 = 0xA5A5_A5A5_A5A5_A5A5;
/// Most processes of one list that are read.
const LIST_LIMIT: usize = 65_536;
/// How often a list that grew meanwhile is asked for again.
const TRIES: usize = 5;
/// Sizes of an entry in bytes that drivers have used.
const STRIDES: [usize; 3] = [16, 24, 32];

/// One entry of a process list as the driver wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawProcess {
    pub(super) pid: u32,
    /// Bytes, all ones where the driver does not say.
    pub(super) used: u64,
}

/// Asks for the process lists; remembers which version answered and keeps the buffer.
#[derive(Debug, Default)]
pub(super) struct ProcessLists {
    buffer: Vec<u64>,
    version: [usize; 3],
}

/// One version of one call: (device, number of entries in and out, entries).
type ListCall<'a> = Box<dyn Fn(nvmlDevice_t, &mut u32, &mut [u64]) -> nvmlReturn_t + 'a>;

/// The function does not exist in this driver, under this version.
pub(super) fn is_missing_function(e: &NvmlError) -> bool {
    matches!(e, NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound)
        || matches!(e, NvmlError::UnexpectedVariant(code)
            if [nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvmlReturn_enum_NVML_ERROR_DEPRECATED].contains(code))
}

/// The driver or the device has no such kind of process.
pub(super) fn is_missing_kind(e: &NvmlError) -> bool {
    is_missing_function(e) || matches!(e, NvmlError::NotSupported | NvmlError::NotFound)
}

/// The name of a kind's call, for reasons.
pub(super) fn call_of(kind: ProcessKind) -> &'static str {
    match kind {
        ProcessKind::Compute => "nvmlDeviceGetComputeRunningProcesses",
        ProcessKind::Graphics => "nvmlDeviceGetGraphicsRunningProcesses",
        ProcessKind::Mps => "nvmlDeviceGetMPSComputeRunningProcesses",
    }
}

/// nvmlDeviceGetMemoryInfo: total = used + free, with the driver's own part inside `used`.
pub(super) fn memory_v1(library: &NvmlLib, device: &Device<'_>) -> Result<RawMemory, NvmlError> {
    let call = nvml_sym(library.nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: the handle is of this library, which outlives the call; `memory` is the struct that version 1 fills.
    nvml_try(unsafe { call(device.handle(), &raw mut memory) })?;
    Ok(RawMemory {
        total: memory.total,
        reserved: None,
        used: memory.used,
        free: memory.free,
        version: MemoryInfoVersion::V1,
    })
}

impl ProcessLists {
    /// The processes of one kind, from the newest version that the driver has.
    pub(super) fn read(
        &mut self,
        library: &NvmlLib,
        device: &Device<'_>,
        kind: ProcessKind,
    ) -> Result<Vec<RawProcess>, NvmlError> {
        let versions = versions_of(library, kind);
        // SAFETY: the handle is used only in calls to the library that gave it, while `device` borrows that library.
        let handle = unsafe { device.handle() };
        let mut refused = NvmlError::FunctionNotFound;
        for (n, call) in versions.iter().enumerate().skip(self.version[kind as usize]) {
            let Some(call) = call else { continue };
            match self.ask(call, handle) {
                Ok(list) => {
                    self.version[kind as usize] = n;
                    return Ok(list);
                }
                Err(e) if is_missing_function(&e) => refused = e,
                Err(e) => return Err(e),
            }
        }
        Err(refused)
    }

    /// Asks one version, with a larger buffer while the driver says that it does not suffice.
    fn ask(&mut self, call: &ListCall<'_>, handle: nvmlDevice_t) -> Result<Vec<RawProcess>, NvmlError> {
        let mut room = (self.buffer.len() / ENTRY_WORDS).max(64);
        for _ in 0..TRIES {
            self.buffer.clear();
            self.buffer.resize(room * ENTRY_WORDS, PATTERN);
            let mut count = room as u32;
            match nvml_try(call(handle, &mut count, &mut self.buffer)) {
                Ok(()) if count as usize <= room => return Ok(entries(&self.buffer, count as usize)),
                // More entries than there was room for: nothing in the buffer can be trusted.
                Ok(()) => return Err(NvmlError::InsufficientSize(Some(count as usize))),
                Err(NvmlError::InsufficientSize(_)) if room < LIST_LIMIT => {
                    // `count` says how many there are now; processes may start before the next call.
                    room = (count as usize).saturating_add(16).clamp(room * 2, LIST_LIMIT);
                }
                Err(e) => return Err(e),
            }
        }
        Err(NvmlError::InsufficientSize(None))
    }
}

/// The calls of a kind from the newest version to the oldest; `None` where the library lacks it.
fn versions_of(library: &NvmlLib, kind: ProcessKind) -> [Option<ListCall<'_>>; 3] {
    /// A call whose entries have the type that its version declares.
    macro_rules! call {
        ($name:ident) => {
            library.$name.as_ref().ok().map(|call| -> ListCall<'_> {
                Box::new(move |device, count, buffer| {
                    // Never more entries than the buffer has room for, at the largest known entry.
                    *count = (*count).min((buffer.len() / ENTRY_WORDS) as u32);
                    // SAFETY: the library outlives the borrow that this closure holds; `buffer` is aligned to 8 bytes and
                    // has room for `count` entries of the largest known size.
                    unsafe { call(device, count, buffer.as_mut_ptr().cast()) }
                })
            })
        };
    }
    match kind {
        ProcessKind::Compute => [
            call!(nvmlDeviceGetComputeRunningProcesses_v3),
            call!(nvmlDeviceGetComputeRunningProcesses_v2),
            call!(nvmlDeviceGetComputeRunningProcesses),
        ],
        ProcessKind::Graphics => [
            call!(nvmlDeviceGetGraphicsRunningProcesses_v3),
            call!(nvmlDeviceGetGraphicsRunningProcesses_v2),
            call!(nvmlDeviceGetGraphicsRunningProcesses),
        ],
        ProcessKind::Mps => [
            call!(nvmlDeviceGetMPSComputeRunningProcesses_v3),
            call!(nvmlDeviceGetMPSComputeRunningProcesses_v2),
            call!(nvmlDeviceGetMPSComputeRunningProcesses),
        ],
    }
}

/// The first `count` entries of a buffer that was filled with the pattern before the driver wrote to it.
fn entries(buffer: &[u64], count: usize) -> Vec<RawProcess> {
    if count == 0 {
        return Vec::new();
    }
    let room = buffer.len().min(count.saturating_mul(ENTRY_WORDS));
    let bytes: Vec<u8> = buffer[..room].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let written = bytes.iter().rposition(|b| *b != 0xA5).map_or(0, |n| n + 1);
    // The last entry is written up to its last field, so the extent lies in the last 4 bytes of `count` entries.
    let stride = STRIDES
        .into_iter()
        .find(|stride| written <= stride * count)
        .unwrap_or(STRIDES[2]);
    bytes
        .chunks_exact(stride)
        .take(count)
        .map(|entry| RawProcess {
            pid: u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]),
            used: u64::from_ne_bytes([
                entry[8], entry[9], entry[10], entry[11], entry[12], entry[13], entry[14], entry[15],
            ]),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer in which a driver with entries of `words` * 8 bytes wrote `count` processes.
    fn written(words: usize, count: usize) -> Vec<u64> {
        let mut buffer = vec![PATTERN; 64 * ENTRY_WORDS];
        for n in 0..count {
            let at = n * words;
            // The upper half of the first word is padding that a compiler need not write.
            buffer[at] = (PATTERN & !0xFFFF_FFFF) | (1000 + n as u64);
            buffer[at + 1] = 1 << (20 + n % 8);
            if words > 2 {
                buffer[at + 2] = u64::MAX;
            }
            if words > 3 {
                buffer[at + 3] = 0;
            }
        }
        buffer
    }

    #[test]
    fn finds_the_stride_in_the_answer() {
        for words in [2, 3, 4] {
            for count in [0, 1, 2, 3, 7, 64] {
                let list = entries(&written(words, count), count);
                let expected: Vec<_> = (0..count)
                    .map(|n| RawProcess {
                        pid: 1000 + n as u32,
                        used: 1 << (20 + n % 8),
                    })
                    .collect();
                assert_eq!(list, expected, "{words} words, {count} entries");
            }
        }
    }

    #[test]
    fn an_untouched_buffer_is_still_bounded() {
        assert_eq!(entries(&[PATTERN; 8], 2).len(), 2);
        assert_eq!(entries(&[PATTERN; 8], 5000).len(), 4);
    }
}
