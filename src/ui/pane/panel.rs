//! One of the four panels: the figure, its change, its peak and limit, and the curve under them.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{frame, graph, put, put_right, width};
use crate::ui::Look;
use crate::ui::glyphs::GlyphSet;
use crate::ui::theme::Role;
use crate::ui::view::{Panel, TimeAxis};

/// Where the parts of a panel stand; the view asks it for the curve's number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    framed: bool,
    inner: Rect,
    /// Lines of figures above the curve.
    head: u16,
    /// Cells of the tick labels, 0 when there is no room for them.
    labels: u16,
    /// The curve.
    pub plot: Rect,
    /// The row of the time axis is drawn.
    time: bool,
}

impl Parts {
    /// The parts of a panel in `area`.
    pub fn of(area: Rect) -> Parts {
        let framed = area.height >= 7 && area.width >= 18;
        let inner = if framed {
            Rect::new(area.x + 1, area.y + 1, area.width - 2, area.height - 2)
        } else {
            Rect::new(area.x + 1, area.y, area.width.saturating_sub(2), area.height)
        };
        let head = if inner.height >= 6 { 2 } else { 1 }.min(inner.height);
        let time = inner.height >= 4;
        let height = inner.height - head - u16::from(time);
        let labels = if inner.width >= 20 && height >= 2 { 5 } else { 0 };
        Parts {
            framed,
            inner,
            head,
            labels,
            plot: Rect::new(
                inner.x + labels,
                inner.y + head,
                inner.width.saturating_sub(labels),
                height,
            ),
            time,
        }
    }

    /// The row of a height of 0.0 to 1.0, from the top of the curve's area.
    pub fn row(&self, height: f64) -> u16 {
        let rows = self.plot.height.max(1);
        rows - ((height * f64::from(rows)).ceil() as u16).clamp(1, rows)
    }

    /// Sub-columns of the curve with `glyphs`.
    pub fn columns(&self, glyphs: GlyphSet) -> u16 {
        self.plot.width * graph::columns_per_cell(glyphs)
    }
}

/// Draws the panel.
pub fn draw(buf: &mut Buffer, area: Rect, panel: &Panel, time: &TimeAxis, look: Look) {
    let area = area.intersection(buf.area);
    if area.is_empty() {
        return;
    }
    let parts = Parts::of(area);
    if parts.framed {
        frame(buf, area, &panel.title, panel.focus, look);
    }
    head(buf, &parts, panel, look);
    if parts.plot.height == 0 {
        return;
    }
    let known = panel.curve.iter().any(Option::is_some);
    if known || parts.labels > 0 {
        y_axis(buf, &parts, panel, look);
    }
    reference_lines(buf, &parts, panel, look);
    let style = look.theme.style(panel.role);
    graph::draw(buf, parts.plot, &panel.curve, look.glyphs, style);
    if parts.time {
        time_axis(buf, &parts, panel, time, look);
    }
    if !known && let Some(note) = &panel.note {
        let area = Rect {
            x: parts.plot.x,
            ..parts.plot
        };
        super::wrapped(buf, area, note, look);
    }
}

/// The figure and its change; peak and limit; each left out when there is no room for it.
fn head(buf: &mut Buffer, parts: &Parts, panel: &Panel, look: Look) {
    let inner = parts.inner;
    let style = |role| look.theme.style(role);
    let (mut x, y) = (inner.x, inner.y);
    if !parts.framed {
        let role = if panel.focus { Role::Focus } else { Role::Dim };
        // The title without its number, where there is room for it.
        let name = if inner.width >= 36 {
            panel.title.get(2..).unwrap_or(panel.short)
        } else {
            panel.short
        };
        let name = name.split(" (").next().unwrap_or(name);
        x += put(buf, x, y, inner.width, name, style(role), look);
        x += 1;
    }
    let figure = style(panel.role).add_modifier(ratatui::style::Modifier::BOLD);
    x += put(buf, x, y, inner.right().saturating_sub(x), &panel.now, figure, look);
    let mut right = inner.right();
    let mut fits = |text: &str| {
        let cells = width(&look.glyphs.text(text));
        let room = right.saturating_sub(x) >= cells + 2 && cells > 0;
        if room {
            right -= cells + 1;
        }
        room.then_some(right + 1)
    };
    if let Some(at) = fits(&panel.change.text) {
        put(
            buf,
            at,
            y,
            inner.right() - at,
            &panel.change.text,
            style(panel.change.role),
            look,
        );
    }
    let note = panel.note.as_ref().filter(|_| panel.curve.iter().any(Option::is_some));
    if let Some(note) = note
        && let Some(at) = fits(&note.text)
    {
        put(buf, at, y, inner.right() - at, &note.text, style(note.role), look);
    }
    if parts.head == 1 {
        if let Some(at) = fits(&panel.peak) {
            put(buf, at, y, inner.right() - at, &panel.peak, style(Role::Dim), look);
        }
        return;
    }
    let used = put(buf, inner.x, y + 1, inner.width, &panel.peak, style(Role::Dim), look);
    if inner.width > used + width(&panel.limit) {
        put_right(buf, inner.x, y + 1, inner.width, &panel.limit, style(Role::Dim), look);
    }
}

fn row_of(parts: &Parts, height: f64) -> u16 {
    parts.plot.y + parts.row(height)
}

fn y_axis(buf: &mut Buffer, parts: &Parts, panel: &Panel, look: Look) {
    if parts.labels == 0 {
        return;
    }
    let style = look.theme.style(Role::Dim);
    let bar = look.glyphs.pick("│", "|");
    let tick = look.glyphs.pick("┤", "+");
    let x = parts.plot.x - 1;
    for y in parts.plot.top()..parts.plot.bottom() {
        put(buf, x, y, 1, bar, style, look);
    }
    let count = if parts.plot.height >= 9 {
        5
    } else if parts.plot.height >= 4 {
        3
    } else {
        2
    };
    for (height, text) in panel.axis.ticks(count) {
        if height == 0.0 && parts.time {
            continue;
        }
        let y = row_of(parts, height);
        put_right(buf, parts.inner.x, y, parts.labels - 1, &text, style, look);
        buf[(x, y)].set_symbol(tick);
    }
}

/// Dashes where the peak and the limit stand; the curve is drawn over them.
fn reference_lines(buf: &mut Buffer, parts: &Parts, panel: &Panel, look: Look) {
    if parts.plot.height < 2 {
        return;
    }
    let limit = look.glyphs.pick("━", "=");
    let peak = look.glyphs.pick("╌", "-");
    for (at, symbol, role) in [(panel.peak_at, peak, panel.role), (panel.limit_at, limit, Role::Alarm)] {
        let Some(row) = at else { continue };
        let y = parts.plot.y + row.min(parts.plot.height - 1);
        for x in parts.plot.left()..parts.plot.right() {
            buf[(x, y)]
                .set_symbol(symbol)
                .set_style(look.theme.style(role).remove_modifier(ratatui::style::Modifier::BOLD));
        }
    }
}

/// The shared time axis under the curve: unit of the y axis, ends, and a letter where something happened (AC-32).
fn time_axis(buf: &mut Buffer, parts: &Parts, panel: &Panel, time: &TimeAxis, look: Look) {
    let style = look.theme.style(Role::Dim);
    let y = parts.plot.bottom();
    let (x, wide) = (parts.plot.x, parts.plot.width);
    if parts.labels > 0 {
        put(buf, parts.inner.x, y, parts.labels - 1, panel.axis.unit(), style, look);
        put(buf, x - 1, y, 1, look.glyphs.pick("└", "+"), style, look);
    }
    for cell in x..x + wide {
        put(buf, cell, y, 1, look.glyphs.pick("─", "-"), style, look);
    }
    let letters = &panel.letters;
    // The times stand on the frame where there is one, so that the letters have the axis to themselves; without a frame
    // a time gives way to a letter.
    let row = if parts.framed { parts.inner.bottom() } else { y };
    let mut label = |at: u16, text: &str| {
        let cells = width(text);
        let taken = |l: &(u16, char)| (at..=at + cells).contains(&(l.0 + 1));
        if parts.framed || !letters.iter().any(taken) {
            // Seven-bit frames are of the minus sign's stuff: a blank keeps them apart.
            let gap = u16::from(parts.framed && look.glyphs.is_ascii() && at > 0);
            put(buf, x + at - gap, row, gap, " ", style, look);
            put(buf, x + at, row, cells, text, style, look);
        }
    };
    if wide >= 12 {
        label(0, &time.left);
        label(wide - width(&time.right), &time.right);
    }
    if wide >= 22 {
        label((wide - width(&time.middle)) / 2, &time.middle);
    }
    for (at, letter) in letters.iter().filter(|l| l.0 < wide) {
        let at = x + at;
        let mut utf8 = [0; 4];
        put(
            buf,
            at,
            y,
            1,
            letter.encode_utf8(&mut utf8),
            look.theme.style(Role::Key),
            look,
        );
    }
}
