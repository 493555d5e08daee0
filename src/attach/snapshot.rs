//! A consistent copy of one device's counters, while the process changes them (allocator-spec 7.7).
//!
//! One process_vm_readv copies, in this order: mutex and counters; the private pools' slots where there are any; mutex and
//! counters again; the mutex once more. The copy is taken when the counters are equal in both, the lock word is 0 in all
//! three, and the invariants hold. Why that is enough: every operation changes a sum that only grows, so equal copies mean
//! that no word changed between its two readings, and all words had these values at one moment between the copies; the lock
//! word says that nobody was in the middle of an operation. It is looked at before, between and after: with the
//! look between alone, 24 of 2,090,000 fresh reads were broken on a machine with both cores kept busy, with all three 0 of
//! 1,980,000 in the same alternating run (debug build, 2 million operations a second). Why one look is not enough is not known.
//! (The rule of one copy with lock word 0 let 0.35 % broken reads through at 2 million operations a second.)

use std::collections::BTreeMap;

use super::counters::{array, array_holds, broken_invariant, decode};
use super::layout::Layout;
use super::remote::{Fault, Remote};
use crate::allocator::stats::{DeviceStats, StatArray};
use crate::reading::{Reading, WhyKind};

/// Tries of one read: each takes about a microsecond, and a busy target is free again within one.
const TRIES: usize = 20;
/// Words of a slot of the private pools' map: distance, id (two), one Stat array (twelve).
const SLOT_WORDS: usize = 15;
/// Larger maps are left out: 4,096 slots are about half a MiB.
const MAX_SLOTS: u64 = 4096;

/// What one read gave.
#[derive(Debug)]
pub enum Outcome {
    /// Consistent counters of now.
    Fresh(DeviceStats),
    /// The last consistent ones; the target was busy in every try. Before there are any: ones that keep the invariants and
    /// may mix two moments.
    Stale(DeviceStats),
    /// No consistent ones, now or before.
    Nothing,
}

/// Where the private pools' slots were when last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slots {
    address: u64,
    count: usize,
    entries: u64,
}

/// Reads one device; keeps its buffers and its last good counters.
#[derive(Debug)]
pub struct Reader {
    address: u64,
    layout: Layout,
    first: Vec<u64>,
    second: Vec<u64>,
    lock_after: [u64; 1],
    slots: Option<Slots>,
    /// Slots that could not be read: they are not asked for again.
    bad_slots: Option<Slots>,
    slot_words: Vec<u64>,
    pools_readable: bool,
    last: Option<DeviceStats>,
    bad_reads: u32,
}

impl Reader {
    /// A reader of the device's allocator at `address`.
    pub fn new(address: u64, layout: Layout) -> Reader {
        Reader {
            address,
            layout,
            first: vec![0; layout.end()],
            second: vec![0; layout.end()],
            lock_after: [0],
            slots: None,
            bad_slots: None,
            slot_words: Vec::new(),
            pools_readable: true,
            last: None,
            bad_reads: 0,
        }
    }

    /// Reads in a row that ended without consistent counters although the lock was free: the layout is in doubt.
    pub fn bad_reads(&self) -> u32 {
        self.bad_reads
    }

    /// What one try copies, in this order: mutex and counters, the slots, mutex and counters, mutex.
    pub fn pieces(&mut self) -> impl Iterator<Item = (u64, &mut [u8])> {
        let bytes = object::pod::bytes_of_slice_mut::<u64>;
        let pools = self.slots.map(|slots| {
            self.slot_words.resize(slots.count * SLOT_WORDS, 0);
            (slots.address, bytes(&mut self.slot_words))
        });
        let (first, second) = (bytes(&mut self.first), bytes(&mut self.second));
        let after = bytes(&mut self.lock_after);
        [
            Some((self.address, first)),
            pools,
            Some((self.address, second)),
            Some((self.address, after)),
        ]
        .into_iter()
        .flatten()
    }

    /// One read: up to 20 tries. With `copied` the first try's pieces have been filled already.
    pub fn read(&mut self, remote: &Remote, mut copied: bool) -> Result<Outcome, Fault> {
        let mut contradiction = false;
        let mut passable = None;
        for _ in 0..TRIES {
            if !std::mem::take(&mut copied)
                && let Err(fault) = remote.read_pieces(&mut self.pieces().collect::<Vec<_>>())
            {
                // The slots moved and their memory went away, or they never were: the counters are read without them.
                let Some(slots) = self.slots.take().filter(|_| fault == Fault::Unmapped) else {
                    return Err(fault);
                };
                self.bad_slots = Some(slots);
                continue;
            }
            let (start, end) = (self.layout.start, self.layout.end());
            let locked = [self.first[0], self.second[0], self.lock_after[0]]
                .iter()
                .any(|w| *w as u32 != 0);
            let torn = self.first[start..end] != self.second[start..end];
            if (locked || torn) && self.last.is_some() {
                continue;
            }
            let words = &self.second[start..end];
            let sound = decode(words, self.layout.shape).filter(|s| broken_invariant(s).is_none());
            if locked || torn {
                passable = sound.or(passable);
                continue;
            }
            let Some(mut stats) = sound else {
                contradiction = true;
                continue;
            };
            if self.layout.shape.map && !self.add_pools(&mut stats) {
                continue;
            }
            self.bad_reads = 0;
            self.last = Some(stats.clone());
            return Ok(Outcome::Fresh(stats));
        }
        self.bad_reads = if contradiction { self.bad_reads + 1 } else { 0 };
        Ok(self.last.clone().or(passable).map_or(Outcome::Nothing, Outcome::Stale))
    }

    /// Puts the private pools into `stats`. False: the slots are elsewhere than assumed, copy again.
    fn add_pools(&mut self, stats: &mut DeviceStats) -> bool {
        let map = &self.second[self.layout.start + 72..self.layout.start + 76];
        let (address, mask, entries) = (map[0], map[1], map[3]);
        self.pools_readable = true;
        if entries == 0 {
            self.slots = None;
            return true;
        }
        // The lookup limit, the second byte of the small fields, adds slots behind the last bucket.
        let count = mask.saturating_add((map[2] >> 8) & 0xff);
        if count > MAX_SLOTS || entries > count {
            self.slots = None;
            self.pools_readable = false;
            return true;
        }
        let now = Slots {
            address,
            count: count as usize,
            entries,
        };
        if self.bad_slots == Some(now) {
            self.pools_readable = false;
            return true;
        }
        if self.slots != Some(now) {
            self.slots = Some(now);
            return false;
        }
        match pools(&self.slot_words, entries) {
            Some(found) => stats.reserved_bytes_by_private_pools = found,
            None => self.pools_readable = false,
        }
        true
    }

    /// The number of private pools of the last fresh read.
    pub fn private_pools(&self) -> Reading<usize> {
        if !self.layout.shape.map {
            Reading::missing(
                WhyKind::Absent,
                "this release does not count private pools (torch 2.13 does)",
            )
        } else if !self.pools_readable {
            Reading::missing(
                WhyKind::Unknown,
                "the map of private pools has a form that was never examined",
            )
        } else {
            Reading::Is(
                self.last
                    .as_ref()
                    .map_or(0, |s| s.reserved_bytes_by_private_pools.len()),
            )
        }
    }
}

/// Decodes the slots: int8 distance (negative = empty), pool id, Stat array. `None` unless the used slots are as many as
/// the map says and each array is the sum of its parts.
fn pools(words: &[u64], entries: u64) -> Option<BTreeMap<(u64, u64), StatArray>> {
    let mut found = BTreeMap::new();
    for slot in words.chunks_exact(SLOT_WORDS) {
        if slot[0] & 0x80 != 0 {
            continue;
        }
        let stats = array(slot, 3).filter(array_holds)?;
        found.insert((slot[1], slot[2]), stats);
    }
    (found.len() as u64 == entries).then_some(found)
}
