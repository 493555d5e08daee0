//! Adaptors around a driver: each changes one thing and leaves the rest to the driver inside.

/// The calls of [`Driver`](super::Driver), without its questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// cuMemAlloc.
    Alloc,
    /// cuMemFree.
    Free,
    /// cuMemGetInfo.
    MemInfo,
    /// The device's total.
    DeviceTotal,
    /// cuMemAddressReserve.
    Reserve,
    /// cuMemAddressFree.
    Unreserve,
    /// cuMemCreate, cuMemMap, cuMemSetAccess.
    Map,
    /// cuMemUnmap, cuMemRelease.
    Unmap,
    /// cuEventRecord.
    RecordEvent,
    /// cuEventQuery.
    EventDone,
    /// cuEventSynchronize.
    WaitEvent,
    /// cuStreamSynchronize.
    Synchronize,
}

/// Delegates the calls that an adaptor does not change.
macro_rules! delegate {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&mut self, $($arg: $type),*) -> $out { self.inner.$name($($arg),*) })*
    };
}

/// Delegates what a demo needs beside the allocator's calls: writing pages, streams with work, the context's cost.
macro_rules! delegate_demo {
    () => {
        delegate! {
            fill(address: u64, size: u64, stream: StreamId) -> Result<(), DriverError>;
            new_stream() -> Result<StreamId, DriverError>;
            keep_busy(stream: StreamId, time: Duration) -> Result<(), DriverError>;
            take_context() -> Option<ContextMade>;
        }
    };
}

// Below the macros, which they use.
mod failing;
mod keeping;
mod limiting;
mod recording;

pub use failing::Failing;
pub use keeping::Keeping;
pub use limiting::Limiting;
pub use recording::{Record, Recording};
