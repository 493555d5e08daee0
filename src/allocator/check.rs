//! The invariants as functions: what must hold after every operation, in any release and configuration
//! (allocator-spec 3.5, issue 2).

use crate::driver::Driver;

use super::Allocator;
use super::block::{Block, BlockId, NONE, State};
use super::heap::Heap;
use super::stats::{DeviceStats, Stat, StatArray};

/// A broken invariant: a defect of the allocator, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broken invariant: {0}")]
pub struct Violation(pub String);

macro_rules! hold {
    ($condition:expr, $($why:tt)*) => {
        if !$condition {
            return Err(Violation(format!($($why)*)));
        }
    };
}

impl<D: Driver> Allocator<D> {
    /// Checks every invariant: blocks tile their segments, no two neighbours could be merged, every set holds exactly
    /// the blocks it should, and the counters equal a recount. Costs a walk over all blocks.
    pub fn check(&self) -> Result<(), Violation> {
        let walked = self.heap.check_tiling()?;
        hold!(walked == self.heap.blocks.iter().count(), "a block is in no segment");
        self.heap.check_sets()?;
        self.heap.check_counters()?;
        check_stats(&self.heap.stats)
    }
}

impl Heap {
    /// Blocks tile their segments without gap or overlap; neighbours of the same kind were merged.
    fn check_tiling(&self) -> Result<usize, Violation> {
        let (mut walked, mut end_of_last) = (0, 0);
        for (address, first) in &self.segments {
            hold!(
                *address >= end_of_last,
                "the segment at {address:#x} overlaps the one before"
            );
            let (mut at, mut prev, mut id) = (*address, NONE, *first);
            while id != NONE {
                let block = &self.blocks[id];
                hold!(
                    block.address == at,
                    "block at {:#x} where one at {at:#x} belongs",
                    block.address
                );
                hold!(block.prev == prev, "block at {at:#x} does not know its neighbour");
                hold!(block.size > 0, "empty block at {at:#x}");
                if prev != NONE {
                    Self::check_neighbours(&self.blocks[prev], block)?;
                }
                walked += 1;
                at = block.end();
                prev = id;
                id = block.next;
            }
            end_of_last = at;
        }
        Ok(walked)
    }

    fn check_neighbours(a: &Block, b: &Block) -> Result<(), Violation> {
        let same = |state| a.state == state && b.state == state;
        hold!(!same(State::Free), "two free neighbours at {:#x}", b.address);
        hold!(!same(State::Unmapped), "two unmapped neighbours at {:#x}", b.address);
        hold!(
            a.lane == b.lane && a.expandable == b.expandable,
            "neighbours of two kinds at {:#x}",
            b.address
        );
        Ok(())
    }

    /// Free blocks are in their lane's set under their present key, live and pending ones in the address map.
    fn check_sets(&self) -> Result<(), Violation> {
        let (mut free, mut unmapped, mut live) = (0, 0, 0);
        for (id, block) in self.blocks.iter() {
            let lane = &self.lanes[block.lane as usize];
            match block.state {
                State::Free => {
                    free += 1;
                    hold!(
                        lane.free
                            .lower_bound(&self.key(id))
                            .is_some_and(|p| lane.free.get(p).id == id),
                        "free block {:#x} is not in its set",
                        block.address
                    );
                }
                State::Unmapped => {
                    unmapped += 1;
                    hold!(
                        lane.unmapped.contains(&(block.address, id)),
                        "unmapped block {:#x} is not in its set",
                        block.address
                    );
                }
                State::Live | State::Pending => {
                    live += 1;
                    hold!(
                        self.live.get(&block.address) == Some(&id),
                        "block {:#x} is not in the map",
                        block.address
                    );
                }
                State::Vacant => {}
            }
        }
        let sum = |count: fn(&super::lane::Lane) -> usize| self.lanes.iter().map(count).sum::<usize>();
        hold!(
            free == sum(|l| l.free.len()),
            "a free set holds a block that is not free"
        );
        hold!(
            unmapped == sum(|l| l.unmapped.len()),
            "an unmapped set holds a block that is mapped"
        );
        hold!(
            live == self.live.len(),
            "the address map holds a block that is not live"
        );
        Ok(())
    }

    /// Every current value equals a recount.
    fn check_counters(&self) -> Result<(), Violation> {
        let mut recount = DeviceStats::default();
        let mut by_pool = vec![0u64; self.pools.len()];
        for (id, block) in self.blocks.iter() {
            let lane = &self.lanes[block.lane as usize];
            let small = lane.small;
            if block.state != State::Unmapped {
                recount.reserved_bytes.add(small, block.size);
                by_pool[lane.pool as usize] += block.size;
            }
            recount
                .segment
                .add(small, u64::from(!block.expandable && block.prev == NONE));
            count_block(&mut recount, block, small);
            self.check_block(id, block)?;
        }
        for ((name, counted), (_, is)) in recount.arrays().into_iter().zip(self.stats.arrays()) {
            for (a, b) in [
                (&counted.all, &is.all),
                (&counted.small, &is.small),
                (&counted.large, &is.large),
            ] {
                hold!(
                    a.current == b.current,
                    "{name} is {} where a recount gives {}",
                    b.current,
                    a.current
                );
            }
        }
        hold!(
            self.stats.reserved_bytes.all.current as u64 == self.reserved,
            "reserved bytes differ from the total"
        );
        for (pool, bytes) in self.pools.iter().zip(by_pool) {
            hold!(
                pool.as_ref().map_or(0, |p| p.reserved) == bytes,
                "a pool's reserved bytes differ from a recount"
            );
        }
        Ok(())
    }

    fn check_block(&self, id: BlockId, block: &Block) -> Result<(), Violation> {
        let active = matches!(block.state, State::Live | State::Pending);
        hold!(
            active || (block.events == 0 && !block.used),
            "free block {:#x} has events",
            block.address
        );
        hold!(
            !block.used || self.uses.contains_key(&id),
            "block {:#x} lost its uses",
            block.address
        );
        hold!(
            !active || block.requested <= block.size,
            "block {:#x} is smaller than asked for",
            block.address
        );
        Ok(())
    }
}

fn count_block(recount: &mut DeviceStats, block: &Block, small: bool) {
    match block.state {
        State::Live | State::Pending => {
            recount.active.add(small, 1);
            recount.active_bytes.add(small, block.size);
            recount.requested_bytes.add(small, block.requested);
            if block.state == State::Live {
                recount.allocation.add(small, 1);
                recount.allocated_bytes.add(small, block.size);
            }
        }
        State::Free if block.is_split() && !block.expandable => {
            recount.inactive_split.add(small, 1);
            recount.inactive_split_bytes.add(small, block.size);
        }
        State::Free | State::Unmapped | State::Vacant => {}
    }
}

/// The relations between counters that always hold (allocator-spec 3.5); also for counters read from elsewhere.
pub fn check_stats(stats: &DeviceStats) -> Result<(), Violation> {
    for (name, array) in stats.arrays() {
        check_array(name, array)?;
    }
    for (id, array) in &stats.reserved_bytes_by_private_pools {
        check_array(&format!("reserved bytes of pool {id:?}"), array)?;
    }
    let current = |array: &StatArray| array.all.current;
    hold!(
        current(&stats.allocated_bytes) <= current(&stats.active_bytes),
        "allocated exceeds active"
    );
    hold!(
        current(&stats.allocation) <= current(&stats.active),
        "more allocations than active blocks"
    );
    hold!(
        current(&stats.requested_bytes) <= current(&stats.active_bytes),
        "requested exceeds active"
    );
    let used = current(&stats.active_bytes) + current(&stats.inactive_split_bytes);
    hold!(
        used <= current(&stats.reserved_bytes),
        "active and inactive_split exceed reserved"
    );
    hold!(
        (current(&stats.active) == 0) == (current(&stats.active_bytes) == 0),
        "active blocks without bytes"
    );
    Ok(())
}

fn check_array(name: &str, array: &StatArray) -> Result<(), Violation> {
    let StatArray { all, small, large } = array;
    for (metric, of) in [
        ("current", (|s: &Stat| s.current) as fn(&Stat) -> i64),
        ("allocated", |s| s.allocated),
        ("freed", |s| s.freed),
    ] {
        hold!(
            of(all) == of(small) + of(large),
            "{name}.{metric}: the halves do not add up"
        );
    }
    hold!(
        small.peak.max(large.peak) <= all.peak && all.peak <= small.peak + large.peak,
        "{name}: peaks out of range"
    );
    for stat in [all, small, large] {
        hold!(
            0 <= stat.current && stat.current <= stat.peak,
            "{name}: current {} outside 0 .. {}",
            stat.current,
            stat.peak
        );
        hold!(
            stat.allocated - stat.freed <= stat.current,
            "{name}: more was added than is there"
        );
    }
    Ok(())
}
