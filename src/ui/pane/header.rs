//! The header line: what is watched on which device under which rules, how fast, and what we ourselves cost.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{line, put_right, width};
use crate::ui::Look;
use crate::ui::theme::Role;
use crate::ui::view::{Piece, View};

/// Draws the header. Pieces that do not fit are dropped from the end, first the right part.
pub fn draw(buf: &mut Buffer, area: Rect, view: &View, look: Look) {
    let separator = Piece::new(" · ", Role::Dim);
    let mut shown: Vec<Piece> = Vec::new();
    let mut used = 1;
    for piece in &view.header {
        let gap = if shown.is_empty() { 0 } else { 3 };
        // The first three (program, device, badge) are always there, cut if they must be.
        if used + gap + width(&piece.text) > area.width && shown.len() >= 5 {
            break;
        }
        if gap > 0 {
            shown.push(separator.clone());
        }
        used += gap + width(&piece.text);
        shown.push(piece.clone());
    }
    let inner = Rect {
        x: area.x + 1,
        width: area.width.saturating_sub(1),
        ..area
    };
    line(buf, inner, &shown, look);
    let mut right = area.right().saturating_sub(1);
    for piece in view.header_right.iter().rev() {
        let wanted = width(&piece.text);
        if right < area.x + used + 2 + wanted {
            break;
        }
        put_right(
            buf,
            area.x,
            area.y,
            right - area.x,
            &piece.text,
            look.theme.style(piece.role),
            look,
        );
        right -= wanted + 2;
    }
}
