//! Expandable segments: address ranges that memory is mapped into granule by granule (allocator-spec section 4).

use crate::driver::{Driver, DriverError};

use super::block::{BlockId, NONE, State};
use super::config::Reserve;
use super::event::Action;
use super::heap::Heap;
use super::place::Request;
use super::report::RangeReport;
use super::size::SMALL_SEGMENT;
use super::{AllocError, Allocator};

/// One reserved address range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub base: u64,
    pub size: u64,
    /// Bytes that are mapped at a time: 2 MiB for small blocks, the large segment size for large ones.
    pub granule: u64,
}

impl<D: Driver> Allocator<D> {
    /// Takes the place of cudaMalloc: maps as much as the request needs. The block is in no free set.
    pub(super) fn extend(&mut self, request: &Request) -> Result<Option<BlockId>, AllocError> {
        let mut id = match self.heap.find_extendable(request) {
            Some(id) => id,
            None => match self.reserve_range(request)? {
                Some(id) => id,
                None => return Ok(None),
            },
        };
        if self.heap.blocks[id].state == State::Unmapped {
            let bytes = request.size.min(self.heap.blocks[id].size);
            match self.map(id, bytes)? {
                Some(mapped) => id = mapped,
                None => return Ok(None),
            }
        }
        while self.heap.blocks[id].size < request.size {
            let next = self.heap.blocks[id].next;
            if next == NONE || self.heap.blocks[next].state != State::Unmapped {
                return Ok(None);
            }
            let bytes = (request.size - self.heap.blocks[id].size).min(self.heap.blocks[next].size);
            match self.map(next, bytes)? {
                Some(mapped) => id = mapped,
                None => return Ok(None),
            }
        }
        self.heap.remove_free(id);
        Ok(Some(id))
    }

    /// Reserves addresses for 9/8 of the device (or what is configured), rounded up to granules: one unmapped block.
    fn reserve_range(&mut self, request: &Request) -> Result<Option<BlockId>, AllocError> {
        let total = self.device_total()?;
        let small = self.heap.lanes[request.lane as usize].small;
        let granule = if small {
            SMALL_SEGMENT
        } else {
            self.heap.config.large_segment_size
        };
        let most = total.saturating_add(total / 8);
        let room = match self.heap.config.expandable_reserve {
            None => most,
            Some(Reserve::Fraction(part)) => most.min((part * total as f64) as u64),
            Some(Reserve::Bytes(bytes)) => most.min(bytes),
        };
        let size = room.div_ceil(granule).max(1).saturating_mul(granule);
        if size < request.size {
            return Ok(None);
        }
        let base = match self.driver.reserve(size) {
            Ok(base) => base,
            Err(DriverError::OutOfMemory) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let id = self.heap.add_segment(request.lane, base, size, self.next_range, true);
        self.ranges.insert(self.next_range, Range { base, size, granule });
        self.next_range += 1;
        self.heap.insert_unmapped(id);
        Ok(Some(id))
    }

    /// Maps the first `bytes` of an unmapped block, rounded up to granules, and merges them with free neighbours. The
    /// result is in the free set. `None`: the driver has no memory, nothing has changed.
    fn map(&mut self, id: BlockId, bytes: u64) -> Result<Option<BlockId>, AllocError> {
        let block = &self.heap.blocks[id];
        let (address, lane, whole) = (block.address, block.lane, block.size);
        let granule = self.ranges[&block.segment].granule;
        let count = bytes.div_ceil(granule);
        match self.driver.map(address, granule, count) {
            Ok(()) => {}
            Err(DriverError::OutOfMemory) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let size = count * granule;
        self.heap.remove_unmapped(id);
        if size < whole {
            let rest = self.heap.cut(id, size);
            self.heap.blocks[rest].requested = 0;
            self.heap.insert_unmapped(rest);
        }
        self.heap.blocks[id].state = State::Free;
        let (id, ..) = self.heap.coalesce(id);
        self.heap.insert_free(id);
        self.heap.reserve_bytes(lane, size);
        self.heap.log(Action::SegmentMap, id, address, size);
        Ok(Some(id))
    }

    /// Every reserved address range, by address.
    pub fn address_ranges(&self) -> Vec<RangeReport> {
        let report = |range: &Range| {
            let first = *self.heap.segments.get(&range.base)?;
            let (mut mapped, mut id) = (0, first);
            while id != NONE {
                let block = &self.heap.blocks[id];
                mapped += if block.state == State::Unmapped { 0 } else { block.size };
                id = block.next;
            }
            Some(RangeReport {
                address: range.base,
                size: range.size,
                granule: range.granule,
                mapped,
                stream: self.heap.stream(first),
                pool: self.heap.pool_id(first),
            })
        };
        let mut ranges: Vec<RangeReport> = self.ranges.values().filter_map(report).collect();
        ranges.sort_by_key(|r| r.address);
        ranges
    }

    /// The whole granules inside a block of a range: first byte and end; empty if there are none.
    pub(super) fn granules(&self, id: BlockId) -> (u64, u64) {
        let block = &self.heap.blocks[id];
        let range = self.ranges[&block.segment];
        let first = range.base + (block.address - range.base).next_multiple_of(range.granule);
        let last = range.base + (block.end() - range.base) / range.granule * range.granule;
        (first, last.max(first))
    }

    /// Unmaps the granules that lie completely inside a free block, and gives the range back when nothing is mapped in
    /// it any more. Other free blocks keep their ids.
    pub(super) fn unmap_free(&mut self, id: BlockId) -> Result<(), AllocError> {
        let block = &self.heap.blocks[id];
        let (address, lane, end, number) = (block.address, block.lane, block.end(), block.segment);
        let granule = self.ranges[&number].granule;
        let (first, last) = self.granules(id);
        if first >= last {
            return Ok(());
        }
        self.driver.synchronize(self.heap.stream(id))?;
        self.driver.unmap(first, granule, (last - first) / granule)?;
        self.heap.remove_free(id);
        let mut middle = id;
        if first > address {
            middle = self.heap.cut(id, first - address);
            self.heap.blocks[id].requested = 0;
            self.heap.insert_free(id);
        }
        if last < end {
            let after = self.heap.cut(middle, last - first);
            self.heap.blocks[after].requested = 0;
            self.heap.insert_free(after);
        }
        self.heap.blocks[middle].state = State::Unmapped;
        let (middle, ..) = self.heap.coalesce(middle);
        self.heap.insert_unmapped(middle);
        self.heap.return_bytes(lane, last - first);
        self.heap.log(Action::SegmentUnmap, middle, first, last - first);
        if !self.heap.blocks[middle].is_split() {
            self.unreserve(middle)?;
        }
        Ok(())
    }

    /// Gives a range back that is one unmapped block.
    pub(super) fn unreserve(&mut self, id: BlockId) -> Result<(), AllocError> {
        let number = self.heap.blocks[id].segment;
        let range = self.ranges[&number];
        self.driver.unreserve(range.base, range.size)?;
        self.heap.remove_unmapped(id);
        self.heap.remove_segment(id);
        self.ranges.remove(&number);
        Ok(())
    }
}

impl Heap {
    /// First fit among the lane's unmapped blocks: where free and unmapped neighbours together have room enough.
    fn find_extendable(&self, request: &Request) -> Option<BlockId> {
        let free = |id: BlockId| id != NONE && matches!(self.blocks[id].state, State::Free | State::Unmapped);
        for (_, unmapped) in &self.lanes[request.lane as usize].unmapped {
            let prev = self.blocks[*unmapped].prev;
            let start = if free(prev) { prev } else { *unmapped };
            let (mut room, mut at) = (0, start);
            while room < request.size && free(at) {
                room += self.blocks[at].size;
                at = self.blocks[at].next;
            }
            if room >= request.size {
                return Some(start);
            }
        }
        None
    }
}
