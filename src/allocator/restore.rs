//! An allocator in a given state: for recordings that begin in the middle, and for what-if questions about a snapshot.

use crate::driver::Driver;

use super::block::{NONE, State};
use super::check::Violation;
use super::report::{BlockState, Report, SegmentReport};
use super::{Allocator, PoolOptions, Settings};

impl<D: Driver> Allocator<D> {
    /// An allocator that holds the segments of `report`, counted as if it had just been made: sums are 0, peaks are the
    /// current values. Pending blocks become live. The driver must own the memory already.
    ///
    /// # Errors
    /// Segments that overlap, whose blocks do not tile them, or that are expandable (a report does not tell which runs
    /// lie in one address range).
    pub fn restore(driver: D, settings: Settings, report: &Report) -> Result<Self, Violation> {
        let mut allocator = Allocator::new(driver, settings);
        let mut end = 0;
        for segment in &report.segments {
            let wrong = |what: &str| Violation(format!("segment {:#x}: {what}", segment.address));
            if segment.expandable {
                return Err(wrong("expandable segments cannot be restored from a report"));
            }
            let size: Option<u64> = segment.blocks.iter().try_fold(0u64, |sum, b| sum.checked_add(b.size));
            if segment.address < end || size != Some(segment.size) || segment.blocks.iter().any(|b| b.size == 0) {
                return Err(wrong("its blocks do not tile it"));
            }
            end = segment
                .address
                .checked_add(segment.size)
                .ok_or_else(|| wrong("beyond the last address"))?;
            allocator.restore_segment(segment);
        }
        allocator.reset_peak();
        allocator.reset_accumulated();
        allocator.check()?;
        Ok(allocator)
    }

    fn restore_segment(&mut self, segment: &SegmentReport) {
        let heap = &mut self.heap;
        let pool = heap.pool_index(segment.pool).unwrap_or_else(|| {
            let index = heap.add_pool(segment.pool, PoolOptions::default());
            // Whoever made it is not in the report; without a user it would be flushed.
            heap.pool_mut(index).users = 1;
            index
        });
        let lane = heap.lane(pool, segment.small, segment.stream);
        let mut id = heap.add_segment(lane, segment.address, segment.size, self.next_segment, false);
        self.next_segment += 1;
        heap.reserve_bytes(lane, segment.size);
        heap.stats.segment.add(segment.small, 1);
        if segment.size >= heap.config.split_limit() {
            heap.stats.oversize_segments.increase(1);
        }
        for block in &segment.blocks {
            let rest = (block.size < heap.blocks[id].size).then(|| heap.cut(id, block.size));
            heap.blocks[id].requested = block.requested;
            if block.state == BlockState::Free {
                heap.insert_free(id);
                if heap.blocks[id].is_split() {
                    heap.stats.inactive_split.add(segment.small, 1);
                    heap.stats.inactive_split_bytes.add(segment.small, block.size);
                }
            } else {
                heap.blocks[id].requested = block.requested.min(block.size);
                heap.blocks[id].state = State::Live;
                heap.live.insert(heap.blocks[id].address, id);
                heap.stats.allocation.add(segment.small, 1);
                heap.stats.allocated_bytes.add(segment.small, block.size);
                heap.stats.active.add(segment.small, 1);
                heap.stats.active_bytes.add(segment.small, block.size);
                heap.stats
                    .requested_bytes
                    .add(segment.small, block.requested.min(block.size));
                if block.size >= heap.config.split_limit() {
                    heap.stats.oversize_allocations.increase(1);
                }
            }
            id = rest.unwrap_or(NONE);
        }
    }
}
