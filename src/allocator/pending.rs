//! Blocks that other streams use: record_stream, events, frees under a capture; and the pools that requests are
//! redirected to (allocator-spec 2.5, 2.6, 10.2).

use crate::driver::{Driver, StreamId};

use super::block::BlockId;
use super::heap::bump;
use super::pool::{Filter, PoolError, PoolId, PoolOptions, Redirection};
use super::{AllocError, Allocator};

impl<D: Driver> Allocator<D> {
    /// `Tensor.record_stream`: work on `stream` uses the block, so that a free waits for that work. Its own stream is
    /// ignored; recording twice counts once.
    ///
    /// # Errors
    /// [`AllocError::UnknownAddress`] for an address that is not a live block's.
    pub fn record_stream(&mut self, address: u64, stream: StreamId) -> Result<(), AllocError> {
        let id = self.live_block(address)?;
        if stream == self.heap.stream(id) {
            return Ok(());
        }
        let capture = self.capture_underway();
        self.heap.blocks[id].used = true;
        let uses = self.heap.uses.entry(id).or_default();
        if !uses.streams.contains(&stream) {
            uses.streams.push(stream);
        }
        if capture && !uses.in_capture.contains(&stream) {
            uses.in_capture.push(stream);
        }
        Ok(())
    }

    /// A capture is under way in the sense of the release: an announced one, or (to 2.11) any redirection.
    pub(super) fn capture_underway(&self) -> bool {
        if self.heap.rules.capture_is_announced {
            self.captures > 0
        } else {
            !self.redirections.is_empty()
        }
    }

    /// Records an event on every other stream that uses the block; without any it is finished at once. Events complete
    /// in the order of their streams' first use here: PyTorch walks a hash table of streams, an order that cannot be
    /// had again and shows only in the history of inactive_split (allocator-spec 2.6).
    ///
    /// A driver that fails leaves the block waiting; the next request tries again.
    pub(super) fn insert_events(&mut self, id: BlockId) -> Result<(), AllocError> {
        let mut uses = self.heap.uses.remove(&id).unwrap_or_default();
        self.heap.blocks[id].used = false;
        for at in 0..uses.streams.len() {
            let stream = uses.streams[at];
            let event = match self.driver.record_event(stream) {
                Ok(event) => event,
                Err(error) => {
                    uses.streams.drain(..at);
                    uses.in_capture.clear();
                    self.heap.uses.insert(id, uses);
                    self.heap.blocks[id].used = true;
                    self.deferred.push(id);
                    return Err(error.into());
                }
            };
            self.heap.blocks[id].events += 1;
            match self.queues.iter_mut().find(|(s, _)| *s == stream) {
                Some((_, queue)) => queue.push_back((event, id)),
                None => self.queues.push((stream, [(event, id)].into())),
            }
        }
        if self.heap.blocks[id].events == 0 {
            self.heap.finish(id);
        }
        Ok(())
    }

    /// Gives the frees that a capture held back their events. Uses that were recorded only during the capture no longer
    /// count.
    fn insert_deferred(&mut self) -> Result<(), AllocError> {
        for _ in 0..self.deferred.len() {
            let id = self.deferred.remove(0);
            if let Some(uses) = self.heap.uses.get_mut(&id) {
                let captured = std::mem::take(&mut uses.in_capture);
                uses.streams.retain(|s| !captured.contains(s));
            }
            self.insert_events(id)?;
        }
        Ok(())
    }

    /// Finishes every block whose events have completed. A request does this by itself, first of all.
    pub fn process_events(&mut self) -> Result<(), AllocError> {
        if !self.deferred.is_empty() {
            self.insert_deferred()?;
        }
        for at in 0..self.queues.len() {
            while let Some(&(event, id)) = self.queues[at].1.front() {
                if !self.driver.event_done(event)? {
                    break;
                }
                self.queues[at].1.pop_front();
                self.event_passed(id);
            }
        }
        self.queues.retain(|(_, queue)| !queue.is_empty());
        Ok(())
    }

    /// Waits for every event and finishes every block.
    pub(super) fn synchronize_events(&mut self) -> Result<(), AllocError> {
        bump(&mut self.heap.stats.num_sync_all_streams);
        self.insert_deferred()?;
        while let Some((_, queue)) = self.queues.first() {
            let Some(&(event, id)) = queue.front() else {
                self.queues.remove(0);
                continue;
            };
            self.driver.wait_event(event)?;
            self.queues[0].1.pop_front();
            self.event_passed(id);
        }
        Ok(())
    }

    /// Looks at the events of these streams first, in this order, from now on. PyTorch's own order is that of a hash
    /// table that cannot be rebuilt from handles; a replay takes it from the recording.
    pub fn order_streams(&mut self, first: &[StreamId]) {
        let place = |stream: &StreamId| first.iter().position(|s| s == stream).unwrap_or(first.len());
        self.queues.sort_by_key(|(stream, _)| place(stream));
    }

    fn event_passed(&mut self, id: BlockId) {
        self.heap.blocks[id].events -= 1;
        if self.heap.blocks[id].events == 0 {
            self.heap.finish(id);
        }
    }

    /// Makes a private pool with one user, its maker (`torch.cuda.MemPool`). An existing one gets one more user.
    pub fn create_pool(&mut self, id: PoolId, options: PoolOptions) -> Result<(), AllocError> {
        self.use_pool(id)?;
        if let Some(index) = self.heap.pool_index(id) {
            self.heap.pool_mut(index).options = options;
        }
        Ok(())
    }

    fn use_pool(&mut self, id: PoolId) -> Result<u32, AllocError> {
        if id == PoolId::DEFAULT {
            return Err(PoolError::Default.into());
        }
        let index = match self.heap.pool_index(id) {
            Some(index) if self.heap.pool(index).users == 0 => return Err(PoolError::Unknown(id).into()),
            Some(index) => index,
            None => self.heap.add_pool(id, PoolOptions::default()),
        };
        self.heap.pool_mut(index).users += 1;
        Ok(index)
    }

    /// Redirects all requests to a private pool, made if need be, until [`Allocator::end_pool`]. Counts as one more user.
    pub fn begin_pool(&mut self, id: PoolId) -> Result<(), AllocError> {
        self.begin_pool_for(id, Filter::All)
    }

    /// As `begin_pool`, for the requests that `filter` accepts.
    pub fn begin_pool_for(&mut self, id: PoolId, filter: Filter) -> Result<(), AllocError> {
        let pool = self.use_pool(id)?;
        self.redirections.push(Redirection { id, pool, filter });
        Ok(())
    }

    /// Ends the newest redirection to a pool. Its memory stays, and so does the user that `begin_pool` counted.
    pub fn end_pool(&mut self, id: PoolId) -> Result<(), AllocError> {
        let at = self
            .redirections
            .iter()
            .rposition(|r| r.id == id)
            .ok_or(PoolError::NotBegun(id))?;
        self.redirections.remove(at);
        Ok(())
    }

    /// One user less; without users the pool's cached memory may be flushed, and the pool goes when it holds none.
    pub fn release_pool(&mut self, id: PoolId) -> Result<(), AllocError> {
        let index = self
            .heap
            .pool_index(id)
            .filter(|_| id != PoolId::DEFAULT)
            .ok_or(PoolError::Unknown(id))?;
        let pool = self.heap.pool_mut(index);
        pool.users = pool.users.checked_sub(1).ok_or(PoolError::Unknown(id))?;
        Ok(())
    }

    /// A stream capture begins: frees of blocks that other streams use are held back, and nothing is flushed (2.13 and
    /// later; before, a redirection has that effect).
    pub fn begin_capture(&mut self) {
        self.captures += 1;
    }

    /// A stream capture ends.
    pub fn end_capture(&mut self) {
        self.captures = self.captures.saturating_sub(1);
    }

    /// The pool that a request on `stream` is served from.
    #[inline]
    pub(super) fn redirected(&self, stream: StreamId) -> u32 {
        let accepts = |r: &&Redirection| match r.filter {
            Filter::All => true,
            Filter::Stream(s) => s == stream,
        };
        self.redirections.iter().rev().find(accepts).map_or(0, |r| r.pool)
    }
}
