//! The block strip: which segments it shows, which block is selected, and what is known of it.

use super::{App, Focus};
use crate::allocator::report::{BlockReport, BlockState, SegmentReport};
use crate::driver::StreamId;
use crate::ui::text::span;
use crate::ui::theme::Role;
use crate::ui::view::{Piece, Strip, StripPart, StripSegment};
use crate::units::Bytes;

/// Which segments are shown, and where the selection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StripState {
    /// Number of the choice among "all" and each (pool size, stream) that has segments.
    pub choice: usize,
    /// Selected row of segments.
    pub row: usize,
    /// Selected block in it.
    pub block: usize,
    /// Its history is open.
    pub detail: bool,
}

/// Segments of one pool size and stream.
type Group = (bool, StreamId);

/// A row of the strip: one segment, or all mapped runs of an expandable one.
struct Row<'a> {
    runs: Vec<&'a SegmentReport>,
}

impl Row<'_> {
    fn first(&self) -> &SegmentReport {
        self.runs[0]
    }

    fn bytes(&self) -> u64 {
        let last = self.runs[self.runs.len() - 1];
        last.address + last.size - self.first().address
    }

    fn blocks(&self) -> impl Iterator<Item = &BlockReport> {
        self.runs.iter().flat_map(|r| r.blocks.iter())
    }
}

impl App {
    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = self
            .worker
            .report
            .segments
            .iter()
            .map(|s| (s.small, s.stream))
            .collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    fn strip_rows(&self) -> Vec<Row<'_>> {
        let groups = self.groups();
        let chosen = self.strip_state.choice.checked_sub(1).and_then(|i| groups.get(i));
        let mut rows: Vec<Row> = Vec::new();
        for segment in &self.worker.report.segments {
            if chosen.is_some_and(|g| *g != (segment.small, segment.stream)) {
                continue;
            }
            // Runs of one expandable segment share pool and stream and follow each other in its range of addresses.
            if let Some(row) = rows.last_mut()
                && segment.expandable
                && row.first().expandable
                && (row.first().pool, row.first().small, row.first().stream)
                    == (segment.pool, segment.small, segment.stream)
            {
                row.runs.push(segment);
            } else {
                rows.push(Row { runs: vec![segment] });
            }
        }
        rows
    }

    /// Moves the selection: by blocks within a row, by rows, or to the next pool and stream.
    pub(super) fn move_in_strip(&mut self, blocks: isize, rows: isize, choice: isize) {
        let choices = self.groups().len() + 1;
        let mut state = self.strip_state;
        state.choice = state.choice.saturating_add_signed(choice).min(choices - 1);
        if choice != 0 {
            (state.row, state.block) = (0, 0);
        }
        self.strip_state = state;
        let lengths: Vec<usize> = self.strip_rows().iter().map(|r| r.blocks().count()).collect();
        state.row = state
            .row
            .saturating_add_signed(rows)
            .min(lengths.len().saturating_sub(1));
        let length = lengths.get(state.row).copied().unwrap_or_default();
        state.block = state.block.saturating_add_signed(blocks).min(length.saturating_sub(1));
        self.strip_state = state;
        self.select_of_strip();
    }

    /// The selected block of the strip is the selected block of the list, so that `d` deletes it.
    fn select_of_strip(&mut self) {
        let address = self.strip_address();
        if let Some(block) = self.worker.blocks.iter().find(|b| Some(b.address) == address) {
            self.selected = Some(block.key);
        }
    }

    fn strip_address(&self) -> Option<u64> {
        let rows = self.strip_rows();
        let row = rows.get(self.strip_state.row)?;
        row.blocks().nth(self.strip_state.block).map(|b| b.address)
    }

    pub(super) fn strip_view(&self) -> Option<Strip> {
        if !self.strip {
            return None;
        }
        let rows = self.strip_rows();
        let groups = self.groups();
        let chosen = match self.strip_state.choice.checked_sub(1).and_then(|i| groups.get(i)) {
            None => "all pools and streams".to_string(),
            Some((small, stream)) => format!("{} pool, stream {}", size_word(*small), self.stream_number(*stream)),
        };
        let free = || {
            rows.iter()
                .flat_map(Row::blocks)
                .filter(|b| b.state == BlockState::Free)
                .map(|b| b.size)
        };
        let focus = self.focus == Focus::Strip;
        let facts = vec![
            Piece::new(format!("{chosen} (PgUp PgDn)"), Role::Text),
            Piece::new("  largest free block ", Role::Dim),
            Piece::new(Bytes(free().max().unwrap_or_default()).to_string(), Role::Figure),
            Piece::new("  total free ", Role::Dim),
            Piece::new(Bytes(free().sum()).to_string(), Role::Figure),
        ];
        let segments = rows
            .iter()
            .enumerate()
            .map(|(i, row)| self.strip_segment(row, focus && i == self.strip_state.row))
            .collect();
        let mut detail = if focus { self.strip_detail(&rows) } else { Vec::new() };
        if rows.is_empty() {
            detail.push(match self.watched {
                Some(_) => {
                    "The segments of another process are not visible from outside: its counters are read, nothing else."
                        .into()
                }
                None => "The allocator holds no segment: g allocates a block.".into(),
            });
        }
        Some(Strip {
            title: match rows.len() {
                1 => "block strip: 1 segment".into(),
                n => format!("block strip: {n} segments"),
            },
            facts,
            segments,
            detail,
            first: self.strip_state.row.saturating_sub(3),
            focus,
        })
    }

    fn stream_number(&self, handle: StreamId) -> u64 {
        let known = self.worker.streams.iter().position(|s| *s == handle);
        known.map_or(handle.0, |n| n as u64)
    }

    fn strip_segment(&self, row: &Row<'_>, selected_row: bool) -> StripSegment {
        let first = row.first();
        let mut parts = Vec::new();
        let mut end = first.address;
        for (n, block) in row.blocks().enumerate() {
            let selected = selected_row && n == self.strip_state.block;
            let mut part = |role, bytes| {
                if bytes > 0 {
                    parts.push(StripPart { role, bytes, selected });
                }
            };
            part(Role::Free, block.address.saturating_sub(end));
            end = block.address + block.size;
            match block.state {
                BlockState::Live => {
                    part(Role::Live, block.requested.min(block.size));
                    part(Role::Dim, block.size.saturating_sub(block.requested));
                }
                BlockState::Pending => part(Role::Pending, block.size),
                BlockState::Free => part(Role::Cache, block.size),
            }
        }
        StripSegment {
            label: format!(
                "{:x} {} {} s{}{}",
                first.address,
                Bytes(row.bytes()),
                size_word(first.small),
                self.stream_number(first.stream),
                if first.expandable { " expandable" } else { "" }
            ),
            bytes: row.bytes(),
            parts,
        }
    }

    /// What is known of the selected block; with Enter, its history from the event log.
    fn strip_detail(&self, rows: &[Row<'_>]) -> Vec<String> {
        let Some(block) = rows
            .get(self.strip_state.row)
            .and_then(|row| row.blocks().nth(self.strip_state.block))
        else {
            return Vec::new();
        };
        let state = match block.state {
            BlockState::Live => "live",
            BlockState::Pending => "pending",
            BlockState::Free => "cached",
        };
        let live = self.worker.blocks.iter().find(|b| b.address == block.address);
        let mut text = format!("{:x}: {state}, block {}", block.address, Bytes(block.size));
        if block.requested > 0 && block.state != BlockState::Free {
            text += &format!(", asked for {}", Bytes(block.requested));
        }
        if let Some(live) = live {
            text += &format!(
                ", #{} {} {}, {} old",
                live.key.0,
                live.shape,
                live.dtype,
                span(self.now.since(live.made))
            );
        }
        text += if self.strip_state.detail {
            ""
        } else {
            " (Enter: its history)"
        };
        let mut lines = vec![text];
        if self.strip_state.detail {
            lines.extend(
                self.log
                    .iter()
                    .rev()
                    .filter(|e| e.address == Some(block.address))
                    .take(4)
                    .map(|e| format!("  {:.1} s  {} {}", e.at.secs(), e.text, e.cost)),
            );
            if lines.len() == 1 {
                lines.push("  no event of this session begins at its address".into());
            }
        }
        lines
    }
}

fn size_word(small: bool) -> &'static str {
    if small { "small" } else { "large" }
}
