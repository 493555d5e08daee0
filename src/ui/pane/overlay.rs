//! What stands over the dashboard: help, choosers, dialogs.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Widget};

use super::{frame, line, put, width};
use crate::ui::Look;
use crate::ui::theme::Role;
use crate::ui::view::{Overlay, Piece};

/// Draws it in the middle, as large as it needs and the screen allows.
pub fn draw(buf: &mut Buffer, area: Rect, overlay: &Overlay, look: Look) {
    let wanted_width = overlay
        .lines
        .iter()
        .map(|l| l.iter().map(|p| width(&p.text)).sum::<u16>())
        .chain([
            width(&overlay.foot),
            width(&overlay.title) + 4,
            if overlay.input.is_some() { 60 } else { 0 },
        ])
        .max()
        .unwrap_or_default()
        .saturating_add(4);
    let extra = 3 + u16::from(overlay.input.is_some());
    let wanted_height = (overlay.lines.len().min(500) as u16).saturating_add(extra);
    let w = wanted_width.min(area.width);
    let h = wanted_height.min(area.height);
    let rect = Rect::new(area.x + (area.width - w) / 2, area.y + (area.height - h) / 2, w, h);
    Clear.render(rect, buf);
    buf.set_style(rect, look.theme.style(Role::Text));
    let inner = frame(buf, rect, &overlay.title, true, look);
    if inner.height == 0 || inner.width < 3 {
        return;
    }
    let room = inner.height.saturating_sub(extra - 2) as usize;
    let scroll = overlay.scroll.min(overlay.lines.len().saturating_sub(room));
    let row = |y: u16| Rect::new(inner.x + 1, y, inner.width - 2, 1);
    for (i, pieces) in overlay.lines.iter().skip(scroll).take(room).enumerate() {
        line(buf, row(inner.y + i as u16), pieces, look);
    }
    if let Some((prompt, typed)) = &overlay.input {
        let y = inner.bottom().saturating_sub(2);
        let cursor = look.glyphs.pick("▏", "_");
        // The end of a long input is what is being typed: show that.
        let space = (inner.width - 2).saturating_sub(width(prompt) + 2) as usize;
        let skip = typed.chars().count().saturating_sub(space);
        let shown: String = typed.chars().skip(skip).collect();
        line(
            buf,
            row(y),
            &[
                Piece::new(format!("{prompt} "), Role::Key),
                Piece::new(format!("{shown}{cursor}"), Role::Figure),
            ],
            look,
        );
    }
    let mut foot = overlay.foot.clone();
    if overlay.lines.len() > room {
        foot = format!(
            "{foot}  ({}-{} of {})",
            scroll + 1,
            (scroll + room).min(overlay.lines.len()),
            overlay.lines.len()
        );
    }
    let y = inner.bottom() - 1;
    put(
        buf,
        inner.x + 1,
        y,
        inner.width - 2,
        &foot,
        look.theme.style(Role::Dim),
        look,
    );
}
