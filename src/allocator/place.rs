//! Placing a request: search, split and hand-out (allocator-spec 2.2 and 2.3), and the way back (2.6).

use super::block::{BlockId, NONE, State};
use super::event::Action;
use super::free_set::{FreeKey, Place};
use super::heap::Heap;
use super::pool::half;
use super::size::{MIN_BLOCK, SMALL_LIMIT};

/// A request on its way down the ladder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Bytes as asked for.
    pub bytes: u64,
    /// Bytes of the block.
    pub size: u64,
    /// Bytes of the segment that would be got for it.
    pub segment: u64,
    /// The lane it is served from.
    pub lane: u32,
    /// New memory for it comes from an expandable segment.
    pub expandable: bool,
}

impl Heap {
    /// The search of `find`, without counting: the place of the block that would be taken.
    #[inline]
    pub fn peek(&self, lane: u32, request: &Request) -> Option<Place> {
        let free = &self.lanes[lane as usize].free;
        let mut place = free.lower_bound(&FreeKey::at_least(self.ties, request.size))?;
        if self.blocks[free.get(place).id].expandable {
            place = self.peek_expandable(lane, place, request)?;
        }
        let size = self.blocks[free.get(place).id].size;
        let limit = self.config.split_limit();
        let fits = if request.size < limit {
            size < limit
        } else {
            size < request.size.saturating_add(self.config.non_split_rounding())
        };
        (fits && size >= request.size).then_some(place)
    }

    /// An expandable block counts as large as it could grow: the walk goes on while the next one could grow less. With
    /// expandable segments switched off meanwhile it goes on to the first block of another kind.
    fn peek_expandable(&self, lane: u32, mut place: Place, request: &Request) -> Option<Place> {
        let free = &self.lanes[lane as usize].free;
        let expandable = |place: Place| self.blocks[free.get(place).id].expandable;
        if !request.expandable {
            while expandable(place) {
                place = free.next(place)?;
            }
            return Some(place);
        }
        while expandable(place) {
            match free.next(place) {
                Some(next) if self.room(free.get(next).id) < self.room(free.get(place).id) => place = next,
                _ => break,
            }
        }
        Some(place)
    }

    /// Takes the best block out of the lane's free set, if there is one.
    #[inline]
    pub fn find(&mut self, lane: u32, request: &Request) -> Option<BlockId> {
        if self.limit.is_some() && self.config.gc_threshold > 0.0 {
            let (pool, small) = (self.lanes[lane as usize].pool, self.lanes[lane as usize].small);
            self.pool_mut(pool).halves[half(small)].calls += 1;
        }
        let place = self.peek(lane, request)?;
        let free = &mut self.lanes[lane as usize].free;
        let id = free.get(place).id;
        free.remove_at(place);
        Some(id)
    }

    /// Bytes that an expandable block could grow to without moving.
    fn room(&self, id: BlockId) -> u64 {
        let block = &self.blocks[id];
        let next = if block.next == NONE {
            None
        } else {
            Some(&self.blocks[block.next])
        };
        block.size + next.filter(|n| n.state == State::Unmapped).map_or(0, |n| n.size)
    }

    fn splits(&self, id: BlockId, request: &Request) -> bool {
        let block = &self.blocks[id];
        let lane = &self.lanes[block.lane as usize];
        let rest = block.size - request.size;
        if self.pool(lane.pool).options.no_split && self.rules.pool_options {
            false
        } else if lane.small || request.expandable {
            rest >= MIN_BLOCK
        } else {
            request.size < self.config.split_limit() && rest > SMALL_LIMIT
        }
    }

    /// Hands out a block that is in no set: splits it, counts it, logs it. Returns its address.
    #[inline]
    pub fn hand_out(&mut self, id: BlockId, request: &Request) -> u64 {
        let small = self.small(id);
        let was_split = self.blocks[id].is_split();
        let counted = !self.blocks[id].expandable;
        if self.splits(id, request) {
            let upper = self.cut(id, request.size);
            self.insert_free(upper);
            if counted && was_split {
                self.stats.inactive_split_bytes.take(small, request.size);
            } else if counted {
                let rest = self.blocks[upper].size;
                self.stats.inactive_split_bytes.add(small, rest);
                self.stats.inactive_split.add(small, 1);
            }
        } else if was_split && counted {
            let size = self.blocks[id].size;
            self.stats.inactive_split_bytes.take(small, size);
            self.stats.inactive_split.take(small, 1);
        }
        let block = &mut self.blocks[id];
        block.state = State::Live;
        block.requested = request.bytes;
        let (address, size) = (block.address, block.size);
        self.live.insert(address, id);
        self.stats.allocation.add(small, 1);
        self.stats.allocated_bytes.add(small, size);
        self.stats.active.add(small, 1);
        self.stats.active_bytes.add(small, size);
        self.stats.requested_bytes.add(small, request.bytes);
        if size >= self.config.split_limit() {
            self.stats.oversize_allocations.increase(1);
        }
        self.log(Action::Alloc, id, address, request.bytes);
        address
    }

    /// The caller gives a block back: it is no longer live, but stays active until `finish`.
    #[inline]
    pub fn give_back(&mut self, id: BlockId) {
        let small = self.small(id);
        let block = &mut self.blocks[id];
        block.state = State::Pending;
        let (address, size, requested) = (block.address, block.size, block.requested);
        self.stats.allocation.take(small, 1);
        self.stats.allocated_bytes.take(small, size);
        self.log(Action::FreeRequested, id, address, requested);
        if size >= self.config.split_limit() {
            self.stats.oversize_allocations.decrease(1);
        }
    }

    /// Nothing uses the block any more: merge it, put it into its free set, count it out.
    #[inline]
    pub fn finish(&mut self, id: BlockId) {
        let small = self.small(id);
        let block = &self.blocks[id];
        let (address, size, requested, counted) = (block.address, block.size, block.requested, !block.expandable);
        self.log(Action::FreeCompleted, id, address, requested);
        self.live.remove(&address);
        let (id, merged, bytes) = self.coalesce(id);
        self.insert_free(id);
        if counted {
            let (mut blocks, mut net) = (-merged, -(bytes as i64));
            if self.blocks[id].is_split() {
                blocks += 1;
                net += self.blocks[id].size as i64;
            }
            self.stats.inactive_split.change(small, blocks);
            self.stats.inactive_split_bytes.change(small, net);
        }
        self.stats.active.take(small, 1);
        self.stats.active_bytes.take(small, size);
        self.stats.requested_bytes.take(small, requested);
    }
}
