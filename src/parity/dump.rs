//! Snapshot pickles with an event log: each device is replayed and compared with its final segments.

use std::collections::HashMap;

use anyhow::{Context, anyhow, bail};

use super::log::Log;
use super::scripted::Event;
use super::tally::Tally;
use super::trace::{Segment, assumed_total, compare_segments};
use crate::allocator::{Action, Config, PoolId, Report, Rules, Settings, TraceEntry};
use crate::snapshot::{DeviceSnapshot, read};

/// Replays every device of a snapshot. Pickles name no release: the keys of the file tell its generation, `over`
/// (`--torch`) overrules.
pub(super) fn replay(bytes: &[u8], over: Option<&Rules>) -> anyhow::Result<Tally> {
    let snapshot = read(bytes).map_err(|e| anyhow!(e))?;
    let mut tally = Tally::default();
    let rules = if let Some(rules) = over {
        rules.clone()
    } else {
        tally.note(format!(
            "a pickle names no release: its keys are those of {}; --torch overrules",
            snapshot.generation
        ));
        Rules::of(snapshot.generation)?
    };
    rules.note().into_iter().for_each(|n| tally.note(n));
    let config = Config::parse(snapshot.conf.as_deref().unwrap_or_default(), &rules).context("configuration")?;
    for (device, snapshot) in &snapshot.devices {
        let settings = Settings {
            rules: rules.clone(),
            config: config.clone(),
        };
        replay_device(snapshot, settings, &mut tally).with_context(|| format!("device {device}"))?;
    }
    Ok(tally)
}

fn replay_device(snapshot: &DeviceSnapshot, settings: Settings, tally: &mut Tally) -> anyhow::Result<()> {
    let known = snapshot.events.iter().filter(|e| e.action != Action::Snapshot);
    let events: Vec<Event> = known.map(super::trace::as_event).collect();
    if events.is_empty() {
        bail!("the file has segments but no events: record_memory_history was off");
    }
    let total = assumed_total(&events);
    let entries: Vec<TraceEntry> = snapshot
        .events
        .iter()
        .filter(|e| e.action != Action::Snapshot)
        .copied()
        .collect();
    let first = super::late::first_state(&snapshot.report, &entries, &events, &settings).map_err(|e| anyhow!(e))?;
    if let Some(first) = &first {
        let held: u64 = first.report.segments.iter().map(|s| s.size).sum();
        tally.note(format!(
            "the recording starts late, with {held} bytes held: replayed from the first state that the events lead back to"
        ));
    }
    let log = Log {
        pools: pools(snapshot, &events),
        events,
        total,
        retries: None,
    };
    let before = tally.differences;
    let allocator = super::log::replay(&log, settings, first.as_ref(), tally)?;
    let recorded: Vec<Segment> = recorded(&snapshot.report);
    let report = allocator.report();
    for (ours, theirs) in report.segments.iter().zip(&snapshot.report.segments) {
        tally.same(&ours.pool, &theirs.pool, || {
            format!("at the end: pool of segment {:#x}", theirs.address)
        });
    }
    // What free blocks of the first state were last asked for is not in the file.
    compare_segments(&report, &recorded, first.is_none(), tally, &|| "at the end".to_owned());
    let open = first
        .as_ref()
        .map(|f| f.open.join(" and "))
        .filter(|o| !o.is_empty() && tally.differences > before);
    if let Some(open) = open {
        bail!(
            "the recording starts late, and its first state cannot be told: {open} is not in the file, and the likeliest \
             state does not lead to what was recorded ({})",
            tally.first.as_deref().unwrap_or_default()
        );
    }
    Ok(())
}

/// Which segments belong to a private pool: the events say so, or the final segment at that address does, if it was
/// not given back in between.
fn pools(snapshot: &DeviceSnapshot, events: &[Event]) -> HashMap<usize, PoolId> {
    let mut pools = HashMap::new();
    if snapshot.pools_named {
        let known = snapshot.events.iter().filter(|e| e.action != Action::Snapshot);
        pools.extend(
            known
                .enumerate()
                .filter(|(_, e)| e.pool != PoolId::DEFAULT)
                .map(|(at, e)| (at, e.pool)),
        );
        return pools;
    }
    let mut gone: Vec<(u64, u64)> = Vec::new();
    for (at, event) in events.iter().enumerate().rev() {
        let inside = |(start, end): &(u64, u64)| event.address >= *start && event.address < *end;
        match event.action {
            Action::SegmentFree | Action::SegmentUnmap => {
                gone.push((event.address, event.address.saturating_add(event.size)));
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                if let Some(place) = gone.iter().rposition(inside) {
                    gone.remove(place);
                    continue;
                }
                let segments = &snapshot.report.segments;
                let place = segments.partition_point(|s| s.address <= event.address);
                let segment = place.checked_sub(1).map(|i| &segments[i]);
                let found = segment.filter(|s| event.address - s.address < s.size && s.pool != PoolId::DEFAULT);
                pools.extend(found.map(|s| (at, s.pool)));
            }
            _ => {}
        }
    }
    pools
}

fn recorded(report: &Report) -> Vec<Segment> {
    let segment = |s: &crate::allocator::SegmentReport| Segment {
        address: s.address,
        total_size: s.size,
        stream: s.stream.0,
        kind: if s.small { "small" } else { "large" }.to_owned(),
        exp: Some(s.expandable),
        allocated: None,
        active: None,
        requested: None,
        blocks: s
            .blocks
            .iter()
            .map(|b| (b.address, b.size, b.requested, b.state.name().to_owned()))
            .collect(),
    };
    report.segments.iter().map(segment).collect()
}
