//! Giving memory back to the driver: flush, collection by age, release of oversize blocks (allocator-spec 2.7, 2.9, 2.10).

use crate::driver::Driver;

use super::block::{BlockId, State};
use super::event::Action;
use super::free_set::FreeKey;
use super::heap::bump;
use super::place::Request;
use super::pool::{PoolError, PoolId};
use super::{AllocError, Allocator};

impl<D: Driver> Allocator<D> {
    /// `torch.cuda.empty_cache`: waits for pending blocks, then gives every wholly free segment of the default pool and
    /// of pools without users back to the driver.
    pub fn empty_cache(&mut self) -> Result<(), AllocError> {
        self.flush(None)
    }

    /// Gives the wholly free segments of one private pool back, if nobody uses the pool any more.
    pub fn empty_pool(&mut self, id: PoolId) -> Result<(), AllocError> {
        self.heap.pool_index(id).ok_or(PoolError::Unknown(id))?;
        self.flush(Some(id))
    }

    /// Bytes that `empty_cache` would give back now, without those that pending blocks would add.
    pub fn flushable(&self) -> u64 {
        let pools = self.heap.pools.iter().enumerate();
        let pools = pools.filter(|(index, pool)| match pool {
            Some(pool) if *index > 0 => pool.users == 0,
            Some(_) => !self.capture_underway(),
            None => false,
        });
        let lanes = pools
            .flat_map(|(_, pool)| pool.iter())
            .flat_map(|p| &p.halves)
            .flat_map(|h| &h.lanes);
        let keys = lanes.flat_map(|(_, lane)| self.heap.lanes[*lane as usize].free.iter());
        keys.map(|key| {
            let block = &self.heap.blocks[key.id];
            if block.expandable {
                let (first, end) = self.granules(key.id);
                end - first
            } else if block.is_split() {
                0
            } else {
                block.size
            }
        })
        .sum()
    }

    /// Gives one wholly free segment back, whatever its pool. False if there is none at `address`. For replays that know
    /// which segments went but not why.
    pub fn release_segment(&mut self, address: u64) -> Result<bool, AllocError> {
        let Some(id) = self.heap.segments.get(&address).copied() else {
            return Ok(false);
        };
        let block = &self.heap.blocks[id];
        if block.state != State::Free || block.expandable || block.is_split() {
            return Ok(false);
        }
        self.release(id)?;
        Ok(true)
    }

    pub(super) fn flush(&mut self, only: Option<PoolId>) -> Result<(), AllocError> {
        if only.is_none() {
            if !self.capture_underway() {
                self.synchronize_events()?;
                self.release_half(0, false)?;
                self.release_half(0, true)?;
            } else if self.heap.rules.flush_in_pool_asserts {
                bump(&mut self.heap.stats.num_sync_all_streams);
                return Err(self.assert("empty_cache while requests are redirected to a pool"));
            }
        }
        for index in 1..self.heap.pools.len() as u32 {
            let freeable = self.heap.pools[index as usize]
                .as_ref()
                .is_some_and(|p| p.users == 0 && only.is_none_or(|id| id == p.id));
            if freeable {
                self.release_half(index, true)?;
                self.release_half(index, false)?;
                self.drop_if_empty(index)?;
            }
        }
        Ok(())
    }

    /// Forgets a pool that nobody uses and that holds no memory, with the address ranges that it reserved in vain.
    fn drop_if_empty(&mut self, index: u32) -> Result<(), AllocError> {
        let pool = self.heap.pool(index);
        if pool.reserved > 0 || pool.users > 0 || self.redirections.iter().any(|r| r.pool == index) {
            return Ok(());
        }
        for small in [true, false] {
            for lane in self.heap.lanes_of(index, small) {
                while let Some((_, id)) = self.heap.lanes[lane as usize].unmapped.first().copied() {
                    self.unreserve(id)?;
                }
            }
        }
        self.heap.drop_pool(index);
        Ok(())
    }

    fn assert(&self, what: &'static str) -> AllocError {
        AllocError::Assert {
            release: self.heap.rules.release,
            what,
        }
    }

    /// Releases every unsplit free block of one half in set order, then unmaps what its expandable blocks can spare.
    fn release_half(&mut self, pool: u32, small: bool) -> Result<(), AllocError> {
        let mut expandable = Vec::new();
        let mut whole = Vec::new();
        for lane in self.heap.lanes_of(pool, small) {
            for key in self.heap.lanes[lane as usize].free.iter() {
                let block = &self.heap.blocks[key.id];
                if block.expandable {
                    expandable.push(key.id);
                } else if !block.is_split() {
                    whole.push(key.id);
                }
            }
        }
        for id in whole {
            self.release(id)?;
        }
        for id in expandable {
            self.unmap_free(id)?;
        }
        Ok(())
    }

    /// Gives one wholly free segment back to the driver. Counts only after the driver has taken it.
    fn release(&mut self, id: BlockId) -> Result<(), AllocError> {
        let block = &self.heap.blocks[id];
        let (address, size, lane, small) = (block.address, block.size, block.lane, self.heap.small(id));
        self.driver.free(address)?;
        self.heap.remove_free(id);
        self.heap.return_bytes(lane, size);
        self.heap.stats.segment.take(small, 1);
        if size >= self.heap.config.split_limit() {
            self.heap.stats.oversize_segments.decrease(1);
        }
        self.heap.log(Action::SegmentFree, id, address, size);
        self.heap.remove_segment(id);
        Ok(())
    }

    /// Collection by age: releases unsplit blocks of the default large pool that are at least as old as the average,
    /// round by round, until the reserved bytes are down to the threshold.
    pub(super) fn collect_by_age(&mut self) -> Result<(), AllocError> {
        let Some(limit) = self.heap.limit else { return Ok(()) };
        let threshold = (self.heap.config.gc_threshold * limit as f64) as u64;
        let Some(target) = self.heap.reserved.checked_sub(threshold).filter(|n| *n > 0) else {
            return Ok(());
        };
        let calls = self.heap.pool(0).halves[0].calls;
        let mut candidates: Vec<(BlockId, u64)> = Vec::new();
        for lane in self.heap.lanes_of(0, false) {
            let free = self.heap.lanes[lane as usize].free.iter();
            let unsplit = free.filter(|key| !self.heap.blocks[key.id].is_split());
            candidates.extend(unsplit.map(|key| (key.id, calls - self.heap.blocks[key.id].gc_base)));
        }
        let mut sum: u64 = candidates.iter().map(|(_, age)| age).sum();
        let (mut count, mut reclaimed, mut freed) = (candidates.len() as u64, 0, true);
        while reclaimed < target && freed && count > 0 {
            let average = sum as f64 / count as f64;
            freed = false;
            let round = std::mem::take(&mut candidates);
            for (id, age) in round {
                if self.heap.blocks[id].expandable
                    && self.heap.rules.expandable_release_asserts
                    && age as f64 >= average
                {
                    return Err(self.assert("garbage collection meets an expandable block"));
                }
                if self.heap.blocks[id].expandable || (age as f64) < average {
                    candidates.push((id, age));
                    continue;
                }
                reclaimed += self.heap.blocks[id].size;
                self.release(id)?;
                freed = true;
                sum -= age;
                count -= 1;
            }
        }
        Ok(())
    }

    /// Step 8 of the ladder: releases oversize blocks of the request's lane until one as large as the request could
    /// be made. True if enough was released; what was released stays so in either case.
    pub(super) fn release_oversize(&mut self, request: &Request) -> Result<bool, AllocError> {
        let limit = self.heap.config.split_limit();
        let wanted = request.size.max(limit);
        let free = &self.heap.lanes[request.lane as usize].free;
        if let Some(key) = free
            .lower_bound(&FreeKey::at_least(self.heap.ties, wanted))
            .map(|place| free.get(place))
        {
            // A block that is split here was cut before the limit was lowered at run time: it cannot be given back.
            let block = &self.heap.blocks[key.id];
            if !block.expandable && !block.is_split() {
                self.release(key.id)?;
                return Ok(true);
            }
            if block.expandable && self.heap.rules.expandable_release_asserts {
                return Err(self.assert("the release of oversize blocks meets an expandable block"));
            }
        }
        let below: Vec<BlockId> = free
            .below(&FreeKey::at_least(self.heap.ties, wanted))
            .take_while(|key| self.heap.blocks[key.id].size >= limit)
            .map(|key| key.id)
            .collect();
        let mut released = 0;
        for id in below {
            if released >= wanted {
                break;
            }
            if self.heap.blocks[id].expandable || self.heap.blocks[id].is_split() {
                continue;
            }
            released += self.heap.blocks[id].size;
            self.release(id)?;
        }
        Ok(released >= wanted)
    }
}
