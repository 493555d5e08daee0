//! Writes a snapshot as torch.cuda.memory._dump_snapshot does: the same dict in the same order, pickle protocol 4.
//!
//! Rules of the viewer (allocator-spec 5.4): only plain opcodes, at most 1,000 items a batch, integers of minimal
//! length, a trace list for every device that a segment names.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::allocator::{Action, Config, PoolId, Report, Rules, SegmentReport, TraceEntry};

/// Items a batch: the viewer spreads each batch as call arguments.
const BATCH: usize = 1_000;

/// Writes device 0's segments and events as one snapshot file.
///
/// # Errors
/// Those of `out`.
pub fn write(
    report: &Report,
    events: &[TraceEntry],
    rules: &Rules,
    config: &Config,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut pickler = Pickler {
        out,
        memo: HashMap::new(),
    };
    pickler.raw(b"\x80\x04")?;
    pickler.dict(|p| {
        p.key("segments")?;
        p.list(&report.segments, write_segment)?;
        p.key("device_traces")?;
        p.list(&[events], |p, events| {
            p.list(events, |p, entry| write_entry(p, entry, rules))
        })?;
        p.key("allocator_settings")?;
        write_settings(p, config)?;
        p.key("external_annotations")?;
        p.list(&[] as &[()], |_, ()| Ok(()))
    })?;
    pickler.raw(b".")
}

fn write_segment(p: &mut Pickler<'_>, segment: &SegmentReport) -> io::Result<()> {
    p.dict(|p| {
        p.number("device", 0)?;
        p.number("address", segment.address)?;
        p.number("total_size", segment.size)?;
        p.number("allocated_size", segment.allocated())?;
        p.number("active_size", segment.active())?;
        p.number("requested_size", segment.requested())?;
        p.number("stream", segment.stream.0)?;
        p.key("segment_type")?;
        p.text(if segment.small { "small" } else { "large" })?;
        p.key("segment_pool_id")?;
        p.pool(segment.pool)?;
        p.key("is_expandable")?;
        p.boolean(segment.expandable)?;
        p.frames()?;
        p.key("blocks")?;
        p.list(&segment.blocks, |p, block| {
            p.dict(|p| {
                p.number("address", block.address)?;
                p.number("size", block.size)?;
                p.number("requested_size", block.requested)?;
                p.key("state")?;
                p.text(block.state.name())?;
                p.frames()
            })
        })
    })
}

fn write_entry(p: &mut Pickler<'_>, entry: &TraceEntry, rules: &Rules) -> io::Result<()> {
    p.dict(|p| {
        p.key("action")?;
        p.text(entry.action.name())?;
        p.number(
            if entry.action == Action::Oom {
                "device_free"
            } else {
                "addr"
            },
            entry.address,
        )?;
        p.number("size", entry.size)?;
        p.number("stream", entry.stream.0)?;
        p.number("time_us", entry.time_us)?;
        p.key("compile_context")?;
        p.text("N/A")?;
        p.key("user_metadata")?;
        p.text("")?;
        // Files of 2.12 and later name the pool (allocator-spec 5.1).
        if rules.rejections {
            p.key("pool_id")?;
            p.pool(entry.pool)?;
        }
        Ok(())
    })
}

fn write_settings(p: &mut Pickler<'_>, config: &Config) -> io::Result<()> {
    p.dict(|p| {
        p.key("PYTORCH_CUDA_ALLOC_CONF")?;
        p.text(&config.text)?;
        p.key("max_split_size")?;
        p.integer(config.max_split_size.map_or(-1, i128::from))?;
        p.key("garbage_collection_threshold")?;
        p.float(config.gc_threshold)?;
        p.key("expandable_segments")?;
        p.boolean(config.expandable_segments)?;
        p.number("pinned_num_register_threads", config.echo.pinned_num_register_threads)?;
        for (key, on) in [
            ("release_lock_on_cudamalloc", config.echo.release_lock_on_cudamalloc),
            (
                "pinned_use_cuda_host_register",
                config.echo.pinned_use_cuda_host_register,
            ),
            (
                "graph_capture_record_stream_reuse",
                config.echo.graph_capture_record_stream_reuse,
            ),
        ] {
            p.key(key)?;
            p.boolean(on)?;
        }
        p.key("roundup_power2_divisions")?;
        p.dict(|p| {
            for (power, divisions) in config.roundup.iter().enumerate() {
                p.number(&(1u64 << power).to_string(), *divisions)?;
            }
            Ok(())
        })
    })
}

struct Pickler<'a> {
    out: &'a mut dyn Write,
    /// Texts that were written before, by their number in the memo.
    memo: HashMap<String, u32>,
}

impl Pickler<'_> {
    fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Text; the second time by its number.
    fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(number) = self.memo.get(text) {
            let number = *number;
            if let Ok(short) = u8::try_from(number) {
                return self.raw(&[b'h', short]);
            }
            self.raw(b"j")?;
            return self.raw(&number.to_le_bytes());
        }
        if let Ok(short) = u8::try_from(text.len()) {
            self.raw(&[0x8c, short])?;
        } else {
            self.raw(b"X")?;
            self.raw(&(text.len() as u32).to_le_bytes())?;
        }
        self.raw(text.as_bytes())?;
        self.raw(&[0x94])?;
        self.memo.insert(text.to_owned(), self.memo.len() as u32);
        Ok(())
    }

    fn key(&mut self, key: &str) -> io::Result<()> {
        self.text(key)
    }

    fn number(&mut self, key: &str, value: u64) -> io::Result<()> {
        self.key(key)?;
        self.integer(i128::from(value))
    }

    fn integer(&mut self, value: i128) -> io::Result<()> {
        if let Ok(n) = u8::try_from(value) {
            return self.raw(&[b'K', n]);
        }
        if let Ok(n) = u16::try_from(value) {
            self.raw(b"M")?;
            return self.raw(&n.to_le_bytes());
        }
        if let Ok(n) = i32::try_from(value) {
            self.raw(b"J")?;
            return self.raw(&n.to_le_bytes());
        }
        // The shortest two's complement form: the last byte must still show the sign.
        let bytes = value.to_le_bytes();
        let shorter = |n: &usize| {
            let filler = if value < 0 { 0xff } else { 0 };
            bytes[*n..].iter().all(|b| *b == filler) && (bytes[*n - 1] & 0x80 != 0) == (value < 0)
        };
        let length = (1..16).find(shorter).unwrap_or(16);
        self.raw(&[0x8a, length as u8])?;
        self.raw(&bytes[..length])
    }

    fn boolean(&mut self, on: bool) -> io::Result<()> {
        self.raw(if on { b"\x88" } else { b"\x89" })
    }

    fn float(&mut self, value: f64) -> io::Result<()> {
        self.raw(b"G")?;
        self.raw(&value.to_be_bytes())
    }

    fn pool(&mut self, pool: PoolId) -> io::Result<()> {
        self.integer(i128::from(pool.0))?;
        self.integer(i128::from(pool.1))?;
        self.raw(b"\x86")
    }

    /// We record no stacks.
    fn frames(&mut self) -> io::Result<()> {
        self.key("frames")?;
        self.raw(b"]")
    }

    fn dict(&mut self, items: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.raw(b"}(")?;
        items(self)?;
        self.raw(b"u")
    }

    fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T) -> io::Result<()>) -> io::Result<()> {
        self.raw(b"]")?;
        for batch in items.chunks(BATCH) {
            self.raw(b"(")?;
            for value in batch {
                item(self, value)?;
            }
            self.raw(b"e")?;
        }
        Ok(())
    }
}
