//! The block strip: segments drawn to scale, their parts told apart by glyph and colour.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::{bill, frame, line, put, width};
use crate::ui::Look;
use crate::ui::theme::Role;
use crate::ui::view::{Piece, Strip};

/// Draws the legend, the segments that fit, and what is known of the selected block.
pub fn draw(buf: &mut Buffer, area: Rect, strip: &Strip, look: Look) {
    if area.height < 3 || area.width < 20 {
        return;
    }
    let inner = frame(buf, area, &strip.title, strip.focus, look);
    let row = |i: u16| Rect {
        y: inner.y + i,
        height: 1,
        ..inner
    };
    let mut legend: Vec<Piece> = Vec::new();
    for (role, word) in [
        (Role::Live, "live"),
        (Role::Pending, "pending"),
        (Role::Cache, "cached"),
        (Role::Dim, "rounding"),
        (Role::Free, "unmapped"),
    ] {
        legend.push(Piece::new("  ", Role::Dim));
        legend.push(Piece::new(look.glyphs.fill(role), role));
        legend.push(Piece::new(format!(" {word}"), Role::Dim));
    }
    // Facts and legend share a row where both fit; where there is no second row, the facts are what matters.
    let used = line(buf, row(0), &strip.facts, look);
    let wanted: u16 = legend.iter().map(|p| width(&p.text)).sum();
    let head = if used + wanted <= inner.width {
        let rest = Rect::new(inner.x + used, inner.y, inner.width - used, 1);
        line(buf, rest, &legend, look);
        1
    } else if inner.height >= 5 {
        line(buf, row(1), &legend, look);
        2
    } else {
        1
    };
    let detail = (strip.detail.len() as u16).min(inner.height.saturating_sub(head + 1));
    let rows = inner.height.saturating_sub(head + detail);
    let label_width = strip
        .segments
        .iter()
        .map(|s| width(&s.label))
        .max()
        .unwrap_or_default()
        .min(inner.width / 2);
    let largest = strip.segments.iter().map(|s| s.bytes).max().unwrap_or_default().max(1);
    let bar_width = inner.width.saturating_sub(label_width + 1);
    for (i, segment) in strip.segments.iter().skip(strip.first).take(rows as usize).enumerate() {
        let y = inner.y + head + i as u16;
        put(
            buf,
            inner.x,
            y,
            label_width,
            &segment.label,
            look.theme.style(Role::Dim),
            look,
        );
        // All segments at one scale: the largest fills the row.
        let wide = (u128::from(segment.bytes) * u128::from(bar_width)).div_ceil(u128::from(largest)) as u16;
        let parts: Vec<u64> = segment.parts.iter().map(|p| p.bytes).collect();
        let mut x = inner.x + label_width + 1;
        for (part, cells) in segment.parts.iter().zip(bill::cells(&parts, wide.min(bar_width))) {
            let style = if part.selected {
                look.theme.style(Role::Focus).add_modifier(Modifier::UNDERLINED)
            } else {
                look.theme.style(part.role)
            };
            for _ in 0..cells {
                buf[(x, y)].set_symbol(look.glyphs.fill(part.role)).set_style(style);
                x += 1;
            }
        }
    }
    for (i, text) in strip.detail.iter().take(detail as usize).enumerate() {
        let y = inner.bottom() - detail + i as u16;
        put(buf, inner.x, y, inner.width, text, look.theme.style(Role::Text), look);
    }
}
