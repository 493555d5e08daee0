//! The real driver: CUDA's driver API through cudarc, loaded when it is first needed. Until the first call that needs
//! it nothing of CUDA is loaded and the process is in no device's list (AC-18).

use std::time::Duration;

use cudarc::driver::sys::{self, CUdevice};

use crate::clock::timed;
use crate::driver::{ContextMade, Driver, DriverError, EventId, MemInfo, StreamId};

mod error;
mod library;
mod session;

pub use library::CudaDevice;

use session::Session;

/// The driver of this process on one CUDA device. Made on any thread, used on one: the context belongs to the thread
/// of the first call. Dropping it destroys the context and everything in it.
pub struct CudaDriver {
    wanted: CudaDevice,
    device: Option<CUdevice>,
    session: Option<Session>,
    cost: Duration,
    context: Option<ContextMade>,
}

impl CudaDriver {
    /// A driver for `device`. Loads nothing yet.
    pub fn new(device: CudaDevice) -> Self {
        CudaDriver {
            wanted: device,
            device: None,
            session: None,
            cost: Duration::ZERO,
            context: None,
        }
    }

    fn device(&mut self) -> Result<CUdevice, DriverError> {
        if let Some(device) = self.device {
            return Ok(device);
        }
        let device = library::open(&self.wanted)?;
        self.device = Some(device);
        Ok(device)
    }

    fn session(&mut self) -> Result<&mut Session, DriverError> {
        if self.session.is_none() {
            let (session, took) = timed(|| self.device().and_then(Session::open));
            self.session = Some(session?);
            self.context = Some(ContextMade { bytes: None, took });
        }
        self.session
            .as_mut()
            .ok_or_else(|| DriverError::Unavailable("the CUDA context is gone".into()))
    }

    /// Runs `f` in the context, which is made first if there is none, and counts its time.
    fn call<T>(&mut self, f: impl FnOnce(&mut Session) -> Result<T, DriverError>) -> Result<T, DriverError> {
        let session = self.session()?;
        let (result, took) = timed(|| f(session));
        self.cost += took;
        result
    }
}

impl Driver for CudaDriver {
    fn alloc(&mut self, size: u64) -> Result<u64, DriverError> {
        self.call(|s| s.alloc(size))
    }

    fn free(&mut self, address: u64) -> Result<(), DriverError> {
        self.call(|s| s.free(address))
    }

    fn mem_info(&mut self) -> Result<MemInfo, DriverError> {
        self.call(Session::mem_info)
    }

    fn device_total(&mut self) -> Result<u64, DriverError> {
        let device = self.device()?;
        let mut bytes = 0;
        // SAFETY: `bytes` outlives the call, which writes one size; `device` came from cuDeviceGet. No context is needed.
        error::check("cuDeviceTotalMem", unsafe {
            sys::cuDeviceTotalMem_v2(&raw mut bytes, device)
        })?;
        Ok(bytes as u64)
    }

    fn reserve(&mut self, size: u64) -> Result<u64, DriverError> {
        self.call(|s| s.reserve(size))
    }

    fn unreserve(&mut self, address: u64, size: u64) -> Result<(), DriverError> {
        self.call(|s| s.unreserve(address, size))
    }

    fn map(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        self.call(|s| s.map(address, granule, count))
    }

    fn unmap(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        self.call(|s| s.unmap(address, granule, count))
    }

    fn record_event(&mut self, stream: StreamId) -> Result<EventId, DriverError> {
        self.call(|s| s.record_event(stream))
    }

    fn event_done(&mut self, event: EventId) -> Result<bool, DriverError> {
        self.call(|s| s.event_done(event))
    }

    fn wait_event(&mut self, event: EventId) -> Result<(), DriverError> {
        self.call(|s| s.wait_event(event))
    }

    fn synchronize(&mut self, stream: StreamId) -> Result<(), DriverError> {
        self.call(|s| s.synchronize(stream))
    }

    fn take_cost(&mut self) -> Duration {
        std::mem::take(&mut self.cost)
    }

    fn fill(&mut self, address: u64, size: u64, stream: StreamId) -> Result<(), DriverError> {
        self.call(|s| s.fill(address, size, stream))
    }

    fn new_stream(&mut self) -> Result<StreamId, DriverError> {
        self.call(Session::new_stream)
    }

    fn keep_busy(&mut self, stream: StreamId, time: Duration) -> Result<(), DriverError> {
        self.call(|s| s.keep_busy(stream, time))
    }

    fn take_context(&mut self) -> Option<ContextMade> {
        self.context.take()
    }
}
