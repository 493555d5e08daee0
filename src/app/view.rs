//! Builds the view of one frame from the application's state and the size of the screen. Everything that is written on
//! the screen is decided here or in [`crate::ui::text`]; the panes only place it.

use ratatui::layout::Rect;

use super::action::{TABLE, Where};
use super::{App, Focus};
use crate::clock::Moment;
use crate::reading::Reading;
use crate::sample::bill::{Bill, LineKind};
use crate::source::MemoryInfoVersion;
use crate::ui::layout::{Areas, Shown};
use crate::ui::text::{self, span};
use crate::ui::theme::Role;
use crate::ui::view::{self, BillLine, Column, Line, Piece, Table, TimeAxis, View};
use crate::units::{Bytes, SignedBytes};
use crate::worker::{LiveBlock, Place};

impl App {
    /// The view for a screen of `area`. Keeps the tops of the automatic y ranges for the next frame.
    pub fn view(&mut self, area: Rect) -> View {
        let shown = Shown {
            alone: self.alone,
            table: self.table,
            strip: self.strip,
            long: crate::ui::pane::wrap(&self.sentence.0, area.width.saturating_sub(1)).len() > 2,
        };
        let areas = Areas::of(area, shown);
        let range = self.time_range();
        let panels = self.panels(&areas, range);
        View {
            header: self.header(),
            header_right: self.header_right(),
            panels,
            time: self.time_axis(),
            bill: self.bill(),
            blocks: self.blocks(),
            strip: self.strip_view(),
            table: self.table_view(),
            events: self.events(),
            events_title: format!("events: {}", self.log.len()),
            sentence: Piece::new(
                match self.short {
                    Some(short) if areas.sentence.height == 1 && area.width < 60 => short.to_string(),
                    _ => self.sentence.0.clone(),
                },
                if self.sentence.1 { Role::Alarm } else { Role::Text },
            ),
            footer: self.footer(),
            hint: self.hint(),
            overlay: self.overlay(area.width),
            shown,
        }
    }

    /// Both ends of the time axis: the right one is now, or where the pause stands.
    pub(super) fn time_range(&self) -> (Moment, Moment) {
        let right = match &self.paused {
            Some(paused) => paused.cursor,
            None => self.sample.as_ref().map_or(self.now, |s| s.at),
        };
        (Moment(right.0.saturating_sub(self.zoom)), right)
    }

    fn time_axis(&self) -> TimeAxis {
        let back = self
            .paused
            .as_ref()
            .map_or(std::time::Duration::ZERO, |p| self.now.since(p.cursor));
        let unit = back + self.zoom;
        TimeAxis {
            left: text::ago(back + self.zoom, unit),
            middle: text::ago(back + self.zoom / 2, unit),
            right: text::ago(back, unit),
        }
    }

    fn header(&self) -> Line {
        let mut pieces = vec![Piece::new("alloctop", Role::Figure)];
        if let Some(paused) = &self.paused {
            pieces.push(Piece::new(
                format!("PAUSED {}", span(self.now.since(paused.at))),
                Role::Warn,
            ));
        }
        let sample = self.shown();
        if let Some(pid) = self.watched {
            pieces.push(Piece::new(format!("process {pid}"), Role::Figure));
        }
        match sample.map(|s| &s.device.identity) {
            Some(Reading::Is(device)) => {
                if device.simulated {
                    pieces.push(Piece::new(" SIMULATED ", Role::Badge));
                }
                // The monitor counts by bus, the watched job by its own CUDA_VISIBLE_DEVICES (AC-40).
                let own = sample
                    .and_then(|s| s.cuda_index)
                    .map(|n| format!(" (its cuda:{n})"))
                    .unwrap_or_default();
                pieces.push(Piece::new(
                    format!("GPU {}{own} {}", device.index, device.name),
                    Role::Text,
                ));
            }
            // The reason itself stands in the panel.
            Some(Reading::Missing(_)) => pieces.push(Piece::new("no GPU", Role::Warn)),
            None => pieces.push(Piece::new("reading", Role::Dim)),
        }
        if self.watched.is_none() && !self.worker.torch.is_empty() {
            pieces.push(Piece::new(format!("rules of torch {}", self.worker.torch), Role::Text));
        }

        if let Some(sample) = sample {
            let every = sample.interval.as_millis();
            pieces.push(Piece::new(format!("every {every} ms"), Role::Dim));
        }
        if self.lost > 0 {
            pieces.push(Piece::new(format!("{} lost", self.lost), Role::Warn));
        }
        if self.watched.is_none() && !self.worker.conf.is_empty() {
            pieces.push(Piece::new(self.worker.conf.clone(), Role::Dim));
        }
        pieces
    }

    fn header_right(&self) -> Line {
        let Some((_, own, took)) = self.own else {
            return Vec::new();
        };
        let cpu = own.cpu_percent.map_or("-".to_string(), |c| format!("{c:.1} %"));
        let rss = own.rss.map_or("-".to_string(), |b| b.to_string());
        let read = text::duration(took);
        // The first is dropped first when the header is narrow.
        vec![
            Piece::new(format!("GPU read {read}"), Role::Dim),
            Piece::new(format!("own: {cpu} CPU, {rss}"), Role::Dim),
        ]
    }

    fn bill(&self) -> view::Bill {
        let Some(sample) = self.shown() else {
            return view::Bill::default();
        };
        let bill = Bill::of(sample);
        let total = match &bill.total {
            Reading::Is(total) => total,
            Reading::Missing(why) => {
                return view::Bill {
                    title: format!("bill: {why}"),
                    ..view::Bill::default()
                };
            }
        };
        let mut lines: Vec<BillLine> = bill
            .lines
            .iter()
            .filter(|l| l.kind != LineKind::Pending || l.bytes.value().is_some_and(|b| b.0 > 0))
            .map(|l| BillLine {
                role: role_of(l.kind),
                label: l.kind.word().into(),
                text: l.bytes.value().map_or("-".into(), ToString::to_string),
                bytes: l.bytes.value().map(|b| b.0),
            })
            .collect();
        lines.extend(remainder(&bill));
        let mut notes = Vec::new();
        if self.paused.as_ref().is_some_and(|p| p.cursor < p.at) {
            notes.push("of the pause, not of the cursor".to_string());
        }
        if bill.moving {
            notes.push("moving".to_string());
        }
        if sample
            .device
            .memory
            .value()
            .is_some_and(|m| m.version == MemoryInfoVersion::V1)
        {
            notes.push("used incl. driver".to_string());
        }
        view::Bill {
            title: format!("bill {total}"),
            summary: match bill.bytes(LineKind::Free) {
                Reading::Is(free) => format!("taken {} of {total}", Bytes(total.0.saturating_sub(free.0))),
                Reading::Missing(_) => format!("{total}"),
            },
            lines,
            note: (!notes.is_empty()).then(|| Piece::new(format!("({})", notes.join(", ")), Role::Warn)),
            total: Some(total.0),
        }
    }

    fn blocks(&self) -> Table {
        let blocks = &self.worker.blocks;
        let pending = blocks.iter().filter(|b| b.pending).count();
        let mut title = format!("blocks: {} live", blocks.len() - pending);
        if pending > 0 {
            title += &format!(", {pending} pending");
        }
        if let Some(bytes) = self.sizes.bytes() {
            title += &format!(" · next {} {} {bytes}", self.sizes.shape(), self.sizes.dtype());
        }
        let empty = match self.watched {
            Some(pid) => {
                format!("Blocks of process {pid} cannot be listed from outside: its counters are read, nothing else.")
            }
            None => "No block. g allocates one on the GPU, c one in host memory; [ and ] change the size of the next."
                .into(),
        };
        if self.watched.is_some() {
            title = "blocks".into();
        }
        Table {
            title,
            columns: block_columns(),
            rows: blocks.iter().map(|b| self.block_row(b)).collect(),
            selected: self.selected.and_then(|key| blocks.iter().position(|b| b.key == key)),
            empty,
            focus: self.focus == Focus::Blocks,
        }
    }

    fn block_row(&self, block: &LiveBlock) -> Vec<Piece> {
        let (place, role) = match (block.place, block.pending) {
            (_, true) => ("wait", Role::Pending),
            (Place::Gpu, false) => ("GPU", Role::Live),
            (Place::Cpu, false) => ("CPU", Role::Ram),
        };
        let text = |t: String| Piece::new(t, Role::Text);
        vec![
            text(format!("#{}", block.key.0)),
            Piece::new(place, role),
            text(block.shape.to_string()),
            text(block.dtype.to_string()),
            text(block.bytes.to_string()),
            text(block.block_bytes.to_string()),
            Piece::new(span(self.now.since(block.made)), Role::Dim),
            Piece::new(
                if block.place == Place::Gpu {
                    block.stream.0.to_string()
                } else {
                    "-".into()
                },
                Role::Dim,
            ),
        ]
    }

    fn events(&self) -> Vec<Line> {
        self.log
            .iter()
            .map(|entry| {
                vec![
                    Piece::new(format!("{:>6.1}s ", entry.at.secs()), Role::Dim),
                    Piece::new(entry.letter.to_string(), Role::Key),
                    Piece::new(format!(" {}  ", entry.text), Role::Text),
                    Piece::new(entry.cost.clone(), if entry.refused { Role::Alarm } else { Role::Dim }),
                ]
            })
            .collect()
    }

    /// The keys that are live now, from the action table.
    fn footer(&self) -> Vec<(String, String)> {
        TABLE
            .iter()
            .filter(|e| match e.place {
                Where::Own => self.watched.is_none(),
                Where::Others => !self.setup.readonly && self.table,
                Where::Table => self.table,
                Where::Everywhere | Where::Graphs => true,
            })
            .filter(|e| self.watched.is_none() || e.action != super::action::Action::Strip)
            .filter_map(|e| {
                let word = e.footer?;
                let key = match e.keys[0] {
                    "[" => "[ ]",
                    "-" => "+ -",
                    key => key,
                };
                Some((key.to_string(), word.to_string()))
            })
            .collect()
    }

    fn hint(&self) -> Option<Piece> {
        let (text, _) = self.hint.as_ref()?;
        Some(Piece::new(text.clone(), Role::Warn))
    }
}

/// The line of what no other line accounts for; lines that are unknown are in it and named.
fn remainder(bill: &Bill) -> Option<BillLine> {
    let (rest, label) = if let Some(rest) = bill.unexplained {
        (rest, "unexplained".to_string())
    } else {
        let unknown: Vec<&str> = bill.unknown().map(LineKind::word).collect();
        (bill.rest()?, format!("{} and unexplained", unknown.join(", ")))
    };
    Some(BillLine {
        role: Role::Unexplained,
        label,
        text: signed(rest),
        bytes: u64::try_from(rest.0).ok(),
    })
}

/// A signed amount as a figure of the bill: the plus is the joint before it.
pub(super) fn signed(amount: SignedBytes) -> String {
    u64::try_from(amount.0).map_or_else(|_| amount.to_string(), |b| Bytes(b).to_string())
}

fn role_of(kind: LineKind) -> Role {
    match kind {
        LineKind::Driver => Role::Driver,
        LineKind::Others => Role::Others,
        LineKind::Context => Role::Context,
        LineKind::Live => Role::Live,
        LineKind::Pending => Role::Pending,
        LineKind::Cache => Role::Cache,
        LineKind::Process => Role::Vram,
        LineKind::Free => Role::Free,
    }
}

fn block_columns() -> Vec<Column> {
    vec![
        Column::new("id", 4, false, 9),
        Column::new("on", 4, false, 8),
        Column::new("shape", 12, false, 5),
        Column::new("dtype", 8, false, 2),
        Column::new("bytes", 8, true, 7),
        Column::new("block", 8, true, 6),
        Column::new("age", 5, true, 4),
        Column::new("st", 2, true, 3),
    ]
}
