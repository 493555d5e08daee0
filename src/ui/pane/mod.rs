//! The panes, and the few ways in which all of them put text on cells.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Block, Widget};
use unicode_width::UnicodeWidthStr;

use super::Look;
use super::theme::Role;
use super::view::Piece;

pub mod bill;
pub mod events;
pub mod footer;
pub mod graph;
pub mod header;
pub mod overlay;
pub mod panel;
pub mod strip;
pub mod table;

/// Writes `text` at (x, y) in at most `width` cells and returns the cells used. What does not fit ends in an ellipsis.
pub fn put(buf: &mut Buffer, x: u16, y: u16, width: u16, text: &str, style: Style, look: Look) -> u16 {
    if width == 0 || y >= buf.area.bottom() || x >= buf.area.right() {
        return 0;
    }
    let text = look.glyphs.text(text);
    let width = width.min(buf.area.right() - x);
    if text.width() <= width as usize {
        let (end, _) = buf.set_stringn(x, y, &text, width as usize, style);
        return end - x;
    }
    let dots = look.glyphs.pick("…", "~");
    let (end, _) = buf.set_stringn(x, y, &text, width as usize - 1, style);
    buf.set_stringn(end, y, dots, 1, style);
    end + 1 - x
}

/// Writes `text` so that it ends at the right edge of the `width` cells from x, and returns the cells used.
pub fn put_right(buf: &mut Buffer, x: u16, y: u16, width: u16, text: &str, style: Style, look: Look) -> u16 {
    let used = (look.glyphs.text(text).width() as u16).min(width);
    put(buf, x + width - used, y, used, text, style, look)
}

/// Writes pieces one after the other on the first line of `area`; returns the cells used.
pub fn line(buf: &mut Buffer, area: Rect, pieces: &[Piece], look: Look) -> u16 {
    if area.is_empty() {
        return 0;
    }
    let mut x = area.x;
    for piece in pieces {
        let left = area.right() - x;
        if left == 0 {
            break;
        }
        x += put(buf, x, area.y, left, &piece.text, look.theme.style(piece.role), look);
    }
    x - area.x
}

/// The cells that `text` takes.
pub fn width(text: &str) -> u16 {
    text.width() as u16
}

/// Breaks `text` into lines of at most `width` cells, at blanks where there are some.
pub fn wrap(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width.max(1));
    let mut lines = Vec::new();
    let mut current = String::new();
    for word in text.split_whitespace() {
        let mut word = word;
        loop {
            let gap = usize::from(!current.is_empty());
            if current.width() + gap + word.width() <= width {
                if gap == 1 {
                    current.push(' ');
                }
                current.push_str(word);
                break;
            }
            if !current.is_empty() {
                lines.push(std::mem::take(&mut current));
                continue;
            }
            // A word longer than a line is cut.
            let mut end = 0;
            for (i, c) in word.char_indices() {
                if word[..i + c.len_utf8()].width() > width {
                    break;
                }
                end = i + c.len_utf8();
            }
            if end == 0 {
                break;
            }
            lines.push(word[..end].to_string());
            word = &word[end..];
            if word.is_empty() {
                break;
            }
        }
    }
    if !current.is_empty() {
        lines.push(current);
    }
    lines
}

/// Writes a piece over all lines of `area`; what does not fit ends in an ellipsis.
pub fn wrapped(buf: &mut Buffer, area: Rect, piece: &Piece, look: Look) {
    let style = look.theme.style(piece.role);
    let text = look.glyphs.text(&piece.text);
    let lines = wrap(&text, area.width.saturating_sub(1));
    for (i, text) in lines.iter().enumerate().take(area.height as usize) {
        let last = i + 1 == area.height as usize && lines.len() > i + 1;
        let text = if last { lines[i..].join(" ") } else { text.clone() };
        put(
            buf,
            area.x + 1,
            area.y + i as u16,
            area.width.saturating_sub(1),
            &text,
            style,
            look,
        );
    }
}

/// Draws a frame with a title and returns the area inside.
pub fn frame(buf: &mut Buffer, area: Rect, title: &str, focus: bool, look: Look) -> Rect {
    let style = look.theme.style(if focus { Role::Focus } else { Role::Frame });
    let block = Block::bordered().border_set(look.glyphs.border()).border_style(style);
    let inner = block.inner(area);
    block.render(area, buf);
    if area.width > 4 && area.height > 0 {
        let title = format!(" {title} ");
        let role = if focus { Role::Focus } else { Role::Text };
        // The title has a style of its own: nothing of the frame's shines through.
        for x in area.x + 1..(area.x + 1 + width(&title)).min(area.right() - 1) {
            buf[(x, area.y)].reset();
        }
        put(
            buf,
            area.x + 1,
            area.y,
            area.width - 2,
            &title,
            look.theme.style(role),
            look,
        );
    }
    inner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_keeps_every_word_and_cuts_long_ones() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("", 5), Vec::<String>::new());
        assert_eq!(wrap("日本語", 1), Vec::<String>::new());
    }
}
