//! The heap: blocks, lanes, pools and counters, without the driver. Searching, handing out, merging (allocator-spec 2.2,
//! 2.3, 2.6, 2.11) need no driver call and live here; what calls the driver lives in `Allocator`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::block::{Block, BlockId, NONE, Slab, State};
use super::config::Config;
use super::event::{Action, Ring};
use super::free_set::{FreeKey, FreeSet, Ties};
use super::lane::Lane;
use super::live::LiveMap;
use super::pool::{Half, Pool, PoolId, PoolOptions, half};
use super::rules::Rules;
use super::stats::{DeviceStats, StatArray};
use crate::driver::StreamId;

/// Streams other than its own that use a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses {
    pub streams: Vec<StreamId>,
    /// Those of them that were recorded during a capture.
    pub in_capture: Vec<StreamId>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    pub rules: Rules,
    pub config: Config,
    pub stats: DeviceStats,
    /// The order of equal free blocks, as the rules say.
    pub ties: Ties,
    pub blocks: Slab,
    pub lanes: Vec<Lane>,
    vacant_lanes: Vec<u32>,
    /// Index 0 is the default pool.
    pub pools: Vec<Option<Pool>>,
    pub live: LiveMap,
    pub uses: HashMap<BlockId, Uses>,
    /// The first block of every segment and address range.
    pub segments: BTreeMap<u64, BlockId>,
    /// All bytes held from the driver.
    pub reserved: u64,
    /// The ceiling on `reserved`.
    pub limit: Option<u64>,
    pub events: Ring,
}

/// Entries that the event ring holds unless told otherwise.
const EVENTS: usize = 1 << 16;

impl Heap {
    pub fn new(rules: Rules, config: Config) -> Heap {
        let counter = |present: bool| present.then_some(0);
        let stats = DeviceStats {
            num_sync_all_streams: counter(rules.driver_counters),
            num_device_alloc: counter(rules.driver_counters),
            num_device_free: counter(rules.driver_counters),
            num_oom_rejections: counter(rules.rejections),
            max_split_size: config.max_split_size.map_or(-1, |n| n as i64),
            ..DeviceStats::default()
        };
        let ties = if rules.ties_by_segment {
            Ties::Segment
        } else {
            Ties::Address
        };
        let mut heap = Heap {
            rules,
            config,
            stats,
            ties,
            blocks: Slab::default(),
            lanes: Vec::new(),
            vacant_lanes: Vec::new(),
            pools: Vec::new(),
            live: LiveMap::default(),
            uses: HashMap::new(),
            segments: BTreeMap::new(),
            reserved: 0,
            limit: None,
            events: Ring::new(EVENTS),
        };
        heap.add_pool(PoolId::DEFAULT, PoolOptions::default());
        heap
    }

    /// The pool at `index`; a pool that is named by a lane or a redirection exists.
    pub fn pool(&self, index: u32) -> &Pool {
        self.pools[index as usize]
            .as_ref()
            .expect("the pool exists while lanes name it")
    }

    pub fn pool_mut(&mut self, index: u32) -> &mut Pool {
        self.pools[index as usize]
            .as_mut()
            .expect("the pool exists while lanes name it")
    }

    pub fn pool_index(&self, id: PoolId) -> Option<u32> {
        self.pools
            .iter()
            .position(|p| p.as_ref().is_some_and(|p| p.id == id))
            .map(|i| i as u32)
    }

    /// Adds an empty pool without users.
    pub fn add_pool(&mut self, id: PoolId, options: PoolOptions) -> u32 {
        let pool = Pool {
            id,
            options,
            halves: [Half::default(), Half::default()],
            users: 0,
            reserved: 0,
        };
        self.pools.push(Some(pool));
        (self.pools.len() - 1) as u32
    }

    /// Forgets a pool that holds no memory, and the pools behind it that are gone already.
    pub fn drop_pool(&mut self, index: u32) {
        if let Some(pool) = self.pools[index as usize].take() {
            for half in pool.halves {
                self.vacant_lanes.extend(half.lanes.iter().map(|(_, lane)| lane));
            }
        }
        while self.pools.last().is_some_and(Option::is_none) {
            self.pools.pop();
        }
    }

    /// The lane of a stream in one half of a pool, made when it is first needed.
    #[inline]
    pub fn lane(&mut self, pool: u32, small: bool, stream: StreamId) -> u32 {
        let lanes = &self.pool(pool).halves[half(small)].lanes;
        match lanes.binary_search_by_key(&stream, |(s, _)| *s) {
            Ok(at) => lanes[at].1,
            Err(at) => self.add_lane(pool, small, stream, at),
        }
    }

    fn add_lane(&mut self, pool: u32, small: bool, stream: StreamId, at: usize) -> u32 {
        let lane = Lane {
            pool,
            small,
            stream,
            free: FreeSet::default(),
            unmapped: BTreeSet::new(),
        };
        let id = if let Some(id) = self.vacant_lanes.pop() {
            self.lanes[id as usize] = lane;
            id
        } else {
            self.lanes.push(lane);
            (self.lanes.len() - 1) as u32
        };
        self.pool_mut(pool).halves[half(small)].lanes.insert(at, (stream, id));
        id
    }

    /// The lanes of one half in order of their streams.
    pub fn lanes_of(&self, pool: u32, small: bool) -> Vec<u32> {
        self.pool(pool).halves[half(small)]
            .lanes
            .iter()
            .map(|(_, lane)| *lane)
            .collect()
    }

    /// Its place in its lane's free set.
    #[inline]
    pub fn key(&self, id: BlockId) -> FreeKey {
        let block = &self.blocks[id];
        // Expandable blocks behave as if they had one number in common (allocator-spec 10.2, 2).
        let segment = if block.expandable { 0 } else { block.segment };
        FreeKey::new(self.ties, block.size, segment, block.address, id)
    }

    /// Puts a mapped block into its lane's free set.
    #[inline]
    pub fn insert_free(&mut self, id: BlockId) {
        let (lane, key) = (self.blocks[id].lane as usize, self.key(id));
        let lane = &mut self.lanes[lane];
        let pool = self.pools[lane.pool as usize]
            .as_ref()
            .expect("the pool exists while lanes name it");
        let block = &mut self.blocks[id];
        block.gc_base = pool.halves[half(lane.small)].calls;
        block.state = State::Free;
        lane.free.insert(key);
    }

    /// Takes a free block out of its lane's free set. Its state is the caller's to set.
    #[inline]
    pub fn remove_free(&mut self, id: BlockId) {
        let key = self.key(id);
        let removed = self.lanes[self.blocks[id].lane as usize].free.remove(&key);
        debug_assert!(removed, "a free block is in its lane");
    }

    /// Puts an unmapped block into its lane.
    pub fn insert_unmapped(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = State::Unmapped;
        self.lanes[block.lane as usize].unmapped.insert((block.address, id));
    }

    pub fn remove_unmapped(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.lanes[block.lane as usize].unmapped.remove(&(block.address, id));
    }

    /// A fresh segment or address range of one block. It is in no set yet.
    pub fn add_segment(&mut self, lane: u32, address: u64, size: u64, segment: u32, expandable: bool) -> BlockId {
        let id = self.blocks.insert(Block {
            address,
            size,
            requested: 0,
            gc_base: 0,
            prev: NONE,
            next: NONE,
            lane,
            segment,
            events: 0,
            state: State::Free,
            expandable,
            used: false,
        });
        self.segments.insert(address, id);
        id
    }

    /// Cuts a block in two: it keeps its first `size` bytes, the new block behind it gets the rest. Neither set is touched.
    #[inline]
    pub fn cut(&mut self, id: BlockId, size: u64) -> BlockId {
        let mut upper = self.blocks[id].clone();
        upper.address += size;
        upper.size -= size;
        upper.prev = id;
        upper.events = 0;
        upper.used = false;
        let next = upper.next;
        let upper = self.blocks.insert(upper);
        if next != NONE {
            self.blocks[next].prev = upper;
        }
        let lower = &mut self.blocks[id];
        lower.size = size;
        lower.next = upper;
        upper
    }

    /// Merges `id` with its neighbours, the lower first (allocator-spec 2.11). Returns the block that is left, how many
    /// neighbours it took in and their bytes. The block itself must be in no set.
    #[inline]
    pub fn coalesce(&mut self, id: BlockId) -> (BlockId, i64, u64) {
        let (mut merged, mut bytes, mut left) = (0, 0, id);
        let prev = self.blocks[id].prev;
        if self.mergeable(id, prev) {
            bytes += self.blocks[prev].size;
            merged += 1;
            left = prev;
            self.absorb(prev, id, prev);
        }
        let next = self.blocks[left].next;
        if self.mergeable(left, next) {
            bytes += self.blocks[next].size;
            merged += 1;
            self.absorb(left, next, next);
        }
        (left, merged, bytes)
    }

    #[inline]
    fn mergeable(&self, id: BlockId, neighbour: BlockId) -> bool {
        if neighbour == NONE {
            return false;
        }
        let unmapped = self.blocks[id].state == State::Unmapped;
        match self.blocks[neighbour].state {
            State::Free => !unmapped,
            State::Unmapped => unmapped,
            State::Live | State::Pending | State::Vacant => false,
        }
    }

    /// Joins `lower` with `upper` behind it under the id of `lower`; `gone` is the one of them that sits in a set and
    /// whose requested size is lost.
    fn absorb(&mut self, lower: BlockId, upper: BlockId, gone: BlockId) {
        if self.blocks[gone].state == State::Unmapped {
            self.remove_unmapped(gone);
        } else {
            self.remove_free(gone);
        }
        let (size, next, requested, state) = {
            let upper = &self.blocks[upper];
            (upper.size, upper.next, upper.requested, upper.state)
        };
        let block = &mut self.blocks[lower];
        block.size += size;
        block.next = next;
        if gone == lower {
            block.requested = requested;
            block.state = state;
        }
        if next != NONE {
            self.blocks[next].prev = lower;
        }
        self.blocks.remove(upper);
    }

    /// Forgets a whole segment or address range that is one block in no set.
    pub fn remove_segment(&mut self, id: BlockId) {
        self.segments.remove(&self.blocks[id].address);
        self.blocks.remove(id);
    }

    /// The counters of one block's pool half and of both halves.
    #[inline]
    pub fn small(&self, id: BlockId) -> bool {
        self.lanes[self.blocks[id].lane as usize].small
    }

    pub fn pool_id(&self, id: BlockId) -> PoolId {
        self.pool(self.lanes[self.blocks[id].lane as usize].pool).id
    }

    pub fn stream(&self, id: BlockId) -> StreamId {
        self.lanes[self.blocks[id].lane as usize].stream
    }

    /// Logs an event of one block.
    #[inline]
    pub fn log(&mut self, action: Action, id: BlockId, address: u64, size: u64) {
        let lane = &self.lanes[self.blocks[id].lane as usize];
        let pool = self.pools[lane.pool as usize]
            .as_ref()
            .map_or(PoolId::DEFAULT, |p| p.id);
        self.events.push(action, address, size, lane.stream, pool);
    }

    /// Bytes came from the driver for the pool of a lane (cudaMalloc or map).
    pub fn reserve_bytes(&mut self, lane: u32, bytes: u64) {
        let (pool, small) = (self.lanes[lane as usize].pool, self.lanes[lane as usize].small);
        self.reserved += bytes;
        self.stats.reserved_bytes.add(small, bytes);
        bump(&mut self.stats.num_device_alloc);
        let owner = self.pool_mut(pool);
        owner.reserved += bytes;
        let id = owner.id;
        if self.rules.rejections && pool != 0 {
            self.stats
                .reserved_bytes_by_private_pools
                .entry((id.0, id.1))
                .or_default()
                .add(small, bytes);
        }
    }

    /// Bytes went back to the driver.
    pub fn return_bytes(&mut self, lane: u32, bytes: u64) {
        let (pool, small) = (self.lanes[lane as usize].pool, self.lanes[lane as usize].small);
        self.reserved -= bytes;
        self.stats.reserved_bytes.take(small, bytes);
        bump(&mut self.stats.num_device_free);
        let owner = self.pool_mut(pool);
        owner.reserved -= bytes;
        let id = owner.id;
        if self.rules.rejections && pool != 0 {
            self.stats
                .reserved_bytes_by_private_pools
                .entry((id.0, id.1))
                .or_default()
                .take(small, bytes);
        }
    }
}

/// Adds 1 to a counter that the release has.
pub(super) fn bump(counter: &mut Option<i64>) {
    if let Some(n) = counter {
        *n += 1;
    }
}

impl StatArray {
    /// Adds to both halves together and to one of them.
    #[inline]
    pub(super) fn add(&mut self, small: bool, amount: u64) {
        self.all.increase(amount as i64);
        self.half(small).increase(amount as i64);
    }

    /// Takes from both halves together and from one of them.
    #[inline]
    pub(super) fn take(&mut self, small: bool, amount: u64) {
        self.all.decrease(amount as i64);
        self.half(small).decrease(amount as i64);
    }

    /// Applies a net change: nothing if it is 0 (allocator-spec 2.6).
    #[inline]
    pub(super) fn change(&mut self, small: bool, net: i64) {
        match net.signum() {
            1 => self.add(small, net as u64),
            -1 => self.take(small, net.unsigned_abs()),
            _ => {}
        }
    }

    fn half(&mut self, small: bool) -> &mut super::stats::Stat {
        if small { &mut self.small } else { &mut self.large }
    }
}
