//! From a pickle to segments and events.

use std::collections::BTreeMap;

use super::pickle::{Pickle, Value};
use crate::allocator::{Action, BlockReport, BlockState, PoolId, Report, SegmentReport, TraceEntry};
use crate::driver::StreamId;

/// What a snapshot file holds.
#[derive(Debug)]
pub struct Snapshot {
    /// Devices that have a segment or an event, by index.
    pub devices: BTreeMap<u64, DeviceSnapshot>,
    /// The settings string that was in force, if the file has one.
    pub conf: Option<String>,
    /// The oldest release whose files have these keys: `2.11` with user metadata, `2.13` with pool ids in the events.
    pub generation: &'static str,
}

/// One device of a snapshot.
#[derive(Debug, Default)]
pub struct DeviceSnapshot {
    /// Segments and blocks at the moment of the snapshot.
    pub report: Report,
    /// The event log, oldest first.
    pub events: Vec<TraceEntry>,
    /// Whether the events name their pool.
    pub pools_named: bool,
}

/// Reads a snapshot pickle.
///
/// # Errors
/// A sentence that says what is missing or of the wrong kind, and where.
pub fn read(bytes: &[u8]) -> Result<Snapshot, String> {
    let pickle = Pickle::parse(bytes).map_err(|e| e.to_string())?;
    let root = pickle.root;
    let mut devices: BTreeMap<u64, DeviceSnapshot> = BTreeMap::new();
    let segments = pickle
        .get(root, "segments")
        .ok_or("no key 'segments': not a snapshot of torch.cuda.memory")?;
    for (at, segment) in pickle.list(segments).ok_or("'segments' is no list")?.iter().enumerate() {
        let (device, segment) = read_segment(&pickle, *segment).map_err(|e| format!("segment {at}: {e}"))?;
        devices.entry(device).or_default().report.segments.push(segment);
    }
    let traces = pickle
        .get(root, "device_traces")
        .ok_or("no key 'device_traces': the file has no event log")?;
    let mut generation = if pickle.get(root, "allocator_settings").is_some() {
        "2.5"
    } else {
        "2.1"
    };
    for (device, trace) in pickle
        .list(traces)
        .ok_or("'device_traces' is no list")?
        .iter()
        .enumerate()
    {
        let entries = pickle.list(*trace).ok_or("a device trace is no list")?;
        for (at, entry) in entries.iter().enumerate() {
            let here = devices.entry(device as u64).or_default();
            if pickle.get(*entry, "pool_id").is_some() {
                (here.pools_named, generation) = (true, "2.13");
            } else if generation == "2.5" && pickle.get(*entry, "user_metadata").is_some() {
                generation = "2.11";
            }
            let entry =
                read_entry(&pickle, *entry, at as u64).map_err(|e| format!("device {device} event {at}: {e}"))?;
            here.events.extend(entry);
        }
    }
    for device in devices.values_mut() {
        device.report.segments.sort_by_key(|s| s.address);
    }
    let settings = pickle.get(root, "allocator_settings");
    let conf = settings
        .and_then(|s| pickle.get(s, "PYTORCH_CUDA_ALLOC_CONF"))
        .and_then(|v| pickle.text(v));
    Ok(Snapshot {
        devices,
        conf: conf.map(str::to_owned),
        generation,
    })
}

fn number(pickle: &Pickle, of: Value, key: &str) -> Result<u64, String> {
    let value = pickle.get(of, key).ok_or_else(|| format!("no key '{key}'"))?;
    Pickle::unsigned(value).ok_or_else(|| format!("'{key}' is no unsigned number"))
}

fn text<'a>(pickle: &'a Pickle, of: Value, key: &str) -> Result<&'a str, String> {
    let value = pickle.get(of, key).ok_or_else(|| format!("no key '{key}'"))?;
    pickle.text(value).ok_or_else(|| format!("'{key}' is no text"))
}

fn pool(pickle: &Pickle, of: Value, key: &str) -> PoolId {
    let pair = pickle.get(of, key).and_then(|v| pickle.list(v)).unwrap_or_default();
    match pair {
        [a, b] => Pickle::unsigned(*a)
            .zip(Pickle::unsigned(*b))
            .map_or(PoolId::DEFAULT, |(a, b)| PoolId(a, b)),
        _ => PoolId::DEFAULT,
    }
}

fn read_segment(pickle: &Pickle, value: Value) -> Result<(u64, SegmentReport), String> {
    let (address, size) = (number(pickle, value, "address")?, number(pickle, value, "total_size")?);
    let mut segment = SegmentReport {
        address,
        size,
        stream: StreamId(number(pickle, value, "stream")?),
        small: text(pickle, value, "segment_type")? == "small",
        pool: pool(pickle, value, "segment_pool_id"),
        expandable: pickle.get(value, "is_expandable") == Some(Value::Bool(true)),
        blocks: Vec::new(),
    };
    let blocks = pickle
        .get(value, "blocks")
        .and_then(|v| pickle.list(v))
        .ok_or("no list 'blocks'")?;
    let mut at = address;
    for block in blocks {
        let size = number(pickle, *block, "size")?;
        let state = text(pickle, *block, "state")?;
        segment.blocks.push(BlockReport {
            // Files of 2.0 give no address: blocks follow each other.
            address: number(pickle, *block, "address").unwrap_or(at),
            size,
            requested: number(pickle, *block, "requested_size").unwrap_or(size),
            state: BlockState::from_name(state).ok_or_else(|| format!("unknown state of a block: {state:?}"))?,
        });
        at = at.checked_add(size).ok_or("blocks beyond the last address")?;
    }
    if address.checked_add(size) != Some(at) {
        return Err("its blocks do not add up to its size".to_owned());
    }
    Ok((number(pickle, value, "device")?, segment))
}

/// One event; `None` for kinds that do not concern the allocator's state.
fn read_entry(pickle: &Pickle, value: Value, sequence: u64) -> Result<Option<TraceEntry>, String> {
    let Some(action) = Action::from_name(text(pickle, value, "action")?) else {
        return Ok(None);
    };
    let address = if action == Action::Oom { "device_free" } else { "addr" };
    Ok(Some(TraceEntry {
        action,
        address: number(pickle, value, address)?,
        size: number(pickle, value, "size")?,
        stream: StreamId(number(pickle, value, "stream")?),
        pool: pool(pickle, value, "pool_id"),
        // Files of 2.1 have no times.
        time_us: number(pickle, value, "time_us").unwrap_or_default(),
        sequence,
    }))
}
