//! The four panels of a view: figure, change, peak, limit, curve.

use std::time::Duration;

use super::{App, Focus};
use crate::clock::Moment;
use crate::reading::{Reading, WhyKind};
use crate::sample::Sample;
use crate::sample::history::{Column, Metric};
use crate::source::MemoryInfoVersion;
use crate::ui::axis::Axis;
use crate::ui::layout::Areas;
use crate::ui::pane::graph;
use crate::ui::pane::panel::Parts;
use crate::ui::text::span;
use crate::ui::theme::Role;
use crate::ui::view::{Panel, Piece, Span};
use crate::units::{Bytes, SignedBytes};

/// What each panel shows, in their order.
const METRICS: [(Metric, &str, &str, Role); 4] = [
    (Metric::Rss, "1 CPU RAM (RES)", "RAM", Role::Ram),
    (Metric::Vram, "2 driver VRAM (MEM)", "VRAM", Role::Vram),
    (Metric::Allocated, "3 allocated", "alloc", Role::Live),
    (Metric::Reserved, "4 reserved", "resv", Role::Cache),
];

/// The facts of one panel that differ from metric to metric.
struct Facts {
    now: Reading<Bytes>,
    peak: Option<(u64, &'static str)>,
    limit: Option<(u64, &'static str)>,
    note: Option<Piece>,
}

impl App {
    pub(super) fn panels(&mut self, areas: &Areas, range: (Moment, Moment)) -> [Panel; 4] {
        std::array::from_fn(|i| self.one_panel(i, areas, range))
    }

    fn one_panel(&mut self, i: usize, areas: &Areas, (from, to): (Moment, Moment)) -> Panel {
        let (metric, title, short, role) = METRICS[i];
        let glyphs = self.setup.look.glyphs;
        let parts = Parts::of(areas.panels[i]);
        let columns = parts.columns(glyphs);
        let curve = if columns == 0 {
            Vec::new()
        } else {
            self.curve(metric, to, usize::from(columns))
        };
        let shown = self.shown().cloned();
        let facts = shown.as_ref().map_or(
            Facts {
                now: Reading::not_yet(),
                peak: None,
                limit: None,
                note: None,
            },
            |s| self.facts(i, s),
        );
        let highest = curve.iter().flatten().map(|c| c.max.0).max().unwrap_or_default();
        let axis = Axis::choose(self.scale, highest, facts.limit.map(|l| l.0), self.tops[i]);
        self.tops[i] = Some(axis.top);
        let mut now = facts.now.value().map(|b| b.0);
        if self.paused.as_ref().is_some_and(|p| p.cursor < p.at) {
            // Back in time: the figure is the curve's at the cursor.
            now = curve.last().copied().flatten().map(|c| c.last.0);
        }
        let steps = parts.plot.height * graph::steps_per_cell(glyphs);
        let span = |c: Column| Span {
            last: graph::height(&axis, c.last.0, steps),
            max: graph::height(&axis, c.max.0, steps),
        };
        let row = |value: Option<u64>| {
            value
                .filter(|v| *v > 0 && *v <= axis.top)
                .map(|v| parts.row(axis.height(v)))
        };
        Panel {
            title: if self.scale == crate::ui::axis::Scale::Auto {
                title.into()
            } else {
                format!("{title} [{}]", self.scale.word())
            },
            short,
            role,
            now: now.map_or("-".into(), |n| Bytes(n).to_string()),
            change: change(now, self.baseline[i]),
            peak: facts
                .peak
                .map_or(String::new(), |(at, word)| format!("{word} {}", Bytes(at))),
            limit: facts
                .limit
                .map_or(String::new(), |(at, word)| format!("{word} {}", Bytes(at))),
            note: facts.note,
            letters: self.letters(parts.plot.width, (from, to)),
            curve: curve.into_iter().map(|c| c.map(span)).collect(),
            axis,
            peak_at: row(facts.peak.map(|p| p.0)),
            limit_at: row(facts.limit.map(|l| l.0)),
            focus: self.focus == Focus::Graphs && self.panel == i,
        }
    }

    /// The curve of one metric, ending at `to`. The columns' edges are multiples of their width, so that a value does not
    /// wander from column to column while time goes on; the curve moves in whole columns.
    fn curve(&self, metric: Metric, to: Moment, columns: usize) -> Vec<Option<Column>> {
        let width = (self.zoom.as_nanos() / columns as u128).max(1);
        let end = to.0.as_nanos().div_ceil(width);
        let count = end.min(columns as u128);
        let moment = |n: u128| Moment(Duration::from_nanos(u64::try_from(n * width).unwrap_or(u64::MAX)));
        self.history
            .series(metric, moment(end - count), moment(end), count as usize)
    }

    /// Where each letter stands: in the cell of its moment, on the same grid as the curve, so that it moves with it. Of
    /// letters in one cell the newest stands there; older ones move to a free cell on their left, or are left out.
    fn letters(&self, wide: u16, (from, to): (Moment, Moment)) -> Vec<(u16, char)> {
        let per_cell = u128::from(graph::columns_per_cell(self.setup.look.glyphs));
        let column = (self.zoom.as_nanos() / (u128::from(wide) * per_cell).max(1)).max(1);
        let end = to.0.as_nanos().div_ceil(column);
        let mut taken: Vec<(u16, char)> = Vec::new();
        // What a person did comes before what followed from it.
        let marks = || self.history.marks().between(from, to).rev();
        let done = marks().filter(|m| m.letter != '!');
        for mark in done.chain(marks().filter(|m| m.letter == '!')) {
            let back = end.saturating_sub(mark.at.0.as_nanos() / column + 1) / per_cell;
            let Some(cell) = u128::from(wide).checked_sub(back + 1) else {
                continue;
            };
            let is_free = |c: &u128| taken.iter().all(|t| u128::from(t.0) != *c);
            let free = (0..=1).filter_map(|shift| cell.checked_sub(shift)).find(is_free);
            taken.extend(free.map(|c| (c as u16, mark.letter)));
        }
        taken
    }

    fn facts(&self, i: usize, sample: &Sample) -> Facts {
        let mut facts = match i {
            0 => self.ram(sample),
            1 => self.vram(sample),
            _ => self.counter(i, sample),
        };
        if let Reading::Missing(why) = &facts.now {
            let role = if matches!(why.kind, WhyKind::Absent | WhyKind::NotYet) {
                Role::Dim
            } else {
                Role::Warn
            };
            facts.note = Some(Piece::new(why.text.to_string(), role));
        }
        facts
    }

    /// Sampled maximum: since the start, or since `R`; said to be sampled, since a peak between samples is not in it.
    fn sampled(&self, i: usize) -> Option<(u64, &'static str)> {
        self.history
            .sampled_peak(METRICS[i].0)
            .map(|h| (h.0, if self.since_reset { "max since R" } else { "max seen" }))
    }

    fn ram(&self, sample: &Sample) -> Facts {
        let host = sample.host.as_ref();
        let high_water = host.value().and_then(|h| h.high_water.value().map(|b| (b.0, "peak")));
        let split = host.value().and_then(|h| {
            let part = |r: &Reading<Bytes>| r.value().map(ToString::to_string);
            Some(format!("anon {} file {}", part(&h.anon)?, part(&h.file)?))
        });
        let limit = sample.ceiling.value().and_then(|c| {
            let word = if c.cgroup_limit.value().is_some() {
                "limit"
            } else {
                "of"
            };
            c.limit().value().map(|b| (b.0, word))
        });
        Facts {
            now: host.map(|h| h.rss),
            peak: if self.since_reset { self.sampled(0) } else { high_water },
            limit,
            note: split.map(|s| Piece::new(s, Role::Dim)),
        }
    }

    fn vram(&self, sample: &Sample) -> Facts {
        let memory = sample.device.memory.value();
        let age = sample.at.since(sample.device.at);
        let unified = sample.device.identity.value().is_some_and(|d| d.unified);
        let note = if age > (sample.interval * 4).max(Duration::from_secs(1)) {
            Some(Piece::new(format!("{} old", span(age)), Role::Warn))
        } else if unified {
            Some(Piece::new("host memory", Role::Warn))
        } else if memory.is_some_and(|m| m.version == MemoryInfoVersion::V1) {
            Some(Piece::new("incl. driver", Role::Warn))
        } else {
            None
        };
        Facts {
            now: sample.vram(),
            peak: self.sampled(1),
            limit: memory.map(|m| (m.total.0, "of")),
            note,
        }
    }

    fn counter(&self, i: usize, sample: &Sample) -> Facts {
        let stats = sample.counters.as_ref().map(|c| {
            if i == 2 {
                c.allocated_bytes.all
            } else {
                c.reserved_bytes.all
            }
        });
        let positive = |v: i64| u64::try_from(v).ok();
        // The allocator's own peak holds what happened between two samples (AC-33); R resets it on our own allocator only.
        let own_peak = stats.value().and_then(|s| positive(s.peak)).map(|p| (p, "peak"));
        let memory = sample.device.memory.value();
        let limit = match (self.watched, self.setup.budget) {
            (None, Some(budget)) => Some((budget.0, "budget")),
            (None, None) => memory.zip(stats.value()).and_then(|(m, s)| {
                let held = u64::try_from(s.current).ok()?;
                Some((crate::budget::default_limit(m.free.0.saturating_add(held)), "budget"))
            }),
            (Some(_), _) => memory.map(|m| (m.total.0, "of")),
        };
        let note = sample.counters_stale.then(|| Piece::new("stale", Role::Warn));
        Facts {
            now: stats.and_then(|s| match positive(s.current) {
                Some(v) => Reading::Is(Bytes(v)),
                None => Reading::missing(WhyKind::Impossible, "the counter is negative"),
            }),
            peak: if self.watched.is_some() && self.since_reset {
                self.sampled(i)
            } else {
                own_peak
            },
            limit,
            note,
        }
    }
}

/// The change since the last action, with its direction in the role.
fn change(now: Option<u64>, before: Option<u64>) -> Piece {
    let (Some(now), Some(before)) = (now, before) else {
        return Piece::new("", Role::Dim);
    };
    let change = Bytes(now).minus(Bytes(before));
    let role = match change {
        SignedBytes(0) => Role::Dim,
        SignedBytes(n) if n > 0 => Role::Up,
        _ => Role::Down,
    };
    Piece::new(change.to_string(), role)
}
