//! The event log: PyTorch's actions and fields (allocator-spec 5.2), in a ring of bounded size.

use std::collections::VecDeque;

use super::pool::PoolId;
use crate::driver::StreamId;

/// What happened, under PyTorch's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A segment came from the driver.
    SegmentAlloc,
    /// A segment is about to go back to the driver.
    SegmentFree,
    /// Granules were mapped into an expandable segment.
    SegmentMap,
    /// Granules were unmapped from an expandable segment.
    SegmentUnmap,
    /// A block was handed out.
    Alloc,
    /// The caller gave a block back.
    FreeRequested,
    /// The block is free (at once, or when its events have completed).
    FreeCompleted,
    /// A request failed for good.
    Oom,
    /// A snapshot was taken.
    Snapshot,
}

impl Action {
    /// PyTorch's name of the action.
    pub fn name(self) -> &'static str {
        match self {
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::Oom => "oom",
            Action::Snapshot => "snapshot",
        }
    }

    /// The action of that name.
    pub fn from_name(name: &str) -> Option<Action> {
        [
            Action::SegmentAlloc,
            Action::SegmentFree,
            Action::SegmentMap,
            Action::SegmentUnmap,
            Action::Alloc,
            Action::FreeRequested,
            Action::FreeCompleted,
            Action::Oom,
            Action::Snapshot,
        ]
        .into_iter()
        .find(|a| a.name() == name)
    }
}

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// What happened.
    pub action: Action,
    /// The address it happened at; for `Oom` the driver's free bytes (PyTorch's key `device_free`).
    pub address: u64,
    /// Bytes: as asked for in `Alloc`, `FreeRequested` and `FreeCompleted`, rounded in `Oom`, whole segments or ranges else.
    pub size: u64,
    /// The stream of the block or segment.
    pub stream: StreamId,
    /// The pool of the block or segment; (0, 0) is the default pool.
    pub pool: PoolId,
    /// The time that the caller last gave to `Allocator::set_time`, in microseconds; 0 if none.
    pub time_us: u64,
    /// Number of the entry since the allocator was made, from 0.
    pub sequence: u64,
}

/// The newest entries, and how many older ones were dropped since the last take.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    entries: VecDeque<TraceEntry>,
    capacity: usize,
    pub(super) dropped: u64,
    pub(super) sequence: u64,
    pub(super) time_us: u64,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        Ring {
            entries: VecDeque::new(),
            capacity,
            dropped: 0,
            sequence: 0,
            time_us: 0,
        }
    }

    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.entries.len() > capacity {
            self.entries.pop_front();
            self.dropped += 1;
        }
    }

    #[inline]
    pub(super) fn push(&mut self, action: Action, address: u64, size: u64, stream: StreamId, pool: PoolId) {
        let entry = TraceEntry {
            action,
            address,
            size,
            stream,
            pool,
            time_us: self.time_us,
            sequence: self.sequence,
        };
        self.sequence += 1;
        if self.entries.len() >= self.capacity {
            self.dropped += 1;
            if self.entries.pop_front().is_none() {
                return;
            }
        }
        self.entries.push_back(entry);
    }

    pub(super) fn take(&mut self) -> Vec<TraceEntry> {
        self.dropped = 0;
        self.entries.drain(..).collect()
    }

    pub(super) fn drain_into(&mut self, out: &mut Vec<TraceEntry>) {
        self.dropped = 0;
        out.extend(self.entries.drain(..));
    }
}
