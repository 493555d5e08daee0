//! The footer: the keys of the moment, from the action table.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{line, width};
use crate::ui::Look;
use crate::ui::theme::Role;
use crate::ui::view::{Piece, View};

/// Draws the keys; help and quit, which stand last in the list, are kept when the rest does not fit.
pub fn draw(buf: &mut Buffer, area: Rect, view: &View, look: Look) {
    let area = Rect {
        x: area.x + 1,
        width: area.width.saturating_sub(1),
        ..area
    };
    if let Some(hint) = &view.hint {
        line(buf, area, std::slice::from_ref(hint), look);
        return;
    }
    let all = view
        .footer
        .iter()
        .map(|(key, word)| width(key) + width(word) + 3)
        .sum::<u16>();
    let gap = if all <= area.width { "  " } else { " " };
    let cells = |(key, word): &(String, String)| width(key) + width(word) + 1 + width(gap);
    let keep = view.footer.len().saturating_sub(2);
    let mut left = i32::from(area.width) - view.footer[keep..].iter().map(|e| i32::from(cells(e))).sum::<i32>()
        + i32::from(width(gap));
    let mut pieces = Vec::new();
    for (i, item) in view.footer.iter().enumerate() {
        if i < keep {
            if left < i32::from(cells(item)) {
                continue;
            }
            left -= i32::from(cells(item));
        }
        pieces.push(Piece::new(item.0.clone(), Role::Key));
        pieces.push(Piece::new(format!(" {}{gap}", item.1), Role::Dim));
    }
    if let Some(last) = pieces.last_mut() {
        last.text.truncate(last.text.trim_end().len());
    }
    line(buf, area, &pieces, look);
}
