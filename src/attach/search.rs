//! Attaching to processes that may not be ready yet: asked every second, without paying for a whole look each time.
//!
//! What is remembered is the size of the address space at the last look: importing torch, loading CUDA and creating the
//! allocator's first device all change it, so while it is the same the answer is too. (The ELF images are read from
//! memory, a few dozen words each: there is nothing about them worth keeping.)

use std::collections::HashMap;

use super::process::{ProcRoot, Process};
use super::{Attached, attach};
use crate::reading::{Reading, Why, WhyKind};

/// A whole look is made after so many calls all the same.
const TRUST: u32 = 10;

/// Remembers which processes had nothing to attach to.
#[derive(Debug, Default)]
pub struct Search {
    waiting: HashMap<u32, Waiting>,
}

/// A process without an allocator, as it was.
#[derive(Debug)]
struct Waiting {
    start: u64,
    pages: u64,
    why: Why,
    calls: u32,
}

impl Search {
    /// As [`Attached::find`], for repeated calls: about 20 us while the process has not changed since its last refusal.
    pub fn find(&mut self, root: &ProcRoot, pid: u32) -> Reading<Attached> {
        let now = Process::open(root, pid).ok().and_then(|p| Some((p.start, p.pages()?)));
        if let Some((start, pages)) = now
            && let Some(waiting) = self.waiting.get_mut(&pid)
            && (waiting.start, waiting.pages) == (start, pages)
            && waiting.calls < TRUST
        {
            waiting.calls += 1;
            return Reading::Missing(waiting.why.clone());
        }
        self.waiting.remove(&pid);
        match attach(root, pid) {
            Ok(attached) => Reading::Is(attached),
            Err(why) => {
                // A layout may prove itself by the next counters alone, without new memory.
                if let Some((start, pages)) = now
                    && matches!(why.kind, WhyKind::NotYet | WhyKind::Absent | WhyKind::Refused)
                {
                    let waiting = Waiting {
                        start,
                        pages,
                        why: why.clone(),
                        calls: 0,
                    };
                    self.waiting.insert(pid, waiting);
                }
                Reading::Missing(why)
            }
        }
    }

    /// Forgets every process that `alive` does not name.
    pub fn retain(&mut self, alive: impl Fn(u32) -> bool) {
        self.waiting.retain(|pid, _| alive(*pid));
    }
}
