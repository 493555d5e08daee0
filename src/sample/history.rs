//! The bounded history behind the graphs: raw samples of the last 10 minutes, then smallest, largest and last value per
//! second for an hour and per 30 seconds for a day (issue 2, point 4). Its memory does not grow after that (AC-16), a
//! missing sample is a hole (AC-35) and a spike of one sample stays visible at every zoom (AC-33).
//!
//! A value holds from its sample to the next one. Where the allocator's (or the kernel's) own high-water mark rose above
//! both neighbouring samples, a row with that mark is put between them: a peak between two samples is not lost.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;
use crate::reading::Reading;
use crate::sample::Sample;
use crate::units::Bytes;

mod grid;
mod marks;
mod tier;

pub use grid::Column;
use grid::{Grid, Stored};
pub use marks::{MARK_LIMIT, Mark, Marks};
use tier::Tier;

/// The curves that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Resident set of the watched process.
    Rss,
    /// What the driver charges to the watched process.
    Vram,
    /// Bytes of live blocks.
    Allocated,
    /// Bytes in the allocator's pool.
    Reserved,
    /// In use on the whole device.
    DeviceUsed,
}

/// How many curves there are.
const METRICS: usize = 5;

impl Metric {
    /// All curves.
    pub const ALL: [Metric; METRICS] = [
        Metric::Rss,
        Metric::Vram,
        Metric::Allocated,
        Metric::Reserved,
        Metric::DeviceUsed,
    ];
}

/// One value of each curve in bytes; [`HOLE`] where there is none.
type Values = [u64; METRICS];

/// Stands for "no value" in compact storage. No memory is that large.
const HOLE: u64 = u64::MAX;

/// How long raw samples stay.
const RAW_SPAN: Duration = Duration::from_mins(10);
/// Most raw rows, whatever the interval: 10 minutes at the shortest interval of 10 ms.
const RAW_ROWS: usize = 60_000;
/// Rows by which the raw store grows, so that it never holds much more memory than it needs.
const RAW_STEP: usize = 1024;

/// Where a peak comes from (AC-33): the screen marks the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeakOrigin {
    /// The allocator's own peak counter or the kernel's VmHWM: nothing between two samples is lost.
    Own,
    /// The largest sample since the last reset.
    Sampled,
}

/// The highest value of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The value.
    pub bytes: Bytes,
    /// Who kept it.
    pub origin: PeakOrigin,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    at: Duration,
    values: Values,
}

/// What the row before the next one was made from.
#[derive(Clone, Copy, Debug)]
struct Before {
    own_peaks: Values,
    subject: (u32, Option<u32>),
    interval: Duration,
}

/// All curves of one watched process over time.
#[derive(Debug)]
pub struct History {
    raw: VecDeque<Row>,
    seconds: Tier,
    half_minutes: Tier,
    before: Option<Before>,
    sampled_peaks: Values,
    marks: Marks,
}

impl Default for History {
    fn default() -> Self {
        History::new()
    }
}

impl History {
    /// An empty history; it takes memory as samples come.
    pub fn new() -> Self {
        History {
            raw: VecDeque::new(),
            seconds: Tier::new(Duration::from_secs(1), 3600),
            half_minutes: Tier::new(Duration::from_secs(30), 2880),
            before: None,
            sampled_peaks: [HOLE; METRICS],
            marks: Marks::default(),
        }
    }

    /// Takes one sample. A sample that is not later than the newest one is left out (a clock that went back).
    pub fn push(&mut self, sample: &Sample) {
        let at = sample.at.0;
        let subject = (sample.pid, sample.device.identity.value().map(|i| i.index));
        let values = values_of(sample);
        let own_peaks = own_peaks_of(sample);
        if let (Some(newest), Some(before)) = (self.raw.back().copied(), self.before) {
            if at <= newest.at {
                return;
            }
            let since = at.saturating_sub(newest.at);
            let step = before.interval.max(sample.interval);
            if before.subject != subject {
                self.sampled_peaks = [HOLE; METRICS];
                self.end_at(newest.at + step.min(since) / 2);
            } else if sample.lost > 0 || since > step * 5 / 2 {
                self.end_at((newest.at + step).min(at));
            } else {
                self.put_peak_between(newest, &values, &before.own_peaks, &own_peaks, at);
            }
        }
        self.put(Row { at, values });
        self.before = Some(Before {
            own_peaks,
            subject,
            interval: sample.interval,
        });
    }

    /// Notes an event on the time axis.
    pub fn mark(&mut self, at: Moment, letter: char, text: impl AsRef<str>) {
        self.marks.push(at, letter, text.as_ref());
    }

    /// The events, oldest first.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The curve of `metric` between two moments in `columns` equal columns; `None` is a hole. Costs at most the columns
    /// and the stored points in range, never the whole history; coarse columns are drawn from coarse tiers.
    pub fn series(&self, metric: Metric, from: Moment, to: Moment, columns: usize) -> Vec<Option<Column>> {
        let mut out = Grid::new(from.0, to.0, columns);
        let metric = metric as usize;
        let Some(newest) = self.raw.back() else {
            return out.columns;
        };
        // A tier four times finer than a column draws as well as the raw samples do.
        let fine_enough = |width: Duration| out.width >= 4.0 * width.as_nanos() as f64;
        let use_half_minutes_to = if fine_enough(self.half_minutes.width()) {
            Duration::MAX
        } else {
            self.seconds.start().unwrap_or(newest.at)
        };
        let use_seconds_to = if fine_enough(self.seconds.width()) {
            Duration::MAX
        } else {
            self.raw_start()
        };
        self.half_minutes
            .visit(metric, out.from, use_half_minutes_to.min(out.to), &mut out);
        if use_half_minutes_to < out.to {
            self.seconds.visit(
                metric,
                out.from.max(use_half_minutes_to),
                use_seconds_to.min(out.to),
                &mut out,
            );
            if use_seconds_to < out.to {
                self.visit_raw(metric, use_seconds_to, &mut out);
            }
        }
        out.columns
    }

    /// The highest value of `metric`: its own peak where it keeps one, else the largest sample since the last reset.
    pub fn peak(&self, metric: Metric) -> Option<Peak> {
        let own = self.before.map_or(HOLE, |b| b.own_peaks[metric as usize]);
        let sampled = self.sampled_peaks[metric as usize];
        let (bytes, origin) = if own == HOLE {
            (sampled, PeakOrigin::Sampled)
        } else {
            (own, PeakOrigin::Own)
        };
        (bytes != HOLE).then_some(Peak {
            bytes: Bytes(bytes),
            origin,
        })
    }

    /// The largest sample of `metric` since the last [`History::reset_peaks`], whatever its own peak says.
    pub fn sampled_peak(&self, metric: Metric) -> Option<Bytes> {
        Some(self.sampled_peaks[metric as usize])
            .filter(|n| *n != HOLE)
            .map(Bytes)
    }

    /// Sampled peaks start again from the newest sample. Own peaks are reset by whoever keeps them.
    pub fn reset_peaks(&mut self) {
        self.sampled_peaks = self.raw.back().map_or([HOLE; METRICS], |row| row.values);
    }

    /// The newest value of `metric`, if the newest sample has one.
    pub fn latest(&self, metric: Metric) -> Option<Bytes> {
        self.raw
            .back()
            .map(|row| row.values[metric as usize])
            .filter(|n| *n != HOLE)
            .map(Bytes)
    }

    /// The moment of the newest sample.
    pub fn newest(&self) -> Option<Moment> {
        self.raw.back().map(|row| Moment(row.at))
    }

    /// The moment from which on anything is known.
    pub fn oldest(&self) -> Option<Moment> {
        let raw = self.raw.front().map(|row| row.at);
        let tiers = self.seconds.start().into_iter().chain(self.half_minutes.start());
        tiers.chain(raw).min().map(Moment)
    }

    /// Bytes of memory held (by capacity).
    pub fn footprint(&self) -> usize {
        self.raw.capacity() * size_of::<Row>()
            + self.seconds.footprint()
            + self.half_minutes.footprint()
            + self.marks.footprint()
    }

    /// Puts a hole at `at`: the value before it holds to here and no further.
    fn end_at(&mut self, at: Duration) {
        if self.raw.back().is_some_and(|row| at > row.at) {
            self.put(Row {
                at,
                values: [HOLE; METRICS],
            });
        }
    }

    /// Puts a row between two samples for each own peak that rose above both of them.
    fn put_peak_between(&mut self, old: Row, new: &Values, peaks_before: &Values, peaks_now: &Values, at: Duration) {
        let mut values = old.values;
        let mut rose = false;
        for m in 0..METRICS {
            let (before, now) = (peaks_before[m], peaks_now[m]);
            let known = [before, now, old.values[m], new[m]].iter().all(|n| *n != HOLE);
            if known && now > before && now > old.values[m].max(new[m]) {
                values[m] = now;
                rose = true;
            }
        }
        if rose {
            self.put(Row {
                at: old.at + at.saturating_sub(old.at) / 2,
                values,
            });
        }
    }

    fn put(&mut self, row: Row) {
        let held = self.raw.back().copied();
        for tier in [&mut self.seconds, &mut self.half_minutes] {
            if let Some(held) = held {
                tier.hold(held.at, row.at, &held.values);
            }
            tier.add(row.at, &row.values);
        }
        for (peak, value) in self.sampled_peaks.iter_mut().zip(row.values) {
            if value != HOLE && (*peak == HOLE || value > *peak) {
                *peak = value;
            }
        }
        while self.raw.len() >= RAW_ROWS
            || self
                .raw
                .front()
                .is_some_and(|old| row.at.saturating_sub(old.at) > RAW_SPAN)
        {
            self.raw.pop_front();
        }
        if self.raw.len() == self.raw.capacity() {
            self.raw.reserve_exact(RAW_STEP);
        }
        self.raw.push_back(row);
    }

    /// From when on raw rows are complete.
    fn raw_start(&self) -> Duration {
        self.raw.front().map_or(Duration::MAX, |row| row.at)
    }

    /// Draws the raw rows from `from` to the end of the grid.
    fn visit_raw(&self, metric: usize, from: Duration, out: &mut Grid) {
        let from = from.max(out.from);
        // The row before the range still holds at its start.
        let first = self.raw.partition_point(|row| row.at <= from).saturating_sub(1);
        for n in first..self.raw.len() {
            let row = self.raw[n];
            if row.at >= out.to {
                break;
            }
            let end = self.raw.get(n + 1).map_or_else(
                || row.at + self.before.map_or(Duration::ZERO, |b| b.interval),
                |next| next.at,
            );
            let value = row.values[metric];
            if value != HOLE {
                out.add(row.at.max(from), end, Stored::of(value));
            }
        }
    }
}

/// A reading as a stored number.
fn stored(reading: Option<u64>) -> u64 {
    reading.map_or(HOLE, |n| n.min(HOLE - 1))
}

/// A counter as a stored number; a negative one is no amount of memory.
fn counter(n: i64) -> Option<u64> {
    u64::try_from(n).ok()
}

/// The curves' values in a sample. Device figures older than a few intervals are a hole, not a flat line (AC-17).
fn values_of(sample: &Sample) -> Values {
    let fresh = sample.at.since(sample.device.at) <= (sample.interval * 4).max(Duration::from_millis(500));
    let counters = sample.counters.value();
    let of = |reading: Reading<Bytes>| reading.value().map(|b| b.0).filter(|_| fresh);
    [
        stored(sample.host.value().map(|h| h.rss.0)),
        stored(of(sample.vram())),
        stored(counters.and_then(|c| counter(c.allocated_bytes.all.current))),
        stored(counters.and_then(|c| counter(c.reserved_bytes.all.current))),
        stored(of(sample.device.memory.as_ref().map(|m| m.used))),
    ]
}

/// The peaks that the sources keep themselves.
fn own_peaks_of(sample: &Sample) -> Values {
    let counters = sample.counters.value();
    let high_water = sample.host.value().and_then(|h| h.high_water.value().map(|b| b.0));
    [
        stored(high_water),
        HOLE,
        stored(counters.and_then(|c| counter(c.allocated_bytes.all.peak))),
        stored(counters.and_then(|c| counter(c.reserved_bytes.all.peak))),
        HOLE,
    ]
}

#[cfg(test)]
mod tests;
