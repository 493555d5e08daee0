//! A driver that answers as the recorded one did: every call that would get memory is looked up in the recorded log of
//! segment calls, which also carries the addresses. Where the next recorded call is another one, the real call failed.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::allocator::Action;
use crate::driver::{Driver, DriverError, EventId, MemInfo, StreamId};

/// One recorded event: torch's action with its address, size and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub action: Action,
    pub address: u64,
    pub size: u64,
    pub stream: u64,
}

impl Event {
    fn is_segment_call(&self) -> bool {
        matches!(
            self.action,
            Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap
        )
    }
}

/// Which events have completed.
#[derive(Clone, Debug, Default)]
pub(super) struct Completed {
    /// All up to this number.
    pub up_to: u64,
    /// And these.
    pub single: HashSet<u64>,
}

/// A recording that holds more is damaged (64 TiB).
const MOST_MEMORY: u64 = 1 << 46;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Scripted {
    calls: Arc<[Event]>,
    next: usize,
    total: u64,
    /// What the driver's free bytes were at each recorded out-of-memory, and which of them is next.
    free_at_oom: Arc<[u64]>,
    next_oom: usize,
    ranges: Vec<(u64, u64)>,
    /// Bytes with memory behind them: start to end.
    backed: BTreeMap<u64, u64>,
    held: u64,
    pub last_event: u64,
    pub completed: Completed,
    /// Calls that the recording does not have.
    pub unexpected: Vec<String>,
}

impl Scripted {
    pub fn new(events: &[Event], total: u64) -> Self {
        let ooms = events.iter().filter(|e| e.action == Action::Oom);
        Scripted {
            calls: events.iter().filter(|e| e.is_segment_call()).copied().collect(),
            next: 0,
            total,
            free_at_oom: ooms.map(|e| e.address).collect(),
            next_oom: 0,
            ranges: Vec::new(),
            backed: BTreeMap::new(),
            held: 0,
            last_event: 0,
            completed: Completed::default(),
            unexpected: Vec::new(),
        }
    }

    /// Recorded segment calls that were never asked for.
    pub fn left(&self) -> usize {
        self.calls.len() - self.next
    }

    /// An out-of-memory was raised: the next one has its own free bytes.
    pub fn pass_oom(&mut self) {
        self.next_oom += 1;
    }

    fn expect(&mut self, action: Action, address: Option<u64>, size: Option<u64>) -> Option<Event> {
        let next = *self.calls.get(self.next)?;
        let same =
            next.action == action && address.is_none_or(|a| a == next.address) && size.is_none_or(|s| s == next.size);
        if same {
            self.next += 1;
        }
        same.then_some(next)
    }

    fn note_unexpected(&mut self, what: &str) {
        let next = match self.calls.get(self.next) {
            Some(e) => format!("{} {:#x} of {} bytes", e.action.name(), e.address, e.size),
            None => "nothing".to_owned(),
        };
        self.unexpected
            .push(format!("driver call {what} where the recording has {next}"));
    }

    /// Puts memory behind addresses; a recording that gives bytes out twice is damaged.
    fn back(&mut self, address: u64, size: u64) -> Result<(), DriverError> {
        let damaged = |text: String| DriverError::Failed {
            call: "the recorded driver",
            code: 0,
            text,
        };
        let end = address
            .checked_add(size)
            .ok_or_else(|| damaged(format!("{address:#x} is beyond all memory")))?;
        let before = self.backed.range(..end).next_back();
        if address == 0 || before.is_some_and(|(_, other)| *other > address) {
            return Err(damaged(format!("{size} bytes at {address:#x} are given out twice")));
        }
        self.held = self.held.saturating_add(size);
        if self.held > MOST_MEMORY {
            return Err(damaged(format!("{} bytes held: more than any device has", self.held)));
        }
        self.backed.insert(address, end);
        Ok(())
    }

    /// Takes the memory away from addresses, whatever pieces it was given in.
    fn unback(&mut self, address: u64, end: u64) {
        let pieces: Vec<(u64, u64)> = self
            .backed
            .range(..end)
            .rev()
            .take_while(|(_, e)| **e > address)
            .map(|(s, e)| (*s, *e))
            .collect();
        for (start, stop) in pieces {
            self.backed.remove(&start);
            self.held -= stop.min(end) - start.max(address);
            if start < address {
                self.backed.insert(start, address);
            }
            if stop > end {
                self.backed.insert(end, stop);
            }
        }
    }

    /// Memory that was held before the recording begins.
    pub fn hold(&mut self, address: u64, size: u64) -> Result<(), DriverError> {
        self.back(address, size)
    }

    fn inside_a_range(&self, address: u64) -> bool {
        self.ranges
            .iter()
            .any(|(base, size)| address >= *base && address - base < *size)
    }
}

impl Driver for Scripted {
    fn alloc(&mut self, size: u64) -> Result<u64, DriverError> {
        let call = self.expect(Action::SegmentAlloc, None, Some(size));
        let address = call.ok_or(DriverError::OutOfMemory)?.address;
        self.back(address, size)?;
        Ok(address)
    }

    fn free(&mut self, address: u64) -> Result<(), DriverError> {
        if self.expect(Action::SegmentFree, Some(address), None).is_none() {
            self.note_unexpected(&format!("segment_free {address:#x}"));
        }
        if let Some(end) = self.backed.get(&address).copied() {
            self.unback(address, end);
        }
        Ok(())
    }

    fn mem_info(&mut self) -> Result<MemInfo, DriverError> {
        let free = self.free_at_oom.get(self.next_oom).copied().unwrap_or(self.total);
        Ok(MemInfo {
            free,
            total: self.total,
        })
    }

    fn device_total(&mut self) -> Result<u64, DriverError> {
        Ok(self.total)
    }

    /// The log has no reservations. A fresh range is mapped next, from its start; if that failed, the base is the first
    /// address that is ever mapped outside all ranges.
    fn reserve(&mut self, size: u64) -> Result<u64, DriverError> {
        let mut maps = self.calls[self.next..]
            .iter()
            .take_while(|e| e.action == Action::SegmentMap);
        let base = if let Some(next) = maps.next() {
            next.address
        } else {
            let mut later = self.calls[self.next..]
                .iter()
                .filter(|e| e.action == Action::SegmentMap)
                .map(|e| e.address);
            later
                .find(|a| !self.inside_a_range(*a))
                .ok_or(DriverError::OutOfMemory)?
        };
        if base == 0 || base.checked_add(size).is_none() || self.ranges.iter().any(|(b, _)| *b == base) {
            return Err(DriverError::OutOfMemory);
        }
        self.ranges.push((base, size));
        Ok(base)
    }

    fn unreserve(&mut self, address: u64, _: u64) -> Result<(), DriverError> {
        self.ranges.retain(|(base, _)| *base != address);
        Ok(())
    }

    fn map(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        let size = granule.checked_mul(count).ok_or(DriverError::OutOfMemory)?;
        let call = self.expect(Action::SegmentMap, Some(address), Some(size));
        call.ok_or(DriverError::OutOfMemory)?;
        self.back(address, size)
    }

    fn unmap(&mut self, address: u64, granule: u64, count: u64) -> Result<(), DriverError> {
        let size = granule * count;
        if self.expect(Action::SegmentUnmap, Some(address), Some(size)).is_none() {
            self.note_unexpected(&format!("segment_unmap {address:#x} of {size} bytes"));
        }
        self.unback(address, address.saturating_add(size));
        Ok(())
    }

    fn record_event(&mut self, _: StreamId) -> Result<EventId, DriverError> {
        self.last_event += 1;
        Ok(EventId(self.last_event))
    }

    fn event_done(&mut self, event: EventId) -> Result<bool, DriverError> {
        Ok(event.0 <= self.completed.up_to || self.completed.single.remove(&event.0))
    }

    fn wait_event(&mut self, event: EventId) -> Result<(), DriverError> {
        self.completed.single.remove(&event.0);
        Ok(())
    }

    fn synchronize(&mut self, _: StreamId) -> Result<(), DriverError> {
        Ok(())
    }

    fn take_cost(&mut self) -> Duration {
        Duration::ZERO
    }
}
