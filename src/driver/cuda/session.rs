//! A context on one device, and every driver function that is called in it.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUevent, CUevent_flags_enum, CUmemAccess_flags_enum, CUmemAccessDesc_st,
    CUmemAllocationHandleType_enum, CUmemAllocationProp_st, CUmemAllocationProp_st__bindgen_ty_1,
    CUmemAllocationType_enum, CUmemLocation_st, CUmemLocationType_enum, CUstream, CUstream_flags_enum,
};

use super::error::{INVALID_HANDLE, INVALID_VALUE, NOT_READY, check, code, failed};
use crate::driver::{DriverError, EventId, MemInfo, StreamId};

/// Ends the work of [`Session::keep_busy`] before its time.
type Stop = Arc<(Mutex<bool>, Condvar)>;

/// The device's primary context, current on the thread that made it (raw handles keep it there: it is not `Send`).
pub(super) struct Session {
    device: CUdevice,
    streams: BTreeMap<StreamId, CUstream>,
    events: BTreeMap<EventId, CUevent>,
    events_made: u64,
    /// Mapped granules: address to the handle of its memory and its size.
    granules: BTreeMap<u64, (u64, u64)>,
    stop: Stop,
}

#[expect(
    clippy::unused_self,
    reason = "a session is the proof that a context is current, which every call needs"
)]
impl Session {
    /// Makes the primary context of `device` and makes it current.
    pub fn open(device: CUdevice) -> Result<Self, DriverError> {
        let mut context: CUcontext = null_mut();
        // SAFETY: `context` outlives the call, which writes one handle; `device` came from cuDeviceGet.
        check("cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&raw mut context, device)
        })?;
        let session = Session {
            device,
            streams: BTreeMap::from([(StreamId(0), null_mut())]),
            events: BTreeMap::new(),
            events_made: 0,
            granules: BTreeMap::new(),
            stop: Stop::default(),
        };
        // SAFETY: `context` was retained above and is released only when `session` is dropped.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
        Ok(session)
    }

    fn stream(&self, stream: StreamId, call: &'static str) -> Result<CUstream, DriverError> {
        self.streams
            .get(&stream)
            .copied()
            .ok_or_else(|| failed(call, INVALID_HANDLE))
    }

    pub fn alloc(&mut self, size: u64) -> Result<u64, DriverError> {
        let mut address = 0;
        // SAFETY: `address` outlives the call, which writes one device pointer.
        check("cuMemAlloc", unsafe {
            sys::cuMemAlloc_v2(&raw mut address, to_usize(size)?)
        })?;
        Ok(address)
    }

    pub fn free(&mut self, address: u64) -> Result<(), DriverError> {
        // SAFETY: the driver itself checks that the address is one that cuMemAlloc returned.
        check("cuMemFree", unsafe { sys::cuMemFree_v2(address) })
    }

    pub fn mem_info(&mut self) -> Result<MemInfo, DriverError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both outlive the call, which writes one size each.
        check("cuMemGetInfo", unsafe {
            sys::cuMemGetInfo_v2(&raw mut free, &raw mut total)
        })?;
        Ok(MemInfo {
            free: free as u64,
            total: total as u64,
        })
    }

    pub fn reserve(&mut self, size: u64) -> Result<u64, DriverError> {
        let mut address = 0;
        // SAFETY: `address` outlives the call; alignment, hint and flags 0 leave the choice to the driver.
        check("cuMemAddressReserve", unsafe {
            sys::cuMemAddressReserve(&raw mut address, to_usize(size)?, 0, 0, 0)
        })?;
        Ok(address)
    }

    pub fn unreserve(&mut self, address: u64, size: u64) -> Result<(), DriverError> {
        // SAFETY: the driver itself checks that this is a whole reserved range.
        check("cuMemAddressFree", unsafe {
            sys::cuMemAddressFree(address, to_usize(size)?)
        })
    }

    pub fn map(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        let bytes = to_usize(granule)?;
        let end = granule.checked_mul(count).and_then(|size| address.checked_add(size));
        if count == 0 || end.is_none() {
            return Err(failed("cuMemMap", INVALID_VALUE));
        }
        let mut mapped = 0;
        let result = (0..count).try_for_each(|i| {
            self.map_one(address + i * granule, bytes)?;
            mapped = i + 1;
            Ok(())
        });
        if result.is_err() && mapped > 0 {
            self.unmap(address, granule, mapped)?;
        }
        result
    }

    /// cuMemCreate + cuMemMap + cuMemSetAccess of one granule; nothing is left of it if one of them fails.
    fn map_one(&mut self, address: u64, bytes: usize) -> Result<(), DriverError> {
        let location = CUmemLocation_st {
            type_: CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.device,
        };
        let wanted = CUmemAllocationProp_st {
            type_: CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType_enum(0),
            location,
            win32HandleMetaData: null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let access = CUmemAccessDesc_st {
            location,
            flags: CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let mut handle = 0;
        // SAFETY: `handle` and `wanted` outlive the call; all fields of `wanted` are set.
        check("cuMemCreate", unsafe {
            sys::cuMemCreate(&raw mut handle, bytes, &raw const wanted, 0)
        })?;
        // SAFETY: the handle is of `bytes` bytes; the driver checks that the addresses are reserved and unmapped.
        let result = check("cuMemMap", unsafe { sys::cuMemMap(address, bytes, 0, handle, 0) }).and_then(|()| {
            // SAFETY: `access` outlives the call and is one description; the range was mapped just now.
            check("cuMemSetAccess", unsafe {
                sys::cuMemSetAccess(address, bytes, &raw const access, 1)
            })
            // SAFETY: takes back the mapping made above.
            .inspect_err(|_| _ = code(unsafe { sys::cuMemUnmap(address, bytes) }))
        });
        match result {
            Ok(()) => {
                self.granules.insert(address, (handle, bytes as u64));
                Ok(())
            }
            Err(error) => {
                // SAFETY: gives back the handle made above; nothing is mapped to it any more.
                _ = code(unsafe { sys::cuMemRelease(handle) });
                Err(error)
            }
        }
    }

    pub fn unmap(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        let end = granule.checked_mul(count).and_then(|size| address.checked_add(size));
        let ours = |i: u64| {
            self.granules
                .get(&(address + i * granule))
                .is_some_and(|(_, size)| *size == granule)
        };
        if count == 0 || end.is_none() || !(0..count).all(ours) {
            return Err(failed("cuMemUnmap", INVALID_VALUE));
        }
        for at in (0..count).map(|i| address + i * granule) {
            // SAFETY: this whole granule was mapped by `map_one` and not unmapped since.
            check("cuMemUnmap", unsafe { sys::cuMemUnmap(at, to_usize(granule)?) })?;
            if let Some((handle, _)) = self.granules.remove(&at) {
                // SAFETY: the handle was made by `map_one`; its only mapping is gone.
                check("cuMemRelease", unsafe { sys::cuMemRelease(handle) })?;
            }
        }
        Ok(())
    }

    pub fn fill(&mut self, address: u64, size: u64, stream: StreamId) -> Result<(), DriverError> {
        let stream = self.stream(stream, "cuMemsetD8Async")?;
        // SAFETY: the caller fills memory that it got from this driver; the stream is one of ours.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(address, 0, to_usize(size)?, stream)
        })
    }

    pub fn new_stream(&mut self) -> Result<StreamId, DriverError> {
        let mut stream: CUstream = null_mut();
        let flags = CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` outlives the call, which writes one handle.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        let id = StreamId(stream.addr() as u64);
        self.streams.insert(id, stream);
        Ok(id)
    }

    pub fn synchronize(&mut self, stream: StreamId) -> Result<(), DriverError> {
        let stream = self.stream(stream, "cuStreamSynchronize")?;
        // SAFETY: the stream is one of ours.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })
    }

    /// Queues a host function that sleeps: the stream's later work and events wait for it.
    pub fn keep_busy(&mut self, stream: StreamId, time: Duration) -> Result<(), DriverError> {
        let stream = self.stream(stream, "cuLaunchHostFunc")?;
        let work = Box::into_raw(Box::new((time, self.stop.clone())));
        // SAFETY: the driver calls `sleep` once with `work`, which is the box that `sleep` expects.
        let result = check("cuLaunchHostFunc", unsafe {
            sys::cuLaunchHostFunc(stream, Some(sleep), work.cast())
        });
        if result.is_err() {
            // SAFETY: the launch failed, so `sleep` will not be called and the box is still ours.
            drop(unsafe { Box::from_raw(work) });
        }
        result
    }

    pub fn record_event(&mut self, stream: StreamId) -> Result<EventId, DriverError> {
        let stream = self.stream(stream, "cuEventRecord")?;
        let mut event: CUevent = null_mut();
        let flags = CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: `event` outlives the call, which writes one handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, flags) })?;
        self.events_made += 1;
        let id = EventId(self.events_made);
        self.events.insert(id, event);
        // SAFETY: the event was made above, the stream is one of ours.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event, stream) }).inspect_err(|_| self.forget(id))?;
        Ok(id)
    }

    pub fn event_done(&mut self, id: EventId) -> Result<bool, DriverError> {
        let event = self.event(id, "cuEventQuery")?;
        // SAFETY: the event was made by `record_event` and is destroyed only by `forget`.
        let result = unsafe { sys::cuEventQuery(event) };
        if code(result) == NOT_READY {
            return Ok(false);
        }
        check("cuEventQuery", result)?;
        self.forget(id);
        Ok(true)
    }

    pub fn wait_event(&mut self, id: EventId) -> Result<(), DriverError> {
        let event = self.event(id, "cuEventSynchronize")?;
        // SAFETY: as in `event_done`.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event) })?;
        self.forget(id);
        Ok(())
    }

    fn event(&self, id: EventId, call: &'static str) -> Result<CUevent, DriverError> {
        self.events
            .get(&id)
            .copied()
            .ok_or_else(|| failed(call, INVALID_HANDLE))
    }

    fn forget(&mut self, id: EventId) {
        if let Some(event) = self.events.remove(&id) {
            // SAFETY: the event was made by `record_event`; it left the map, so nobody names it again.
            _ = code(unsafe { sys::cuEventDestroy_v2(event) });
        }
    }
}

impl Drop for Session {
    /// Ends our work, gives everything back and releases the context. Errors cannot be helped any more.
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        // SAFETY: waits for the work of the context that is current on this thread.
        _ = code(unsafe { sys::cuCtxSynchronize() });
        for id in self.events.keys().copied().collect::<Vec<_>>() {
            self.forget(id);
        }
        for (address, (handle, size)) in std::mem::take(&mut self.granules) {
            // SAFETY: the granule was mapped by `map_one` to this handle, of which it is the only mapping.
            unsafe {
                _ = code(sys::cuMemUnmap(address, size as usize));
                _ = code(sys::cuMemRelease(handle));
            }
        }
        for stream in std::mem::take(&mut self.streams).into_values().filter(|s| !s.is_null()) {
            // SAFETY: the stream was made by `new_stream`; nobody names it again.
            _ = code(unsafe { sys::cuStreamDestroy_v2(stream) });
        }
        // SAFETY: the context is taken off this thread before its one reference, taken in `open`, is given back.
        unsafe {
            _ = code(sys::cuCtxSetCurrent(null_mut()));
            _ = code(sys::cuDevicePrimaryCtxRelease_v2(self.device));
        }
    }
}

/// The host function of [`Session::keep_busy`].
///
/// # Safety
/// `work` must be the pointer of a `Box<(Duration, Stop)>` that nobody else owns.
unsafe extern "C" fn sleep(work: *mut c_void) {
    // SAFETY: by this function's contract.
    let (time, stop) = *unsafe { Box::from_raw(work.cast::<(Duration, Stop)>()) };
    let guard = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
    drop(stop.1.wait_timeout_while(guard, time, |stopped| !*stopped));
}

fn to_usize(size: u64) -> Result<usize, DriverError> {
    usize::try_from(size).map_err(|_| DriverError::OutOfMemory)
}
