//! The counters of a caching allocator: PyTorch's `DeviceStats`, under the names of `torch.cuda.memory_stats()`
//! (c10/cuda/CUDACachingAllocator.h; allocator-spec section 3). The same shape is filled by our allocator, by a read of a
//! live PyTorch process and by a recording.

use std::collections::BTreeMap;

/// One counter with its history: bytes or counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The value now.
    pub current: i64,
    /// The highest value since the last peak reset.
    pub peak: i64,
    /// The sum of all increases since the last accumulated reset.
    pub allocated: i64,
    /// The sum of all decreases since the last accumulated reset.
    pub freed: i64,
}

impl Stat {
    /// Adds `amount`. The sums wrap, as PyTorch's 64-bit sums would after 8 EiB.
    #[inline]
    pub fn increase(&mut self, amount: i64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.allocated = self.allocated.wrapping_add(amount);
    }

    /// Takes `amount` off.
    #[inline]
    pub fn decrease(&mut self, amount: i64) {
        self.current -= amount;
        self.freed = self.freed.wrapping_add(amount);
    }

    /// `reset_peak_memory_stats` for this counter.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    /// `reset_accumulated_memory_stats` for this counter.
    pub fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }
}

/// A counter kept for all pools together and for the small and the large pools apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatArray {
    /// Both pools.
    pub all: Stat,
    /// Blocks of at most 1 MiB.
    pub small: Stat,
    /// The rest.
    pub large: Stat,
}

/// Every counter of one device. Counters that a release does not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Live allocations (count); `allocation.*`.
    pub allocation: StatArray,
    /// Segments got from cudaMalloc (count).
    pub segment: StatArray,
    /// Live or pending blocks (count).
    pub active: StatArray,
    /// Free blocks that are part of a split segment (count).
    pub inactive_split: StatArray,
    /// Bytes of live blocks.
    pub allocated_bytes: StatArray,
    /// Bytes held from the driver.
    pub reserved_bytes: StatArray,
    /// Bytes of live or pending blocks.
    pub active_bytes: StatArray,
    /// Bytes of free blocks that are part of a split segment.
    pub inactive_split_bytes: StatArray,
    /// Bytes as asked for, before rounding.
    pub requested_bytes: StatArray,
    /// Blocks of at least max_split_size (count).
    pub oversize_allocations: Stat,
    /// Segments of at least max_split_size (count).
    pub oversize_segments: Stat,
    /// Driver calls that failed and were tried again after a flush.
    pub num_alloc_retries: i64,
    /// Out-of-memory errors raised.
    pub num_ooms: i64,
    /// synchronize-and-free calls (2.3 and later).
    pub num_sync_all_streams: Option<i64>,
    /// cudaMalloc and map calls (2.3 and later).
    pub num_device_alloc: Option<i64>,
    /// cudaFree and unmap calls (2.3 and later).
    pub num_device_free: Option<i64>,
    /// Requests refused by throw_on_cudamalloc_oom (2.13 and later).
    pub num_oom_rejections: Option<i64>,
    /// The split limit in bytes that held when the allocator was made; -1 = none.
    pub max_split_size: i64,
    /// Reserved bytes of each private pool, by pool id (2.13 and later; empty before).
    pub reserved_bytes_by_private_pools: BTreeMap<(u64, u64), StatArray>,
}
