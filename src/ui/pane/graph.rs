//! The curve of one panel in three glyph sets: filled to the last value of each column, and shaded from there to its
//! maximum, so that no spike is lost (AC-33).

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::ui::axis::Axis;
use crate::ui::glyphs::GlyphSet;
use crate::ui::view::Span;

/// Columns of the curve in one cell.
pub fn columns_per_cell(glyphs: GlyphSet) -> u16 {
    if glyphs == GlyphSet::Braille { 2 } else { 1 }
}

/// Draws `curve`, whose last entry is the rightmost sub-column, into `area`.
pub fn draw(buf: &mut Buffer, area: Rect, curve: &[Option<Span>], glyphs: GlyphSet, style: Style) {
    let area = area.intersection(buf.area);
    if area.is_empty() {
        return;
    }
    match glyphs {
        GlyphSet::Braille => braille(buf, area, curve, style),
        GlyphSet::Block | GlyphSet::Ascii => blocks(buf, area, curve, glyphs, style),
    }
}

/// The part of the curve that fits, with the number of empty sub-columns before it.
fn fitting(curve: &[Option<Span>], columns: usize) -> (usize, &[Option<Span>]) {
    let skip = curve.len().saturating_sub(columns);
    (columns - (curve.len() - skip), &curve[skip..])
}

/// Steps in the height of one cell.
pub fn steps_per_cell(glyphs: GlyphSet) -> u16 {
    if glyphs == GlyphSet::Braille { 4 } else { 8 }
}

/// A value's height in `steps`; anything above zero shows at least one step.
pub fn height(axis: &Axis, value: u64, steps: u16) -> u16 {
    if value == 0 || steps == 0 {
        return 0;
    }
    ((axis.height(value) * f64::from(steps)).round() as u16).clamp(1, steps)
}

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

fn blocks(buf: &mut Buffer, area: Rect, curve: &[Option<Span>], glyphs: GlyphSet, style: Style) {
    let (offset, curve) = fitting(curve, area.width as usize);
    let height = u32::from(area.height) * 8;
    for (i, span) in curve.iter().enumerate() {
        let Some(span) = span else { continue };
        let x = area.x + (offset + i) as u16;
        let (low, high) = (u32::from(span.last).min(height), u32::from(span.max).min(height));
        for row in 0..area.height {
            let floor = u32::from(area.height - 1 - row) * 8;
            let filled = high.saturating_sub(floor).min(8);
            if filled == 0 {
                continue;
            }
            // Whole cells above the column's last value were reached for a part of its time.
            let band = floor >= low && filled == 8;
            let symbol = match (glyphs.is_ascii(), band) {
                (false, true) => "▒",
                (false, false) => EIGHTHS[filled as usize],
                (true, true) => ":",
                (true, false) => ["", ".", ".", "_", "o", "o", "o", "#", "#"][filled as usize],
            };
            buf[(x, area.y + row)].set_symbol(symbol).set_style(style);
        }
    }
}

/// Bit of a Braille cell for its left or right column, rows from the bottom.
const DOTS: [[u8; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];

fn braille(buf: &mut Buffer, area: Rect, curve: &[Option<Span>], style: Style) {
    let (offset, curve) = fitting(curve, area.width as usize * 2);
    let height = u32::from(area.height) * 4;
    let mut row_bits = vec![0u8; area.width as usize * area.height as usize];
    for (i, span) in curve.iter().enumerate() {
        let Some(span) = span else { continue };
        let column = offset + i;
        let (cell, side) = (column / 2, column % 2);
        let (low, high) = (u32::from(span.last).min(height), u32::from(span.max).min(height));
        for step in 0..high {
            // Between the last value and the maximum every second dot: reached for a part of the time.
            if step >= low && step + 1 != high && (step as usize + column) % 2 == 1 {
                continue;
            }
            let row = area.height as usize - 1 - (step / 4) as usize;
            row_bits[row * area.width as usize + cell] |= DOTS[side][(step % 4) as usize];
        }
    }
    let mut utf8 = [0u8; 4];
    for (i, bits) in row_bits.into_iter().enumerate().filter(|(_, bits)| *bits != 0) {
        let (x, y) = ((i % area.width as usize) as u16, (i / area.width as usize) as u16);
        if let Some(c) = char::from_u32(0x2800 + u32::from(bits)) {
            buf[(area.x + x, area.y + y)]
                .set_symbol(c.encode_utf8(&mut utf8))
                .set_style(style);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::axis::Scale;

    fn drawn(glyphs: GlyphSet, curve: &[Option<(u64, u64)>], width: u16, height: u16) -> Vec<String> {
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        let axis = Axis {
            scale: Scale::Auto,
            top: 80,
        };
        let steps = height * steps_per_cell(glyphs);
        let curve: Vec<_> = curve
            .iter()
            .map(|v| {
                v.map(|(last, max)| Span {
                    last: super::height(&axis, last, steps),
                    max: super::height(&axis, max, steps),
                })
            })
            .collect();
        draw(&mut buf, area, &curve, glyphs, Style::new());
        (0..height)
            .map(|y| (0..width).map(|x| buf[(x, y)].symbol().to_string()).collect())
            .collect()
    }

    fn flat(v: u64) -> (u64, u64) {
        (v, v)
    }

    #[test]
    fn heights_gaps_and_spikes() {
        let curve = [
            Some(flat(80)),
            Some(flat(40)),
            None,
            Some((10, 80)),
            Some(flat(0)),
            Some(flat(1)),
        ];
        assert_eq!(
            drawn(GlyphSet::Block, &curve, 6, 2),
            ["█  ▒  ", "██ ▂ ▁".replace('▂', "█").as_str()]
        );
        assert_eq!(drawn(GlyphSet::Ascii, &curve, 6, 2), ["#  :  ", "## # ."]);
    }

    #[test]
    fn braille_fills_two_columns_a_cell() {
        let curve = [Some(flat(80)), Some(flat(40)), None, Some(flat(20))];
        assert_eq!(drawn(GlyphSet::Braille, &curve, 2, 1), ["⣧⢀"]);
    }

    #[test]
    fn a_curve_longer_or_shorter_than_the_area_ends_at_the_right() {
        let curve: Vec<_> = (0..20).map(|i| Some(flat(if i == 19 { 80 } else { 0 }))).collect();
        assert_eq!(drawn(GlyphSet::Block, &curve, 5, 1), ["    █"]);
        assert_eq!(drawn(GlyphSet::Block, &curve[18..], 5, 1), ["    █"]);
    }
}
