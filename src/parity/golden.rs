//! Golden recordings: one workload a line, recorded from the real library on the driver stand-in.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::stand_in::StandIn;
use super::tally::{Counters, Tally};
use crate::allocator::{AllocError, Allocator, Config, PoolId, Rules, Settings};
use crate::driver::StreamId;

#[derive(Deserialize)]
struct Workload {
    torch: String,
    conf: String,
    device_total: u64,
    #[serde(default)]
    start: BTreeMap<String, i64>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    op: Vec<Value>,
    #[serde(default)]
    oom: bool,
    #[serde(default)]
    set: BTreeMap<String, i64>,
}

/// The stream that frees are recorded on: one that no workload allocates on.
const SIDE: StreamId = StreamId(u64::MAX);

/// Devices above 16 TiB are taken for damage: their addresses would not fit the stand-in's.
const LARGEST_DEVICE: u64 = 1 << 44;

/// Replays every line.
pub(super) fn replay(text: &str, over: Option<&Rules>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let number = number + 1;
        let workload: Workload = serde_json::from_str(line).map_err(|e| anyhow!("line {number}: {e}"))?;
        replay_line(&workload, over, number, &mut tally).with_context(|| format!("line {number}"))?;
    }
    ensure!(tally.operations > 0, "the file holds no workload");
    Ok(tally)
}

fn replay_line(workload: &Workload, over: Option<&Rules>, line: usize, tally: &mut Tally) -> anyhow::Result<()> {
    let rules = match over {
        Some(rules) => rules.clone(),
        None => Rules::of(&workload.torch)?,
    };
    rules.note().into_iter().for_each(|n| tally.note(n));
    ensure!(
        workload.device_total <= LARGEST_DEVICE,
        "a device of {} bytes",
        workload.device_total
    );
    let config = Config::parse(&workload.conf, &rules).context("configuration")?;
    let mut run = Run {
        allocator: Allocator::new(StandIn::new(workload.device_total), Settings { rules, config }),
        live: HashMap::new(),
        refused: HashSet::new(),
        released: false,
    };
    run.allocator.set_event_capacity(0);
    let mut counters = Counters::new();
    for (key, value) in &workload.start {
        counters.set(key, *value);
    }
    let known = tally.differences;
    for (at, step) in workload.steps.iter().enumerate() {
        let context = || format!("line {line} step {} {}", at + 1, Value::Array(step.op.clone()));
        let oom = match run.step(&step.op) {
            Err(Stop::Defect(what)) => {
                tally.note(format!(
                    "line {line} step {}: {what}; not compared from here on",
                    at + 1
                ));
                return Ok(());
            }
            // After a difference the rest of a workload may make no sense.
            Err(Stop::Bad(error)) if tally.differences > known => {
                tally.note(format!("line {line}: the replay ended at step {}: {error:#}", at + 1));
                return Ok(());
            }
            Err(Stop::Bad(error)) => return Err(error.context(format!("step {}", at + 1))),
            Ok(oom) => oom,
        };
        tally.operations += 1;
        tally.same(&oom, &step.oom, || format!("{}: out of memory", context()));
        for (key, value) in &step.set {
            counters.set(key, *value);
        }
        let before = tally.differences;
        counters.compare(run.allocator.stats(), run.allocator.rules(), tally, context);
        if tally.differences > before && run.released && run.allocator.config().expandable_segments {
            tally.differences = before;
            tally.first = tally.first.take().filter(|_| before > 0);
            tally.note(format!(
                "line {line} step {}: upstream defect (allocator-spec 4.7): the real library loses count of a released \
                 pool with expandable segments; not imitated, not compared from here on",
                at + 1
            ));
            return Ok(());
        }
    }
    Ok(())
}

struct Run {
    allocator: Allocator<StandIn>,
    live: HashMap<String, u64>,
    /// Blocks that ran out of memory here: a recorded free of one follows from a difference that was counted.
    refused: HashSet<String>,
    released: bool,
}

enum Stop {
    /// The real library stops or errs here by a defect of its own.
    Defect(String),
    Bad(anyhow::Error),
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Stop::Bad(error)
    }
}

impl From<AllocError> for Stop {
    fn from(error: AllocError) -> Self {
        match error {
            AllocError::Assert { .. } => Stop::Defect(error.to_string()),
            _ => Stop::Bad(error.into()),
        }
    }
}

impl Run {
    /// Performs one operation; true if it ran out of memory.
    fn step(&mut self, op: &[Value]) -> Result<bool, Stop> {
        let name = op
            .first()
            .and_then(Value::as_str)
            .ok_or_else(|| anyhow!("an operation without a name"))?;
        match name {
            "malloc" => return self.malloc(op),
            "free" => self.free(op)?,
            "empty_cache" => self.allocator.empty_cache()?,
            "reset_peak" => self.allocator.reset_peak(),
            "reset_accumulated" => self.allocator.reset_accumulated(),
            "events_ready" => self.allocator.driver_mut().events_ready = flag(op, 1)?,
            "fraction" => {
                let fraction = op
                    .get(1)
                    .and_then(Value::as_f64)
                    .ok_or_else(|| anyhow!("fraction without a number"))?;
                self.allocator.set_memory_fraction(fraction)?;
            }
            "begin_pool" => self.allocator.begin_pool(PoolId(0, number(op, 1)?))?,
            "end_pool" => self.allocator.end_pool(PoolId(0, number(op, 1)?))?,
            "release_pool" => {
                self.released = true;
                self.allocator.release_pool(PoolId(0, number(op, 1)?))?;
            }
            other => return Err(anyhow!("unknown operation {:?}", super::tally::printable(other)).into()),
        }
        Ok(false)
    }

    fn malloc(&mut self, op: &[Value]) -> Result<bool, Stop> {
        let (id, size, stream) = (id(op)?, number(op, 2)?, StreamId(number(op, 3)?));
        match self.allocator.malloc(size, stream) {
            Ok(address) => {
                if self.live.insert(id.clone(), address).is_some() {
                    return Err(anyhow!("block {id} is allocated twice").into());
                }
                Ok(false)
            }
            Err(AllocError::OutOfMemory(_)) => {
                self.refused.insert(id);
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn free(&mut self, op: &[Value]) -> Result<(), Stop> {
        let id = id(op)?;
        let address = self
            .live
            .remove(&id)
            .ok_or_else(|| anyhow!("block {id} is freed but not allocated"))?;
        if flag(op, 2)? && address != 0 {
            self.allocator.record_stream(address, SIDE)?;
        }
        Ok(self.allocator.free(address)?)
    }
}

fn id(op: &[Value]) -> anyhow::Result<String> {
    match op.get(1) {
        Some(Value::String(id)) => Ok(super::tally::printable(id)),
        Some(Value::Number(id)) => Ok(id.to_string()),
        _ => bail!("an operation without a block"),
    }
}

fn number(op: &[Value], at: usize) -> anyhow::Result<u64> {
    op.get(at)
        .and_then(Value::as_u64)
        .ok_or_else(|| anyhow!("value {at} is not a whole number"))
}

fn flag(op: &[Value], at: usize) -> anyhow::Result<bool> {
    match op.get(at) {
        Some(Value::Bool(b)) => Ok(*b),
        Some(Value::Number(n)) => Ok(n.as_u64() != Some(0)),
        None => Ok(false),
        _ => bail!("value {at} is not true or false"),
    }
}
