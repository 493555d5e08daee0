//! Bare event logs (training recordings, snapshot pickles): the operations are read off torch's own events.
//!
//! A request ends in `alloc` or `oom`, a free begins with `free_requested`. What stands before such an anchor belongs
//! to it, or to an empty_cache in between: whichever makes the same segment calls. Where both would, the number of
//! retries in the final statistics decides, if the recording has them.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, bail};

use super::late::First;
use super::scripted::{Event, Scripted};
use super::tally::{Counters, Tally};
use super::trace::{Trace, as_event, assumed_total, compare_segments};
use super::unsaid::Before;
use crate::allocator::{Action, AllocError, Allocator, PoolId, Settings, TraceEntry};
use crate::driver::StreamId;

/// Streams that pending blocks are recorded on: one for each, so that they may complete in any order.
pub(super) const FIRST_SIDE: u64 = u64::MAX / 2;

/// One device's log, ready to be replayed.
pub(super) struct Log {
    pub events: Vec<Event>,
    /// The pool of a segment by the index of its `segment_alloc` or `segment_map` in `events`, where it is known.
    pub pools: HashMap<usize, PoolId>,
    pub total: u64,
    /// Retries that the recording counted, if it tells.
    pub retries: Option<i64>,
}

/// Replays a trace file without operations: the log, then the final segments and statistics.
pub(super) fn replay_trace(trace: &Trace, settings: Settings, tally: &mut Tally) -> anyhow::Result<()> {
    let events = super::trace::events(&trace.events);
    let total = assumed_total(&events);
    let retries = trace.stats.as_ref().and_then(|s| s.get("num_alloc_retries")).copied();
    let log = Log {
        events,
        pools: HashMap::new(),
        total,
        retries,
    };
    let allocator = replay(&log, settings, None, tally)?;
    if let Some(segments) = &trace.segments {
        compare_segments(&allocator.report(), segments, true, tally, &|| "at the end".to_owned());
    }
    if let Some(stats) = &trace.stats {
        compare_final(&allocator, stats, tally);
    }
    Ok(())
}

fn compare_final(allocator: &Allocator<Scripted>, recorded: &BTreeMap<String, i64>, tally: &mut Tally) {
    let mut counters = Counters::new();
    for (key, value) in recorded {
        let ours = allocator.stats().num_sync_all_streams;
        if key == "num_sync_all_streams" && ours.is_some_and(|n| n < *value) {
            // An empty_cache that finds nothing leaves no event.
            tally.note(format!(
                "num_sync_all_streams: recorded {value}, the log shows {}: the others freed nothing",
                ours.unwrap_or_default()
            ));
            counters.set(key, ours.unwrap_or_default());
        } else {
            counters.set(key, *value);
        }
    }
    counters.compare(allocator.stats(), allocator.rules(), tally, || "at the end".to_owned());
}

/// Replays a log from its first state; the allocator is left in its final one.
pub(super) fn replay(
    log: &Log,
    settings: Settings,
    first: Option<&First>,
    tally: &mut Tally,
) -> anyhow::Result<Allocator<Scripted>> {
    let mut driver = Scripted::new(&log.events, log.total);
    let mut allocator = match first {
        None => Allocator::new(driver, settings),
        Some(first) => {
            for segment in &first.report.segments {
                driver.hold(segment.address, segment.size)?;
            }
            Allocator::restore(driver, settings, &first.report)?
        }
    };
    allocator.set_event_capacity(1 << 20);
    let mut run = Run {
        log,
        allocator,
        passed: 0,
        early: 0,
        pending: HashMap::new(),
        pool_of: BTreeMap::new(),
        users: HashMap::new(),
        ours: Vec::new(),
    };
    if let Some(first) = first {
        run.start_from(first)?;
    }
    let retries = log.retries.unwrap_or(i64::MAX);
    let mut start = 0;
    while start < log.events.len() {
        let anchor = (start..log.events.len()).find(|i| {
            matches!(
                log.events[*i].action,
                Action::Alloc | Action::Oom | Action::FreeRequested
            )
        });
        if let Err(error) = run.group(start, anchor, retries > 0, tally) {
            // After a difference the rest of a log may make no sense.
            if tally.differences == 0 {
                return Err(error.context(format!("event {}", start + 1)));
            }
            tally.note(format!("the replay ended at event {}: {error:#}", start + 1));
            return Ok(run.allocator);
        }
        // A free that completes at once has its second event inside the group.
        start = run.passed.max(anchor.map_or(log.events.len(), |a| a + 1));
    }
    tally.same(&run.allocator.driver().left(), &0, || {
        "segment calls left over".to_owned()
    });
    Ok(run.allocator)
}

pub(super) struct Run<'a> {
    pub log: &'a Log,
    pub allocator: Allocator<Scripted>,
    /// Recorded events that were compared.
    pub passed: usize,
    /// Completions of the present group that came before everything else in it.
    pub early: usize,
    /// The event that each pending block waits for.
    pub pending: HashMap<u64, u64>,
    /// Pools of the segments that exist now, by first address: (end, pool).
    pub pool_of: BTreeMap<u64, (u64, PoolId)>,
    /// How often each private pool was begun and not released.
    pub users: HashMap<PoolId, u64>,
    pub ours: Vec<TraceEntry>,
}

impl Run<'_> {
    /// What the log does not tell of the first state: pools by segment, blocks that wait already.
    fn start_from(&mut self, first: &First) -> anyhow::Result<()> {
        for segment in &first.report.segments {
            self.pool_of
                .insert(segment.address, (segment.address + segment.size, segment.pool));
        }
        for address in &first.pending {
            self.free_later(*address)?;
        }
        self.allocator.take_events();
        Ok(())
    }

    /// Frees a block that another stream still uses.
    fn free_later(&mut self, address: u64) -> anyhow::Result<()> {
        // Its event will be the driver's next one.
        let side = StreamId(FIRST_SIDE + self.allocator.driver().last_event + 1);
        self.allocator.record_stream(address, side)?;
        self.allocator.free(address)?;
        self.pending.insert(address, self.allocator.driver().last_event);
        Ok(())
    }

    /// The events from `start` to the anchor: completions, what a flush did, and the operation itself.
    fn group(&mut self, start: usize, anchor: Option<usize>, retries: bool, tally: &mut Tally) -> anyhow::Result<()> {
        let end = anchor.unwrap_or(self.log.events.len());
        let before = &self.log.events[start..end];
        self.learn_pools(start, end)?;
        self.complete_first(before, anchor)?;
        let frees = before
            .iter()
            .any(|e| matches!(e.action, Action::SegmentFree | Action::SegmentUnmap));
        match anchor.map(|a| (a, self.log.events[a])) {
            None => {
                if frees {
                    self.allocator.empty_cache()?;
                }
            }
            Some((_, event)) if event.action == Action::FreeRequested => {
                if frees {
                    self.allocator.empty_cache()?;
                }
                self.free(anchor.unwrap_or(end), event)?;
            }
            Some((at, event)) => {
                let pool = self.pool_at(at);
                if let Some(pool) = pool {
                    self.begin(pool)?;
                }
                if frees {
                    let came = self.came_before(at, event, pool, retries)?;
                    self.before(came, at, pool)?;
                    if matches!(came, Before::Collection(_)) {
                        tally.note(
                            "the limit that collections by age went by is not in the file: what they released is taken \
                             from the log",
                        );
                    }
                }
                self.request(at, event, tally)?;
                if let Some(pool) = pool {
                    self.allocator.end_pool(pool)?;
                }
            }
        }
        self.compare(tally);
        tally.operations += 1;
        Ok(())
    }

    fn request(&mut self, at: usize, event: Event, tally: &mut Tally) -> anyhow::Result<()> {
        match self.allocator.malloc(event.size, StreamId(event.stream)) {
            Ok(address) => {
                let recorded = (event.action == Action::Alloc).then_some(event.address);
                tally.same(&Some(address), &recorded, || {
                    format!("event {}: placement of {} bytes", at + 1, event.size)
                });
            }
            Err(AllocError::OutOfMemory(_)) => self.allocator.driver_mut().pass_oom(),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// A free; if its completion does not follow at once, another stream uses the block.
    fn free(&mut self, at: usize, event: Event) -> anyhow::Result<()> {
        if self.allocator.block(event.address).is_none_or(|b| b.pending) {
            bail!("{:#x} is freed but not allocated", event.address);
        }
        if self.completes_at_once(at, event)? {
            Ok(self.allocator.free(event.address)?)
        } else {
            self.free_later(event.address)
        }
    }

    /// A pending block's event has completed.
    pub(super) fn complete(&mut self, address: u64) -> anyhow::Result<()> {
        let event = self
            .pending
            .remove(&address)
            .with_context(|| format!("{address:#x} completes but was not freed"))?;
        self.allocator.driver_mut().completed.single.insert(event);
        Ok(self.allocator.process_events()?)
    }

    /// Segments of the group whose pool is known.
    fn learn_pools(&mut self, start: usize, end: usize) -> anyhow::Result<()> {
        for at in start..end {
            let event = self.log.events[at];
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    let pool = self.log.pools.get(&at).copied().unwrap_or_default();
                    self.pool_of
                        .insert(event.address, (event.address.saturating_add(event.size), pool));
                }
                Action::SegmentFree | Action::SegmentUnmap => self.forget_pool(event)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// A private pool whose memory goes back has no users any more.
    fn forget_pool(&mut self, event: Event) -> anyhow::Result<()> {
        let Some((start, (_, pool))) = self.pool_of.range(..=event.address).next_back().map(|(s, p)| (*s, *p)) else {
            return Ok(());
        };
        for _ in 0..self.users.remove(&pool).unwrap_or_default() {
            self.allocator.release_pool(pool)?;
        }
        if event.action == Action::SegmentFree {
            self.pool_of.remove(&start);
        }
        Ok(())
    }

    /// The private pool of a request: the one that the file names, or that of the segment where the block lies.
    pub(super) fn pool_at(&self, at: usize) -> Option<PoolId> {
        if let Some(pool) = self.log.pools.get(&at) {
            return Some(*pool);
        }
        let event = self.log.events[at];
        let (_, (end, pool)) = self.pool_of.range(..=event.address).next_back()?;
        (event.action == Action::Alloc && event.address < *end && *pool != PoolId::DEFAULT).then_some(*pool)
    }

    fn compare(&mut self, tally: &mut Tally) {
        self.ours.clear();
        self.allocator.drain_events(&mut self.ours);
        for entry in &self.ours {
            let recorded = self.log.events.get(self.passed).copied();
            tally.compared += 3;
            tally.same(&Some(as_event(entry)), &recorded, || {
                format!("event {}", self.passed + 1)
            });
            self.passed += 1;
        }
        for what in std::mem::take(&mut self.allocator.driver_mut().unexpected) {
            tally.differ(|| format!("event {}: {what}", self.passed));
        }
    }
}
