//! The report that `w` writes: one frame's figures as JSON.

use super::App;
use crate::sample::bill::Bill;
use crate::ui::text;
use crate::worker::Place;

/// Figures, bill, blocks and counters as one JSON text (key `w`). Bytes are integers, unknown is null.
pub(super) fn report_json(app: &App) -> String {
    let sample = app.shown();
    let figures = sample.map(|s| App::figures(s)).unwrap_or_default();
    let bill = sample.map(|s| Bill::of(s));
    let device = sample.and_then(|s| s.device.identity.value());
    let lines: serde_json::Map<String, serde_json::Value> = bill
        .iter()
        .flat_map(|b| b.lines.iter())
        .map(|l| {
            (
                l.kind.word().to_string(),
                serde_json::json!(l.bytes.value().map(|b| b.0)),
            )
        })
        .collect();
    let blocks: Vec<serde_json::Value> = app
        .worker
        .blocks
        .iter()
        .map(|b| {
            serde_json::json!({
                "id": b.key.0, "place": if b.place == Place::Gpu { "gpu" } else { "cpu" }, "shape": b.shape.dimensions(),
                "dtype": b.dtype.name(), "bytes": b.bytes.0, "block_bytes": b.block_bytes.0, "pending": b.pending,
                "stream": b.stream.0,
            })
        })
        .collect();
    let own = app.watched.is_none();
    let document = serde_json::json!({
        "schema": "alloctop.report/1",
        "version": env!("CARGO_PKG_VERSION"),
        "seconds_since_start": app.now.secs(),
        "pid": app.watched.unwrap_or(app.setup.own_pid),
        "device": device.map(|d| serde_json::json!({
            "index": d.index, "name": d.name, "uuid": d.uuid, "simulated": d.simulated,
        })),
        "torch_rules": own.then_some(&app.worker.torch),
        "configuration": own.then_some(&app.worker.conf),
        "rss_bytes": figures[0], "process_vram_bytes": figures[1], "allocated_bytes": figures[2], "reserved_bytes": figures[3],
        "bill": { "total_bytes": bill.as_ref().and_then(|b| b.total.value().map(|t| t.0)), "lines": lines,
            "unexplained_bytes": bill.and_then(|b| b.unexplained).and_then(|u| i64::try_from(u.0).ok()) },
        "blocks": if own { Some(blocks) } else { None },
        "memory_stats": sample.and_then(|s| s.counters.value()).map(|c| crate::once::stats_map(c)),
    });
    let mut out = serde_json::to_string_pretty(&document).unwrap_or_else(|error| text::json_error(&error));
    out.push('\n');
    out
}
