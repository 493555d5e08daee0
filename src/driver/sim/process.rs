//! One process's side of the simulated device: its addresses, its streams and its events.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ledger::ProcessLedger;
use crate::driver::{EventId, StreamId};

/// cuMemAlloc hands out the lowest fitting address from here on (allocator-spec section 8's policy).
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
/// cuMemAddressReserve hands out ascending addresses from here on.
const FIRST_RESERVED: u64 = 0x3000_0000_0000;
/// Handles of made streams, spaced like the driver's heap objects.
const FIRST_STREAM: u64 = 0x5500_0000_0000;
const STREAM_SPACING: u64 = 0x1000;

/// The work queued on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    /// It is done when the device's time reaches this.
    until: Duration,
    /// How many times the stream was held, and up to which of these it was let go.
    holds: u64,
    released: u64,
}

/// The state of one process on the simulated device.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Its lines in the device's books.
    pub ledger: ProcessLedger,
    /// Its context exists.
    pub has_context: bool,
    /// cuMemAlloc: address to physical size.
    pub blocks: BTreeMap<u64, u64>,
    /// Reserved address ranges: address to size.
    pub ranges: BTreeMap<u64, u64>,
    /// Mapped granules: address to size.
    pub granules: BTreeMap<u64, u64>,
    reserved_so_far: u64,
    streams: BTreeMap<StreamId, Work>,
    streams_made: u64,
    events: BTreeMap<EventId, (StreamId, Work)>,
    events_made: u64,
}

impl Process {
    /// The lowest address at which `size` bytes fit between the live blocks; blocks start at multiples of `page`.
    pub fn place(&self, size: u64, page: u64) -> Option<u64> {
        let mut at = FIRST_ADDRESS.checked_next_multiple_of(page)?;
        for (address, length) in &self.blocks {
            if at.checked_add(size)? <= *address {
                break;
            }
            at = (address + length).checked_next_multiple_of(page)?;
        }
        at.checked_add(size).map(|_| at)
    }

    /// Takes a fresh range of addresses.
    pub fn reserve(&mut self, size: u64) -> Option<u64> {
        let address = FIRST_RESERVED.checked_add(self.reserved_so_far)?;
        self.reserved_so_far = self.reserved_so_far.checked_add(size)?;
        self.ranges.insert(address, size);
        Some(address)
    }

    /// True if all of `size` bytes from `address` on lie in one reserved range.
    pub fn in_range(&self, address: u64, size: u64) -> bool {
        within(&self.ranges, address, size)
    }

    /// True if any of `size` bytes from `address` on are mapped.
    pub fn any_mapped(&self, address: u64, size: u64) -> bool {
        let end = address.saturating_add(size);
        self.granules
            .range(..end)
            .next_back()
            .is_some_and(|(start, length)| start + length > address)
    }

    /// True if all of `size` bytes from `address` on are memory: one block, or granules without a hole.
    pub fn backed(&self, address: u64, size: u64) -> bool {
        let Some(end) = address.checked_add(size) else {
            return false;
        };
        if within(&self.blocks, address, size) {
            return true;
        }
        let mut at = address;
        while at < end {
            match self.granules.range(..=at).next_back() {
                Some((start, length)) if start + length > at => at = start + length,
                _ => return false,
            }
        }
        true
    }

    /// A new stream's handle.
    pub fn new_stream(&mut self) -> StreamId {
        let id = StreamId(FIRST_STREAM + self.streams_made * STREAM_SPACING);
        self.streams_made += 1;
        self.streams.insert(id, Work::default());
        id
    }

    /// Queues work on `stream` that lasts for `time` after what is already queued.
    pub fn busy(&mut self, stream: StreamId, now: Duration, time: Duration) {
        let work = self.streams.entry(stream).or_default();
        work.until = work.until.max(now).saturating_add(time);
    }

    /// Queues work on `stream` that lasts until it is let go.
    pub fn hold(&mut self, stream: StreamId) {
        self.streams.entry(stream).or_default().holds += 1;
    }

    /// Lets everything that was held on `stream` go on.
    pub fn release(&mut self, stream: StreamId) {
        let work = self.streams.entry(stream).or_default();
        work.released = work.holds;
    }

    /// An event after all work queued on `stream` so far.
    pub fn record(&mut self, stream: StreamId) -> EventId {
        self.events_made += 1;
        let event = EventId(self.events_made);
        let work = self.streams.get(&stream).copied().unwrap_or_default();
        self.events.insert(event, (stream, work));
        event
    }

    /// Whether an event has completed at `now`; a completed one is forgotten. `None`: there is no such event.
    pub fn done(&mut self, event: EventId, now: Duration) -> Option<bool> {
        let (stream, work) = self.events.get(&event)?;
        let released = self.streams.get(stream).map_or(u64::MAX, |s| s.released);
        let done = now >= work.until && released >= work.holds;
        if done {
            self.events.remove(&event);
        }
        Some(done)
    }

    /// Waits for an event and forgets it: the time that is left of its work at `now`. Held work goes on.
    pub fn wait(&mut self, event: EventId, now: Duration) -> Option<Duration> {
        let (stream, work) = self.events.remove(&event)?;
        if let Some(s) = self.streams.get_mut(&stream) {
            s.released = s.released.max(work.holds);
            if s.until == work.until {
                s.until = s.until.min(now);
            }
        }
        Some(work.until.saturating_sub(now))
    }

    /// Waits for all work on `stream`: the time that is left of it at `now`. Held work goes on.
    pub fn drain(&mut self, stream: StreamId, now: Duration) -> Duration {
        let work = self.streams.entry(stream).or_default();
        let left = work.until.saturating_sub(now);
        work.until = work.until.min(now);
        work.released = work.holds;
        left
    }
}

fn within(ranges: &BTreeMap<u64, u64>, address: u64, size: u64) -> bool {
    ranges
        .range(..=address)
        .next_back()
        .is_some_and(|(start, length)| address.checked_add(size).is_some_and(|end| end <= start + length))
}
