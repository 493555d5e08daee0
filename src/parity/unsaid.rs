//! What a bare log does not say: whether an empty_cache came between two operations, and which step of a request
//! finished pending blocks. Both are found by trying the possibilities on copies of the allocator.

use std::collections::{BTreeMap, HashMap};

use anyhow::Context;

use super::log::{FIRST_SIDE, Run};
use super::scripted::Event;
use super::trace::as_event;
use crate::allocator::{Action, AllocError, PoolId};
use crate::driver::StreamId;

/// What may stand unseen between two operations of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    /// An empty_cache.
    Flush,
    /// A collection by age, inside the request, that released so many segments.
    Collection(usize),
}

impl Run<'_> {
    /// What stands between this request and the operation before, if segments went: tried out on copies, which of the
    /// possibilities makes the recorded calls. Where several do, the recording's count of retries decides.
    pub(super) fn came_before(
        &self,
        at: usize,
        event: Event,
        pool: Option<PoolId>,
        retries: bool,
    ) -> anyhow::Result<Before> {
        let recorded = &self.log.events[(self.passed + self.early).min(at)..=at];
        let mut choices = if retries {
            vec![Before::Nothing, Before::Flush]
        } else {
            vec![Before::Flush, Before::Nothing]
        };
        if self.allocator.config().gc_threshold > 0.0 {
            let frees = recorded.iter().filter(|e| e.action == Action::SegmentFree).count();
            choices.extend((1..=frees).map(Before::Collection));
        }
        for choice in &choices {
            let mut trial = self.trial();
            trial.before(*choice, at, pool)?;
            match trial.allocator.malloc(event.size, StreamId(event.stream)) {
                Ok(_) | Err(AllocError::OutOfMemory(_)) => {}
                Err(error) => return Err(error.into()),
            }
            let events = trial.allocator.take_events();
            if events.iter().map(as_event).eq(recorded.iter().copied()) {
                return Ok(*choice);
            }
        }
        Ok(choices[0])
    }

    /// A copy to try things out on.
    pub(super) fn trial(&self) -> Run<'_> {
        let mut allocator = self.allocator.clone();
        allocator.take_events();
        Run {
            log: self.log,
            allocator,
            passed: self.passed,
            early: self.early,
            pending: HashMap::new(),
            pool_of: BTreeMap::new(),
            users: HashMap::new(),
            ours: Vec::new(),
        }
    }

    /// Does what came before a request, for which `pool` is begun already.
    pub(super) fn before(&mut self, came: Before, at: usize, pool: Option<PoolId>) -> anyhow::Result<()> {
        match came {
            Before::Nothing => {}
            Before::Flush => {
                // The redirection that was begun for the request does not hold for the flush.
                if let Some(pool) = pool {
                    self.allocator.end_pool(pool)?;
                }
                self.allocator.empty_cache()?;
                if let Some(pool) = pool {
                    self.begin(pool)?;
                }
            }
            Before::Collection(count) => {
                let events = self.log.events[self.passed.min(at)..at].iter();
                for event in events.filter(|e| e.action == Action::SegmentFree).take(count) {
                    self.allocator.release_segment(event.address)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn begin(&mut self, pool: PoolId) -> anyhow::Result<()> {
        self.allocator.begin_pool(pool)?;
        *self.users.entry(pool).or_default() += 1;
        Ok(())
    }

    /// Whether a free completes by itself. Its completion follows in the log; but if the next request then fails to find
    /// the block, it was that request that waited for it.
    pub(super) fn completes_at_once(&self, at: usize, event: Event) -> anyhow::Result<bool> {
        let completed = self.log.events.get(at + 1);
        if completed.is_none_or(|e| e.action != Action::FreeCompleted || e.address != event.address) {
            return Ok(false);
        }
        let after = &self.log.events[at + 2..];
        let calls = after
            .iter()
            .take_while(|e| !matches!(e.action, Action::Alloc | Action::Oom | Action::FreeRequested));
        let (calls, gets) = calls.fold((0, false), |(n, gets), e| (n + 1, gets || is_get(e)));
        match after.get(calls) {
            Some(next) if next.action == Action::Oom || next.action == Action::Alloc && gets => {
                let mut trial = self.allocator.clone();
                let found = trial.would_hit(next.size, StreamId(next.stream));
                trial.free(event.address)?;
                Ok(found || !trial.would_hit(next.size, StreamId(next.stream)))
            }
            _ => Ok(true),
        }
    }

    /// The completions of a group. Those of a request come before its search, unless the search would then have found
    /// what the log shows it did not find: then the wait for all events on the last step of the ladder brought them.
    pub(super) fn complete_first(&mut self, before: &[Event], anchor: Option<usize>) -> anyhow::Result<()> {
        let completed: Vec<u64> = before
            .iter()
            .filter(|e| e.action == Action::FreeCompleted)
            .map(|e| e.address)
            .collect();
        let request = anchor
            .map(|a| self.log.events[a])
            .filter(|e| e.action != Action::FreeRequested);
        let request = request.filter(|e| e.action == Action::Oom || before.iter().any(is_get));
        // What completes after a segment call certainly was waited for.
        let first_call = before.iter().position(|e| e.action != Action::FreeCompleted);
        let mut early = first_call.unwrap_or(completed.len());
        if let Some(request) = request.filter(|_| early > 0) {
            let mut trial = self.allocator.clone();
            let pool = anchor.and_then(|at| self.pool_at(at));
            pool.map_or(Ok(()), |pool| trial.begin_pool(pool))?;
            for (at, address) in completed.iter().enumerate() {
                let event = self
                    .pending
                    .get(address)
                    .context("a block completes that was not freed")?;
                trial.driver_mut().completed.single.insert(*event);
                trial.process_events()?;
                if trial.would_hit(request.size, StreamId(request.stream)) {
                    early = at;
                    break;
                }
            }
        }
        for address in &completed[..early] {
            self.complete(*address)?;
        }
        let late = completed[early..].iter().filter_map(|a| self.pending.remove(a));
        let streams: Vec<StreamId> = late.map(|event| StreamId(FIRST_SIDE + event)).collect();
        self.allocator.order_streams(&streams);
        self.early = early;
        Ok(())
    }
}

/// Memory came from the driver.
fn is_get(event: &Event) -> bool {
    matches!(event.action, Action::SegmentAlloc | Action::SegmentMap)
}
