//! The event log: each action with its measured cost, newest at the bottom.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{frame, line};
use crate::ui::Look;
use crate::ui::view::Line;

/// Draws the newest events that fit.
pub fn draw(buf: &mut Buffer, area: Rect, title: &str, events: &[Line], look: Look) {
    if area.height < 3 || area.width < 8 {
        return;
    }
    let inner = frame(buf, area, title, false, look);
    let skip = events.len().saturating_sub(inner.height as usize);
    for (i, event) in events[skip..].iter().enumerate() {
        let row = Rect {
            y: inner.y + i as u16,
            height: 1,
            ..inner
        };
        line(buf, row, event, look);
    }
}
