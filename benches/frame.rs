//! One frame of four panels with 1,000 points each at 200x50, against the same frame with four of ratatui's own charts;
//! both timed in one run, alternating (issue 2, "Must be seen"). Prints medians and the ratio.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alloctop::allocator::stats::DeviceStats;
use alloctop::app::{App, Event, Setup};
use alloctop::clock::Moment;
use alloctop::reading::{Reading, WhyKind};
use alloctop::sample::history::History;
use alloctop::sample::{DeviceSample, OwnCost, Sample};
use alloctop::source::{DeviceActivity, HostCeiling, HostMemory};
use alloctop::ui::glyphs::GlyphSet;
use alloctop::ui::theme::{Depth, Scheme, Theme};
use alloctop::ui::{self, Look};
use alloctop::units::{Bytes, GIB, MIB};
use alloctop::worker::{Dtype, Shape};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Widget};

const POINTS: u64 = 1000;
const AREA: Rect = Rect::new(0, 0, 200, 50);

fn missing<T>() -> Reading<T> {
    Reading::missing(WhyKind::Absent, "not in the benchmark")
}

/// A curve with steps and noise.
fn value(metric: u64, i: u64) -> u64 {
    (metric + 1) * 100 * MIB + (i / 50 % 4) * 200 * MIB + (i * 7919 % 97) * MIB
}

fn sample(i: u64) -> Sample {
    let at = Moment(Duration::from_millis(60 * i));
    let mut stats = DeviceStats::default();
    stats.allocated_bytes.all.current = value(2, i) as i64;
    stats.active_bytes.all.current = value(2, i) as i64;
    stats.reserved_bytes.all.current = value(3, i) as i64;
    Sample {
        at,
        late_by: Duration::ZERO,
        lost: 0,
        interval: Duration::from_millis(60),
        pid: 1,
        host: Reading::Is(HostMemory {
            rss: Bytes(value(0, i)),
            anon: missing(),
            file: missing(),
            shmem: missing(),
            high_water: missing(),
            swap: missing(),
        }),
        ceiling: Reading::Is(HostCeiling {
            cgroup_limit: missing(),
            cgroup_used: missing(),
            host_total: Reading::Is(Bytes(64 * GIB)),
            host_available: missing(),
        }),
        device: Arc::new(DeviceSample {
            at,
            took: Duration::ZERO,
            identity: missing(),
            memory: missing(),
            processes: Reading::Is(vec![alloctop::source::DeviceProcess {
                pid: 1,
                vram: Reading::Is(Bytes(value(1, i))),
                kind: alloctop::source::ProcessKind::Compute,
            }]),
            moving: false,
            activity: Reading::Is(DeviceActivity {
                sm_percent: missing(),
                temperature: missing(),
                power_mw: missing(),
            }),
            fleet: missing(),
        }),
        counters: Reading::Is(Arc::new(stats)),
        counters_stale: false,
        cuda_index: None,
        nested: false,
        own: OwnCost::default(),
    }
}

fn app(glyphs: GlyphSet) -> App {
    let look = Look {
        theme: Theme::new(Scheme::Dark, Depth::True),
        glyphs,
    };
    let setup = Setup {
        look,
        simulated: true,
        readonly: false,
        own_pid: 1,
        budget: None,
        folder: ".".into(),
    };
    let mut app = App::new(setup, History::new(), None, &Shape::default(), Dtype::Float32);
    for i in 1..=POINTS {
        let sample = sample(i);
        let at = sample.at;
        app.update(Event::Sample(Box::new(sample)), at);
    }
    app
}

fn ours(app: &mut App, buf: &mut Buffer) {
    buf.reset();
    let view = app.view(AREA);
    ui::draw(buf, AREA, &view, app.setup.look);
}

/// Four charts as ratatui's examples have them: data, axes with labels, frame; the rest of our frame is left out, in the
/// charts' favour.
fn charts(data: &[Vec<(f64, f64)>; 4], buf: &mut Buffer) {
    buf.reset();
    let areas: [Rect; 4] = Layout::horizontal([Constraint::Ratio(1, 4); 4]).areas(Rect { height: 24, ..AREA });
    for (points, area) in data.iter().zip(areas) {
        let dataset = Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .data(points);
        Chart::new(vec![dataset])
            .block(Block::bordered().title("panel"))
            .x_axis(Axis::default().bounds([0.0, POINTS as f64]).labels([
                Line::from("-60 s"),
                Line::from("-30 s"),
                Line::from("now"),
            ]))
            .y_axis(Axis::default().bounds([0.0, 1600.0]).labels([
                Line::from("0"),
                Line::from("800"),
                Line::from("1600"),
            ]))
            .style(Style::new())
            .render(area, buf);
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn main() {
    let data: [Vec<(f64, f64)>; 4] = std::array::from_fn(|m| {
        (1..=POINTS)
            .map(|i| (i as f64, value(m as u64, i) as f64 / MIB as f64))
            .collect()
    });
    let mut buf = Buffer::empty(AREA);
    for glyphs in [GlyphSet::Block, GlyphSet::Braille] {
        let mut app = app(glyphs);
        let (mut own, mut chart) = (Vec::new(), Vec::new());
        for _ in 0..300 {
            let start = Instant::now();
            ours(black_box(&mut app), black_box(&mut buf));
            own.push(start.elapsed());
            let start = Instant::now();
            charts(black_box(&data), black_box(&mut buf));
            chart.push(start.elapsed());
        }
        let (own, chart) = (median(own), median(chart));
        println!(
            "frame 200x50, {POINTS} points a panel, {glyphs:?}: ours {own:.0} us (whole dashboard), four charts {chart:.0} us, \
             ratio {:.2}",
            own / chart
        );
    }
}
