//! Trace recordings: one process on a real card, every operation with the counters after it and torch's own event log.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context, anyhow, bail, ensure};
use serde::Deserialize;

use super::scripted::{Event, Scripted};
use super::tally::{Counters, Tally};
use crate::allocator::{
    Action, AllocError, Allocator, Config, OomKind, OutOfMemory, Report, Rules, SegmentReport, Settings, TraceEntry,
};
use crate::driver::StreamId;

/// A whole trace file.
#[derive(Deserialize)]
pub(super) struct Trace {
    pub torch: String,
    pub conf: String,
    #[serde(default)]
    device_total: Option<u64>,
    #[serde(default)]
    limit_bytes: Option<u64>,
    #[serde(default)]
    fraction: Option<f64>,
    #[serde(default)]
    streams: Vec<u64>,
    #[serde(default)]
    base: BTreeMap<String, i64>,
    #[serde(default)]
    ops: Option<Vec<Op>>,
    pub events: Vec<RawEvent>,
    #[serde(default)]
    pub stats: Option<BTreeMap<String, i64>>,
    #[serde(default)]
    pub segments: Option<Vec<Segment>>,
}

/// `[action, addr, size, stream]`.
#[derive(Deserialize)]
pub(super) struct RawEvent(String, u64, u64, u64);

#[derive(Deserialize)]
struct Op {
    #[serde(rename = "op")]
    name: String,
    #[serde(default)]
    id: Option<u64>,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    stream: Option<usize>,
    #[serde(default)]
    ptr: Option<u64>,
    #[serde(default)]
    oom: Option<String>,
    #[serde(default)]
    record_stream: Option<usize>,
    #[serde(default)]
    segments: Option<Vec<Segment>>,
    #[serde(default)]
    stats: BTreeMap<String, i64>,
}

/// A segment of a recorded snapshot.
#[derive(Deserialize)]
pub(super) struct Segment {
    pub address: u64,
    pub total_size: u64,
    pub stream: u64,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub exp: Option<bool>,
    #[serde(default)]
    pub allocated: Option<u64>,
    #[serde(default)]
    pub active: Option<u64>,
    #[serde(default)]
    pub requested: Option<u64>,
    pub blocks: Vec<(u64, u64, u64, String)>,
}

/// Torch's events that concern the allocator's state; its own `snapshot` calls and later kinds of notes do not.
pub(super) fn events(raw: &[RawEvent]) -> Vec<Event> {
    let known = raw.iter().filter_map(|RawEvent(action, address, size, stream)| {
        let action = Action::from_name(action).filter(|a| *a != Action::Snapshot)?;
        Some(Event {
            action,
            address: *address,
            size: *size,
            stream: *stream,
        })
    });
    known.collect()
}

/// The device's total where a recording does not name it: the card that these recordings come from, or what the log
/// maps, whichever is more. It decides only how many addresses an expandable segment reserves.
pub(super) fn assumed_total(events: &[Event]) -> u64 {
    let mapped = events.iter().filter(|e| e.action == Action::SegmentMap).map(|e| e.size);
    mapped.fold(0u64, u64::saturating_add).clamp(150_109_880_320, 1 << 50)
}

/// Replays a trace with operations; without any it is a bare event log.
pub(super) fn replay(text: &str, over: Option<&Rules>) -> anyhow::Result<Tally> {
    let trace: Trace = serde_json::from_str(text).map_err(|e| anyhow!("not a recording: {e}"))?;
    let mut tally = Tally::default();
    let rules = match over {
        Some(rules) => rules.clone(),
        None => Rules::of(&trace.torch)?,
    };
    rules.note().into_iter().for_each(|n| tally.note(n));
    let config = Config::parse(&trace.conf, &rules).context("configuration")?;
    match &trace.ops {
        None => super::log::replay_trace(&trace, Settings { rules, config }, &mut tally)?,
        Some(ops) => Run::new(&trace, Settings { rules, config })?.replay(ops, &mut tally)?,
    }
    Ok(tally)
}

struct Run<'a> {
    trace: &'a Trace,
    allocator: Allocator<Scripted>,
    recorded: Vec<Event>,
    /// How many recorded events were compared.
    passed: usize,
    ours: Vec<TraceEntry>,
    live: HashMap<u64, u64>,
    /// Requests that ran out of memory here only.
    refused: HashSet<u64>,
    /// The other stream that a pending block waits for.
    waits_for: HashMap<u64, StreamId>,
}

impl<'a> Run<'a> {
    fn new(trace: &'a Trace, settings: Settings) -> anyhow::Result<Self> {
        for (key, value) in &trace.base {
            if *value != 0 && key != "max_split_size" {
                bail!("the recording starts with {key} = {value}: what was allocated before is not in it");
            }
        }
        let recorded = events(&trace.events);
        let total = trace.device_total.unwrap_or_else(|| assumed_total(&recorded));
        let mut allocator = Allocator::new(Scripted::new(&recorded, total), settings);
        match (trace.fraction, trace.limit_bytes) {
            (Some(fraction), limit) => {
                allocator.set_memory_fraction(fraction)?;
                ensure!(
                    limit.is_none() || allocator.limit() == limit || fraction >= 1.0,
                    "a fraction of {fraction} gives a limit of {:?}, the recording says {limit:?}",
                    allocator.limit()
                );
            }
            (None, Some(limit)) => allocator.set_memory_fraction(limit as f64 / total as f64)?,
            (None, None) => {}
        }
        Ok(Run {
            trace,
            allocator,
            recorded,
            passed: 0,
            ours: Vec::new(),
            live: HashMap::new(),
            refused: HashSet::new(),
            waits_for: HashMap::new(),
        })
    }

    fn replay(mut self, ops: &[Op], tally: &mut Tally) -> anyhow::Result<()> {
        let mut counters = Counters::new();
        for (key, value) in &self.trace.base {
            counters.set(key, *value);
        }
        for (at, op) in ops.iter().enumerate() {
            let context = || {
                format!(
                    "operation {} {} {}",
                    at + 1,
                    super::tally::printable(&op.name),
                    describe(op)
                )
            };
            match self.step(op, tally, &context) {
                Ok(()) => {}
                Err(error) if error.downcast_ref::<AllocError>().is_some_and(is_upstream) => {
                    tally.note(format!("{}: {error}; not compared from here on", context()));
                    return Ok(());
                }
                // After a difference the rest of a recording may make no sense.
                Err(error) if tally.differences > 0 => {
                    tally.note(format!("the replay ended at operation {}: {error:#}", at + 1));
                    return Ok(());
                }
                Err(error) => return Err(error.context(format!("operation {}", at + 1))),
            }
            tally.operations += 1;
            self.compare_events(tally, &context);
            for (key, value) in &op.stats {
                counters.set(key, *value);
            }
            counters.compare(self.allocator.stats(), self.allocator.rules(), tally, context);
        }
        tally.same(&self.passed, &self.recorded.len(), || "events at the end".to_owned());
        tally.same(&self.allocator.driver().left(), &0, || {
            "segment calls left over".to_owned()
        });
        Ok(())
    }

    fn stream(&self, index: Option<usize>) -> anyhow::Result<StreamId> {
        let handle = index
            .and_then(|i| self.trace.streams.get(i))
            .context("no such stream in the recording")?;
        Ok(StreamId(*handle))
    }

    /// Where several streams hold blocks back, the order in which they let go is the recording's.
    fn order_streams(&mut self) {
        let ahead = self.recorded[self.passed.min(self.recorded.len())..].iter();
        let own = ahead.take_while(|e| e.action != Action::FreeRequested && e.action != Action::Alloc);
        let completed = own.filter(|e| e.action == Action::FreeCompleted);
        let streams: Vec<StreamId> = completed.filter_map(|e| self.waits_for.remove(&e.address)).collect();
        if streams.len() > 1 {
            self.allocator.order_streams(&streams);
        }
    }

    fn step(&mut self, op: &Op, tally: &mut Tally, context: &impl Fn() -> String) -> anyhow::Result<()> {
        if matches!(op.name.as_str(), "alloc" | "empty_cache") && !self.waits_for.is_empty() {
            self.order_streams();
        }
        match op.name.as_str() {
            "alloc" => self.alloc(op, tally, context)?,
            "free" => self.free(op)?,
            "empty_cache" => self.allocator.empty_cache()?,
            "reset_peak" => self.allocator.reset_peak(),
            "reset_accumulated" => self.allocator.reset_accumulated(),
            "synchronize" => {
                let driver = self.allocator.driver_mut();
                driver.completed.up_to = driver.last_event;
            }
            "snapshot" => {
                let recorded = op.segments.as_ref().context("a snapshot without segments")?;
                compare_segments(&self.allocator.report(), recorded, true, tally, context);
            }
            other => bail!("unknown operation {:?}", super::tally::printable(other)),
        }
        Ok(())
    }

    fn alloc(&mut self, op: &Op, tally: &mut Tally, context: &impl Fn() -> String) -> anyhow::Result<()> {
        let (id, size) = (op.id.context("no id")?, op.size.context("no size")?);
        let stream = self.stream(op.stream)?;
        match self.allocator.malloc(size, stream) {
            Ok(address) => {
                tally.same(&Some(address), &op.ptr, || format!("{}: placement", context()));
                if self.live.insert(id, address).is_some() {
                    bail!("block {id} is allocated twice");
                }
            }
            Err(AllocError::OutOfMemory(error)) => {
                if error.kind == OomKind::Exhausted {
                    self.allocator.driver_mut().pass_oom();
                }
                if let Some(text) = &op.oom {
                    compare_sentence(&error, text, tally, context);
                } else {
                    self.refused.insert(id);
                    tally.differ(|| format!("{}: out of memory here only: {error}", context()));
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn free(&mut self, op: &Op) -> anyhow::Result<()> {
        let id = op.id.context("no id")?;
        let address = self
            .live
            .remove(&id)
            .with_context(|| format!("block {id} is freed but not allocated"))?;
        if op.record_stream.is_some() {
            let stream = self.stream(op.record_stream)?;
            self.allocator.record_stream(address, stream)?;
            if self.allocator.block(address).is_some_and(|b| b.stream != stream) {
                self.waits_for.insert(address, stream);
            }
        }
        Ok(self.allocator.free(address)?)
    }

    /// Our events since the last operation against the next recorded ones.
    fn compare_events(&mut self, tally: &mut Tally, context: &impl Fn() -> String) {
        self.ours.clear();
        self.allocator.drain_events(&mut self.ours);
        for entry in &self.ours {
            let recorded = self.recorded.get(self.passed).copied();
            tally.compared += 3;
            tally.same(&Some(as_event(entry)), &recorded, || {
                format!("{}: event {}", context(), self.passed + 1)
            });
            self.passed += 1;
        }
        for what in std::mem::take(&mut self.allocator.driver_mut().unexpected) {
            tally.differ(|| format!("{}: {what}", context()));
        }
    }
}

/// The recording's library stops here by a defect that is not imitated.
fn is_upstream(error: &AllocError) -> bool {
    matches!(error, AllocError::Assert { .. })
}

fn describe(op: &Op) -> String {
    let id = op.id.map(|id| format!("id {id}"));
    let size = op.size.map(|n| format!("{n} bytes"));
    id.into_iter().chain(size).collect::<Vec<_>>().join(", ")
}

/// Our log entry in the recording's form.
pub(super) fn as_event(entry: &TraceEntry) -> Event {
    Event {
        action: entry.action,
        address: entry.address,
        size: entry.size,
        stream: entry.stream.0,
    }
}

/// What every process clause of the sentence ends with.
const LAST_OF_PROCESSES: &str = "memory in use. ";

/// Compares the sentence figure by figure: everything but the processes, which only the recording's NVML knew.
pub(super) fn compare_sentence(ours: &OutOfMemory, text: &str, tally: &mut Tally, context: &impl Fn() -> String) {
    let mut recorded = text.to_owned();
    let start = ["Process ", "Including non-PyTorch memory"]
        .into_iter()
        .filter_map(|s| recorded.find(s))
        .min();
    let end = recorded.rfind(LAST_OF_PROCESSES).map(|at| at + LAST_OF_PROCESSES.len());
    if let Some((start, end)) = start.zip(end).filter(|(start, end)| start < end) {
        recorded.replace_range(start..end, "");
    }
    // PyTorch appends a C++ stack to the sentence when it has one.
    let mut recorded = recorded
        .split("\nException raised")
        .next()
        .unwrap_or_default()
        .trim_end();
    let mut ours = ours.clone();
    // Which of several cards it was is the recording's affair.
    let number = recorded
        .split("GPU ")
        .nth(1)
        .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    ours.device = number.and_then(|n| n.parse().ok()).unwrap_or(ours.device);
    let mut text = ours.to_string();
    if !ours.text_is_exact() {
        // Behind the figures comes advice in words that were never seen.
        recorded = figures(recorded);
        text.truncate(figures(&text).len());
    }
    let numbers = recorded
        .split(|c: char| !c.is_ascii_digit())
        .filter(|s| !s.is_empty())
        .count();
    tally.compared += numbers as u64;
    tally.same(&text.as_str(), &recorded, || {
        format!("{}: out-of-memory sentence", context())
    });
}

/// The sentence up to its last figure.
fn figures(text: &str) -> &str {
    const LAST: &str = "reserved by PyTorch but unallocated.";
    text.find(LAST).map_or(text, |at| &text[..at + LAST.len()])
}

/// Compares a report with recorded segments, field by field. `stale`: also what free blocks were last asked for.
pub(super) fn compare_segments(
    report: &Report,
    recorded: &[Segment],
    stale: bool,
    tally: &mut Tally,
    context: &impl Fn() -> String,
) {
    tally.same(&report.segments.len(), &recorded.len(), || {
        format!("{}: segments", context())
    });
    let mut recorded: Vec<&Segment> = recorded.iter().collect();
    recorded.sort_by_key(|s| s.address);
    for (ours, theirs) in report.segments.iter().zip(recorded) {
        let place = || format!("{}: segment {:#x}", context(), theirs.address);
        tally.same(&ours.address, &theirs.address, || format!("{}: address", place()));
        tally.same(&ours.size, &theirs.total_size, || format!("{}: total_size", place()));
        tally.same(&ours.stream.0, &theirs.stream, || format!("{}: stream", place()));
        tally.same(&ours.small, &(theirs.kind == "small"), || format!("{}: small", place()));
        for (is, was, what) in [
            (
                Some(u64::from(ours.expandable)),
                theirs.exp.map(u64::from),
                "is_expandable",
            ),
            (Some(ours.allocated()), theirs.allocated, "allocated_size"),
            (Some(ours.active()), theirs.active, "active_size"),
            (Some(ours.requested()), theirs.requested, "requested_size"),
        ] {
            if was.is_some() {
                tally.same(&is, &was, || format!("{}: {what}", place()));
            }
        }
        compare_blocks(ours, &theirs.blocks, stale, tally, &place);
    }
}

fn compare_blocks(
    ours: &SegmentReport,
    theirs: &[(u64, u64, u64, String)],
    stale: bool,
    tally: &mut Tally,
    place: &impl Fn() -> String,
) {
    tally.same(&ours.blocks.len(), &theirs.len(), || format!("{}: blocks", place()));
    for (block, (address, size, requested, state)) in ours.blocks.iter().zip(theirs) {
        let here = || format!("{} block {address:#x}", place());
        tally.same(&block.address, address, || format!("{}: address", here()));
        tally.same(&block.size, size, || format!("{}: size", here()));
        tally.same(&block.state.name(), &state.as_str(), || format!("{}: state", here()));
        if stale || block.state.name() != "inactive" {
            tally.same(&block.requested, requested, || format!("{}: requested_size", here()));
        }
    }
}
