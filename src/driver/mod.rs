//! The GPU driver as the allocator sees it: one trait, two implementations (`sim`, `cuda`), adaptors around them
//! (`adapt`). Everything that allocates device memory goes through here (design rule 2).

use std::time::Duration;

pub mod adapt;
pub mod cuda;
pub mod sim;

/// A CUDA stream as the allocator names it: the raw handle value, 0 for the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// An event that was recorded on a stream and may not have completed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u64);

/// What the driver says of the device's memory, in bytes (cuMemGetInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemInfo {
    /// Bytes that a call could still get.
    pub free: u64,
    /// Bytes of the device as CUDA counts them (less than NVML's total: the driver's own part is left out).
    pub total: u64,
}

/// Why a driver call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The device has not enough memory (CUDA error 2). The allocator's ladder goes on from here.
    #[error("the driver is out of memory")]
    OutOfMemory,
    /// Any other error: it ends the operation.
    #[error("{call} failed: {text} (CUDA error {code})")]
    Failed {
        /// The driver function.
        call: &'static str,
        /// The driver's error number.
        code: u32,
        /// The driver's own name or sentence for it.
        text: String,
    },
    /// There is no driver, or it cannot be used; the sentence names the next step.
    #[error("{0}")]
    Unavailable(String),
}

/// What making the context cost. It happens within the first call that needs one, and is told apart from that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextMade {
    /// Bytes that the driver charges to the process for it, where the driver itself tells.
    pub bytes: Option<u64>,
    /// How long it took.
    pub took: Duration,
}

/// The driver calls that a caching allocator needs. Addresses and sizes are bytes. An implementation belongs to one
/// device and one thread; it keeps no statistics.
pub trait Driver {
    /// cuMemAlloc: `size` bytes of device memory.
    fn alloc(&mut self, size: u64) -> Result<u64, DriverError>;
    /// cuMemFree of an address that `alloc` returned.
    fn free(&mut self, address: u64) -> Result<(), DriverError>;
    /// cuMemGetInfo.
    fn mem_info(&mut self) -> Result<MemInfo, DriverError>;
    /// totalGlobalMem of the device's properties: the base of memory fractions and of expandable address ranges.
    fn device_total(&mut self) -> Result<u64, DriverError>;
    /// cuMemAddressReserve: a range of addresses without memory.
    fn reserve(&mut self, size: u64) -> Result<u64, DriverError>;
    /// cuMemAddressFree of a whole range.
    fn unreserve(&mut self, address: u64, size: u64) -> Result<(), DriverError>;
    /// cuMemCreate + cuMemMap + cuMemSetAccess: backs `count` granules of `granule` bytes from `address` on, all or none.
    fn map(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError>;
    /// cuMemUnmap + cuMemRelease of `count` granules from `address` on.
    fn unmap(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError>;
    /// cuEventRecord: an event after all work queued on `stream` so far.
    fn record_event(&mut self, stream: StreamId) -> Result<EventId, DriverError>;
    /// cuEventQuery: has it completed? A completed event is forgotten by the driver after `true`.
    fn event_done(&mut self, event: EventId) -> Result<bool, DriverError>;
    /// cuEventSynchronize: waits for it, and forgets it.
    fn wait_event(&mut self, event: EventId) -> Result<(), DriverError>;
    /// cuStreamSynchronize.
    fn synchronize(&mut self, stream: StreamId) -> Result<(), DriverError>;
    /// The time that the calls since the last `take_cost` took: measured on a card, modelled on a simulated one. The
    /// making of the context is not in it.
    fn take_cost(&mut self) -> Duration;

    /// cuMemsetD8Async of `size` bytes from `address` on, with zeros: writes every page. A driver without memory behind
    /// its addresses has nothing to write.
    fn fill(&mut self, _address: u64, _size: u64, _stream: StreamId) -> Result<(), DriverError> {
        Ok(())
    }
    /// cuStreamCreate: a stream that does not wait for the default stream.
    fn new_stream(&mut self) -> Result<StreamId, DriverError> {
        Err(DriverError::Unavailable(
            "this driver has only the default stream".into(),
        ))
    }
    /// Gives `stream` work that lasts for `time`.
    fn keep_busy(&mut self, _stream: StreamId, _time: Duration) -> Result<(), DriverError> {
        Err(DriverError::Unavailable(
            "this driver's streams have no work of their own".into(),
        ))
    }
    /// What making the context cost, once: on the first call after it was made.
    fn take_context(&mut self) -> Option<ContextMade> {
        None
    }
}
