//! The process table as it is drawn.

use super::filter::Pattern;
use super::job_tree::Shown;
use super::table::{SIGNALS, Victim};
use super::{App, Focus};
use crate::reading::Reading;
use crate::source::host::facts::ProcessFacts;
use crate::source::processes::{FamilyBasis, ProcessRow};
use crate::ui::text::span;
use crate::ui::theme::Role;
use crate::ui::view::{Column, Overlay, Piece, Table};
use crate::units::{Bytes, SignedBytes};

/// Its share of the busiest of its devices.
fn sm_of(row: &ProcessRow) -> String {
    let shares: Option<Vec<u32>> = row.devices.iter().map(|d| d.sm_percent.value().copied()).collect();
    shares
        .and_then(|s| s.into_iter().max())
        .map_or("-".into(), |percent| percent.to_string())
}

fn figure(value: Option<u64>) -> String {
    value.map_or("-".into(), |b| Bytes(b).to_string())
}

impl App {
    /// The table, if it is open.
    pub(super) fn table_view(&self) -> Option<Table> {
        if !self.table {
            return None;
        }
        let rows = self.table_rows();
        let shown = rows.iter().filter(|s| s.process().is_some()).count();
        let total = self.processes.rows.as_ref().map_or(0, |t| t.rows.len());
        let mut title = format!(
            "processes: {shown} of {total} by {}{}",
            self.processes.sort.word(),
            if self.processes.reverse { ", reversed" } else { "" }
        );
        if let Some(user) = &self.processes.user {
            title += &format!(" · user {user}");
        }
        if self.processes.typing || !self.processes.filter.is_empty() {
            let cursor = if self.processes.typing { "_" } else { "" };
            let broken = if Pattern::new(&self.processes.filter).is_incomplete() {
                " (no whole expression yet)"
            } else {
                ""
            };
            title += &format!(" · filter {}{cursor}{broken}", self.processes.filter);
        }
        let empty = match &self.processes.rows {
            None => "reading the processes".to_string(),
            Some(_) if total > 0 => "no row matches: Esc clears the filter, u the user".to_string(),
            Some(table) => table.unlisted.first().map_or_else(
                || "no process on the GPUs".to_string(),
                |(index, why)| format!("GPU {index}: {why}"),
            ),
        };
        let selected = rows
            .iter()
            .position(|s| s.process().is_some_and(|r| Some(r.pid) == self.processes.selected))
            .or_else(|| rows.iter().position(|s| s.process().is_some()));
        Some(Table {
            title,
            columns: columns(),
            rows: rows
                .iter()
                .map(|shown| match shown {
                    Shown::Process(depth, row) => self.process_row(*depth, row),
                    Shown::Job(parent, ranks) => self.job_row(*parent, ranks),
                })
                .collect(),
            selected,
            empty,
            focus: self.focus == Focus::Table,
        })
    }

    /// The cells of a process.
    fn process_row(&self, depth: usize, row: &ProcessRow) -> Vec<Piece> {
        let text = |t: String| Piece::new(t, Role::Text);
        let dim = |t: String| Piece::new(t, Role::Dim);
        let facts = row.facts.value();
        let own = row.pid == self.setup.own_pid;
        let watched = self.watched.unwrap_or(self.setup.own_pid) == row.pid;
        let figures = self.allocator_of(row.pid);
        let vram = row.vram().value().map(|b| b.0);
        let context = vram
            .zip(figures.reserved)
            .map(|(v, r)| SignedBytes(i128::from(v) - i128::from(r)));
        let inner = facts.and_then(ProcessFacts::inner_pid);
        let pid = inner.map_or(row.pid.to_string(), |inner| format!("{}/{inner}", row.pid));
        let gpus: Vec<String> = row.devices.iter().map(|d| d.index.to_string()).collect();
        let (host, word) = match (row.pss.value(), row.rss.value()) {
            (Some(pss), _) => (Some(pss.0), "P"),
            (None, rss) => (rss.map(|b| b.0), ""),
        };
        vec![
            Piece::new(if watched { "▸" } else { "" }, Role::Key),
            text(pid),
            text(row.user.value().cloned().unwrap_or_else(|| "-".into())),
            text(if gpus.is_empty() { "-".into() } else { gpus.join(",") }),
            Piece::new(figure(vram), Role::Vram),
            Piece::new(figure(row.rss.value().map(|b| b.0)), Role::Ram),
            dim(if word.is_empty() { "-".into() } else { figure(host) }),
            Piece::new(figure(figures.allocated), Role::Live),
            Piece::new(figure(figures.reserved), Role::Cache),
            text(figure(figures.cached)),
            text(context.map_or("-".into(), super::view::signed)),
            text(sm_of(row)),
            text(facts.map_or("-".into(), |f| f.state.letter().to_string())),
            dim(facts.and_then(|f| f.age.value()).map_or("-".into(), |a| span(*a))),
            text(format!("{}{}", "  ".repeat(depth.min(8)), self.command_of(row, own))),
        ]
    }

    /// The sums of a job's ranks; one unknown figure makes its sum unknown.
    fn job_row(&self, parent: u32, ranks: &[&ProcessRow]) -> Vec<Piece> {
        let sum = |value: &dyn Fn(&ProcessRow) -> Option<u64>| figure(ranks.iter().map(|r| value(r)).sum());
        let role = |text: String, role| Piece::new(text, role);
        let empty = || Piece::new("", Role::Dim);
        let allocator = |r: &ProcessRow| self.allocator_of(r.pid);
        let context = |r: &ProcessRow| r.vram().value()?.0.checked_sub(allocator(r).reserved?);
        vec![
            empty(),
            role(format!("job {parent}"), Role::Figure),
            empty(),
            empty(),
            role(sum(&|r| r.vram().value().map(|b| b.0)), Role::Vram),
            role(sum(&|r| r.rss.value().map(|b| b.0)), Role::Ram),
            role(sum(&|r| r.pss.value().map(|b| b.0)), Role::Dim),
            role(sum(&|r| allocator(r).allocated), Role::Live),
            role(sum(&|r| allocator(r).reserved), Role::Cache),
            role(sum(&|r| allocator(r).cached), Role::Text),
            role(sum(&context), Role::Text),
            empty(),
            empty(),
            empty(),
            role(
                format!(
                    "sum of {} ranks of parent {parent} (RSS counts shared pages once a rank)",
                    ranks.len()
                ),
                Role::Text,
            ),
        ]
    }

    /// Command line, then what is to be said of the row: notes, container, family, why its allocator is not read.
    fn command_of(&self, row: &ProcessRow, own: bool) -> String {
        let mut out = row.facts.value().map_or(String::new(), |f| f.command.clone());
        let mut notes = Vec::new();
        if own {
            notes.push("this program".to_string());
        }
        if let Some(container) = &row.container {
            notes.push(format!("container {container}"));
        }
        if let Some(note) = &row.note {
            notes.push(note.text.to_string());
        }
        if !row.holds.is_empty() {
            notes.push(format!("holds {}", row.holds.join(" ")));
        }
        if let Some(family) = &row.family {
            let basis = match family.basis {
                FamilyBasis::Pss => "PSS".to_string(),
                FamilyBasis::RssSharedCountedTimes(n) => format!("RSS, shared counted {n} times"),
            };
            notes.push(format!("with {} children {} {basis}", family.descendants, family.bytes));
        }
        if let Some(Reading::Missing(why)) = self.processes.allocators.get(&row.pid) {
            notes.push(why.text.to_string());
        }
        if !notes.is_empty() {
            out += &format!(" ({})", notes.join("; "));
        }
        out
    }

    /// The dialog that sends a signal.
    pub(super) fn signal_overlay(victim: &Victim, at: usize) -> Overlay {
        let text = |t: String| vec![Piece::new(t, Role::Text)];
        let mut lines = vec![
            text(format!("PID {} of {}, {} old", victim.key.pid, victim.user, victim.age)),
            text(crate::source::printable::printable(victim.command.as_bytes(), 60)),
            Vec::new(),
        ];
        for (i, (name, number)) in SIGNALS.iter().enumerate() {
            let role = if i == at { Role::Selected } else { Role::Text };
            lines.push(vec![Piece::new(format!(" {name:<8} {number:>2} "), role)]);
        }
        Overlay {
            title: "send a signal?".into(),
            lines,
            scroll: 0,
            foot: "arrows, Enter sends, Esc closes".into(),
            input: None,
        }
    }
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("", 1, false, 12),
        Column::new("PID", 7, false, 20),
        Column::new("user", 8, false, 6),
        Column::new("GPU", 3, false, 9),
        Column::new("VRAM", 8, true, 15),
        Column::new("RSS", 8, true, 14),
        Column::new("PSS", 8, true, 3),
        Column::new("allocated", 9, true, 13),
        Column::new("reserved", 8, true, 12),
        Column::new("cached", 8, true, 8),
        Column::new("ctx+libs", 8, true, 7),
        Column::new("SM %", 4, true, 5),
        Column::new("S", 1, false, 4),
        Column::new("age", 6, true, 2),
        Column::new("command", 20, false, 16),
    ]
}
