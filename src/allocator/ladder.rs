//! A request, step by step (allocator-spec 2.4).

use crate::driver::{Driver, DriverError, StreamId};

use super::block::BlockId;
use super::event::Action;
use super::oom::OomKind;
use super::place::Request;
use super::size::{ONE_EXABYTE, SMALL_LIMIT, block_size, segment_size};
use super::{AllocError, Allocator, OutOfMemory};

impl<D: Driver> Allocator<D> {
    /// `size` bytes for work on `stream`: the address of the block. 0 bytes give address 0 and touch nothing.
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`] when every step failed; a driver error other than a lack of memory at once.
    pub fn malloc(&mut self, size: u64, stream: StreamId) -> Result<u64, AllocError> {
        if size == 0 {
            return Ok(0);
        }
        if size >= ONE_EXABYTE {
            return Err(AllocError::OutOfMemory(Box::new(self.oom(
                OomKind::TooLarge,
                size,
                size,
                size,
            ))));
        }
        if let Some(fraction) = self.fraction.take() {
            self.set_memory_fraction(fraction)?;
        }
        let waiting = !self.queues.is_empty() || !self.deferred.is_empty();
        if waiting && !self.capture_underway() {
            self.process_events()?;
        }
        let request = self.request(size, stream);
        let id = match self.heap.find(request.lane, &request) {
            Some(id) => id,
            None => self.grow(&request)?,
        };
        Ok(self.heap.hand_out(id, &request))
    }

    /// The request with its sizes and the lane that serves it.
    #[inline]
    pub(super) fn request(&mut self, bytes: u64, stream: StreamId) -> Request {
        let size = block_size(bytes, &self.heap.config, &self.heap.rules);
        let pool = self.redirected(stream);
        let lane = self.heap.lane(pool, size <= SMALL_LIMIT, stream);
        let segment = segment_size(size, &self.heap.config);
        let expandable = self.heap.config.expandable_segments && self.heap.rules.expandable_segments;
        Request {
            bytes,
            size,
            segment,
            lane,
            expandable,
        }
    }

    /// Whether a request would be served from the cache now, without a driver call. Pending blocks stay out of it.
    pub fn would_hit(&mut self, size: u64, stream: StreamId) -> bool {
        if size == 0 || size >= ONE_EXABYTE {
            return false;
        }
        let request = self.request(size, stream);
        self.heap.peek(request.lane, &request).is_some()
    }

    /// Steps 5 to 10: the search found nothing.
    fn grow(&mut self, request: &Request) -> Result<BlockId, AllocError> {
        if self.heap.limit.is_some() && self.heap.config.gc_threshold > 0.0 {
            self.collect_by_age()?;
        }
        if let Some(id) = self.new_segment(request, false)? {
            return Ok(id);
        }
        if let Some(id) = self.borrow_from_pools(request) {
            return Ok(id);
        }
        if self.heap.config.max_split_size.is_some()
            && self.release_oversize(request)?
            && let Some(id) = self.new_segment(request, false)?
        {
            return Ok(id);
        }
        if !self.capture_underway() {
            self.flush(None)?;
            if let Some(id) = self.new_segment(request, true)? {
                return Ok(id);
            }
        }
        Err(self.out_of_memory(request)?)
    }

    /// Step 7: pools that may serve the default pool's requests, in order of their making.
    fn borrow_from_pools(&mut self, request: &Request) -> Option<BlockId> {
        let lane = &self.heap.lanes[request.lane as usize];
        if lane.pool != 0 || !self.heap.rules.pool_options {
            return None;
        }
        let (small, stream) = (lane.small, lane.stream);
        for pool in 1..self.heap.pools.len() as u32 {
            if self.heap.pools[pool as usize]
                .as_ref()
                .is_some_and(|p| p.options.use_on_oom)
            {
                let lane = self.heap.lane(pool, small, stream);
                if let Some(id) = self.heap.find(lane, request) {
                    return Some(id);
                }
            }
        }
        None
    }

    /// Memory from the driver for this request, in no free set. `None`: the limit or the driver has no room.
    fn new_segment(&mut self, request: &Request, retry: bool) -> Result<Option<BlockId>, AllocError> {
        if retry {
            self.heap.stats.num_alloc_retries += 1;
        }
        let would_hold = self.heap.reserved.saturating_add(request.segment);
        if self.heap.limit.is_some_and(|limit| would_hold > limit) {
            return Ok(None);
        }
        if self.heap.rules.rejections && self.heap.config.throw_on_oom && would_hold > self.fraction_bytes()? {
            super::heap::bump(&mut self.heap.stats.num_oom_rejections);
            let error = self.oom(OomKind::Rejected, request.bytes, request.size, request.segment);
            return Err(AllocError::OutOfMemory(Box::new(error)));
        }
        if request.expandable {
            return self.extend(request);
        }
        let address = match self.driver.alloc(request.segment) {
            Ok(address) => address,
            Err(DriverError::OutOfMemory) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let id = self
            .heap
            .add_segment(request.lane, address, request.segment, self.next_segment, false);
        self.next_segment += 1;
        let small = self.heap.small(id);
        self.heap.reserve_bytes(request.lane, request.segment);
        self.heap.stats.segment.add(small, 1);
        if request.segment >= self.heap.config.split_limit() {
            self.heap.stats.oversize_segments.increase(1);
        }
        self.heap.log(Action::SegmentAlloc, id, address, request.segment);
        Ok(Some(id))
    }

    /// What throw_on_cudamalloc_oom compares with: the configured fraction of the device (allocator-spec 10.2, 3).
    fn fraction_bytes(&mut self) -> Result<u64, AllocError> {
        let fraction = self.heap.config.memory_fraction.unwrap_or(1.0);
        Ok((fraction * self.device_total()? as f64) as u64)
    }

    /// The device's memory, asked once.
    pub(super) fn device_total(&mut self) -> Result<u64, AllocError> {
        if let Some(total) = self.device_total {
            return Ok(total);
        }
        let total = self.driver.device_total()?;
        self.device_total = Some(total);
        Ok(total)
    }

    /// `torch.cuda.set_per_process_memory_fraction`: a ceiling on reserved bytes, looked at whenever memory would come
    /// from the driver. Frees nothing. From 2.11 on exactly 1 removes the ceiling.
    ///
    /// # Errors
    /// [`AllocError::Fraction`] outside 0 .. 1; a driver that does not tell its total.
    pub fn set_memory_fraction(&mut self, fraction: f64) -> Result<(), AllocError> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocError::Fraction(fraction));
        }
        self.fraction = None;
        self.heap.limit = if fraction >= 1.0 && self.heap.rules.fraction_one_removes {
            None
        } else {
            let total = if self.heap.rules.fraction_one_removes {
                self.device_total()?
            } else {
                self.driver.mem_info()?.total
            };
            Some((fraction * total as f64) as u64)
        };
        Ok(())
    }

    /// `torch.cuda.get_per_process_memory_fraction`: the ceiling over the device's total, which is not always the
    /// fraction that was set; 1 without a ceiling.
    pub fn memory_fraction(&mut self) -> Result<f64, AllocError> {
        match self.heap.limit {
            None => Ok(1.0),
            Some(limit) => Ok(limit as f64 / self.device_total()? as f64),
        }
    }

    /// Step 10: logs, counts and describes the failure.
    fn out_of_memory(&mut self, request: &Request) -> Result<AllocError, AllocError> {
        let info = self.driver.mem_info()?;
        let lane = &self.heap.lanes[request.lane as usize];
        let pool = self.heap.pool(lane.pool).id;
        self.heap
            .events
            .push(Action::Oom, info.free, request.size, lane.stream, pool);
        self.heap.stats.num_ooms += 1;
        let mut error = self.oom(OomKind::Exhausted, request.bytes, request.size, request.segment);
        error.device_free = Some(info.free);
        error.device_total = Some(info.total);
        Ok(AllocError::OutOfMemory(Box::new(error)))
    }

    /// The figures of a failure as the allocator knows them.
    fn oom(&self, kind: OomKind, requested: u64, size: u64, segment_size: u64) -> OutOfMemory {
        let private = self.heap.lanes.iter().filter(|l| l.pool != 0);
        OutOfMemory {
            kind,
            requested,
            size,
            segment_size,
            device: self.device,
            device_free: None,
            device_total: None,
            allowed: self.heap.limit,
            allocated: self.heap.stats.allocated_bytes.all.current as u64,
            reserved: self.heap.reserved,
            private_free: private
                .flat_map(|l| l.free.iter())
                .map(|key| self.heap.blocks[key.id].size)
                .sum(),
            expandable: self.heap.config.expandable_segments,
            processes: Vec::new(),
            release: self.heap.rules.release,
            sentence: self.heap.rules.oom_sentence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::free_set::COMPARISONS;
    use super::*;
    use crate::allocator::Settings;
    use crate::parity::stand_in::StandIn;

    /// Comparisons in the free sets for one free and one request among `blocks` live ones.
    fn comparisons(blocks: usize) -> f64 {
        let mut seed = 1u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let mut allocator = Allocator::new(StandIn::new(1 << 40), Settings::default());
        let mut live: Vec<u64> = (0..blocks)
            .map(|_| allocator.malloc(random(60_000) + 1, StreamId(random(3))).unwrap())
            .collect();
        let turns = 20_000;
        let mut turn = |allocator: &mut Allocator<StandIn>| {
            let at = random(blocks as u64) as usize;
            allocator.free(live[at]).unwrap();
            live[at] = allocator.malloc(random(60_000) + 1, StreamId(random(3))).unwrap();
        };
        (0..turns).for_each(|_| turn(&mut allocator));
        COMPARISONS.set(0);
        (0..turns).for_each(|_| turn(&mut allocator));
        COMPARISONS.get() as f64 / f64::from(turns)
    }

    #[test]
    fn comparisons_stay_within_the_logarithm() {
        for blocks in [300, 3_000, 30_000] {
            let (each, bound) = (comparisons(blocks), 6.0 * (blocks as f64).log2());
            assert!(
                each <= bound,
                "{each} comparisons among {blocks} blocks, more than {bound}"
            );
        }
    }
}
