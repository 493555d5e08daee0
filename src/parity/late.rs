//! The state that a late recording starts from: the final state with every event undone, newest first.

use std::collections::{BTreeMap, HashSet};

use super::scripted::Event;
use crate::allocator::size::{MIN_BLOCK, ONE_EXABYTE, SMALL_LIMIT, SMALL_SEGMENT, block_size};
use crate::allocator::{Action, BlockReport, BlockState, Report, SegmentReport, Settings, TraceEntry};

/// What was there before the first event.
pub(super) struct First {
    pub report: Report,
    /// Blocks whose free was requested before the log begins and completes inside it.
    pub pending: Vec<u64>,
    /// What the file leaves open about this state.
    pub open: Vec<String>,
}

#[derive(Clone, Copy)]
struct Live {
    requested: u64,
    /// Known for blocks that are still there at the end.
    size: Option<u64>,
    pending: bool,
}

/// Undoes the events. `None`: the log begins with an empty allocator.
///
/// # Errors
/// Why the first state cannot be told.
pub(super) fn first_state(
    last: &Report,
    entries: &[TraceEntry],
    events: &[Event],
    settings: &Settings,
) -> Result<Option<First>, String> {
    let mut segments: BTreeMap<u64, SegmentReport> = BTreeMap::new();
    let mut live: BTreeMap<u64, Live> = BTreeMap::new();
    for segment in &last.segments {
        for block in segment.blocks.iter().filter(|b| b.state != BlockState::Free) {
            let pending = block.state == BlockState::Pending;
            live.insert(
                block.address,
                Live {
                    requested: block.requested,
                    size: Some(block.size),
                    pending,
                },
            );
        }
        segments.insert(
            segment.address,
            SegmentReport {
                blocks: Vec::new(),
                ..segment.clone()
            },
        );
    }
    let mut expandable: BTreeMap<u64, u64> = BTreeMap::new();
    for segment in last.segments.iter().filter(|s| s.expandable) {
        segments.remove(&segment.address);
        expandable.insert(segment.address, segment.address + segment.size);
    }
    for (at, event) in events.iter().enumerate().rev() {
        undo(event, entries.get(at), &mut segments, &mut live, &mut expandable).map_err(|what| {
            format!(
                "event {} ({} {:#x}): {what}",
                at + 1,
                event.action.name(),
                event.address
            )
        })?;
    }
    let mapped: u64 = expandable.iter().map(|(start, end)| end - start).sum();
    if mapped > 0 {
        return Err(format!(
            "the recording starts late, with {mapped} bytes mapped in expandable segments: which address ranges they lie \
             in is not in the file"
        ));
    }
    if segments.is_empty() && live.is_empty() {
        return Ok(None);
    }
    let pending = live
        .iter()
        .filter(|(_, b)| b.pending)
        .map(|(address, _)| *address)
        .collect();
    let mut open = 0;
    let fill = |s: SegmentReport| fill(s, &live, events, settings, &mut open);
    let segments = segments.into_values().map(fill).collect::<Result<Vec<_>, _>>()?;
    let placed: HashSet<u64> = segments.iter().flat_map(|s| &s.blocks).map(|b| b.address).collect();
    if let Some(lost) = live.keys().find(|a| !placed.contains(a)) {
        return Err(format!("the block at {lost:#x} lies in no segment"));
    }
    let mut reasons = Vec::new();
    if open > 0 {
        // Freed in the log, beside a free block that nothing is placed in before.
        reasons.push(format!("the size of {open} blocks"));
    }
    if settings.rules.ties_by_segment && segments.len() > 1 {
        reasons.push(format!("the order in which {} segments were made", segments.len()));
    }
    Ok(Some(First {
        report: Report { segments },
        pending,
        open: reasons,
    }))
}

fn undo(
    event: &Event,
    entry: Option<&TraceEntry>,
    segments: &mut BTreeMap<u64, SegmentReport>,
    live: &mut BTreeMap<u64, Live>,
    expandable: &mut BTreeMap<u64, u64>,
) -> Result<(), String> {
    let end = event.address.checked_add(event.size);
    match event.action {
        Action::Alloc => {
            live.remove(&event.address).ok_or("the block is not there afterwards")?;
        }
        Action::FreeRequested => {
            live.get_mut(&event.address).ok_or("the block was not there")?.pending = false;
        }
        Action::FreeCompleted => {
            let block = Live {
                requested: event.size,
                size: None,
                pending: true,
            };
            if live.insert(event.address, block).is_some() {
                return Err("the block is there afterwards".to_owned());
            }
        }
        Action::SegmentAlloc => {
            segments
                .remove(&event.address)
                .ok_or("the segment is not there afterwards")?;
        }
        Action::SegmentFree => {
            let segment = SegmentReport {
                address: event.address,
                size: event.size,
                stream: crate::driver::StreamId(event.stream),
                small: event.size == SMALL_SEGMENT,
                pool: entry.map(|e| e.pool).unwrap_or_default(),
                expandable: false,
                blocks: Vec::new(),
            };
            segments.insert(event.address, segment);
        }
        Action::SegmentMap => cut(expandable, event.address, end.ok_or("beyond the last address")?),
        Action::SegmentUnmap => drop(expandable.insert(event.address, end.ok_or("beyond the last address")?)),
        Action::Oom | Action::Snapshot => {}
    }
    Ok(())
}

/// Takes start..end out of the mapped pieces.
fn cut(pieces: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    let touched: Vec<(u64, u64)> = pieces
        .range(..end)
        .rev()
        .take_while(|(_, e)| **e > start)
        .map(|(s, e)| (*s, *e))
        .collect();
    for (from, to) in touched {
        pieces.remove(&from);
        if from < start {
            pieces.insert(from, start);
        }
        if to > end {
            pieces.insert(end, to);
        }
    }
}

/// Puts the live blocks into a segment and makes the gaps free blocks.
fn fill(
    mut segment: SegmentReport,
    live: &BTreeMap<u64, Live>,
    events: &[Event],
    settings: &Settings,
    open: &mut usize,
) -> Result<SegmentReport, String> {
    let end = segment
        .address
        .checked_add(segment.size)
        .ok_or("a segment beyond the last address")?;
    let mut at = segment.address;
    let inside: Vec<(u64, Live)> = live.range(segment.address..end).map(|(a, b)| (*a, *b)).collect();
    for (place, (address, block)) in inside.iter().enumerate() {
        if *address < at {
            return Err(format!("blocks overlap at {address:#x}"));
        }
        if *address > at {
            segment.blocks.push(free(at, address - at));
        }
        let next = inside.get(place + 1).map_or(end, |(a, _)| *a);
        let size = match block.size {
            Some(size) => size,
            None => {
                size_of(*address, block.requested, next, segment.small, events, settings).unwrap_or_else(|rounded| {
                    *open += 1;
                    rounded
                })
            }
        };
        if size > next - address {
            return Err(format!("the block at {address:#x} reaches into the next one"));
        }
        segment.blocks.push(BlockReport {
            address: *address,
            size,
            requested: block.requested,
            state: if block.pending {
                BlockState::Pending
            } else {
                BlockState::Live
            },
        });
        at = address + size;
    }
    if at < end {
        segment.blocks.push(free(at, end - at));
    }
    Ok(segment)
}

/// The size of a block that is freed in the log: its rounded size and the rest that was too small to be split off
/// (allocator-spec 2.3). Up to the next live block that rest is the whole gap if it is small enough; else the first block
/// placed behind shows where the free block begins. `Err`: nothing shows it; the rounded size.
fn size_of(
    address: u64,
    bytes: u64,
    next: u64,
    small: bool,
    events: &[Event],
    settings: &Settings,
) -> Result<u64, u64> {
    let rounded = block_size(bytes.clamp(1, ONE_EXABYTE), &settings.config, &settings.rules);
    let gap = (next - address).saturating_sub(rounded);
    let unsplit = if small { MIN_BLOCK - 1 } else { SMALL_LIMIT };
    if gap <= unsplit || rounded >= settings.config.split_limit() {
        return Ok(rounded + gap);
    }
    let while_there = events
        .iter()
        .take_while(|e| e.action != Action::FreeCompleted || e.address != address);
    let behind = address + rounded..next;
    let mut placed = while_there.filter(|e| e.action == Action::Alloc && behind.contains(&e.address));
    match placed.next() {
        Some(first) if first.address - behind.start <= unsplit => Ok(first.address - address),
        _ if small => Ok(rounded),
        _ => Err(rounded),
    }
}

fn free(address: u64, size: u64) -> BlockReport {
    BlockReport {
        address,
        size,
        requested: 0,
        state: BlockState::Free,
    }
}
