//! A table with a selection: live blocks, processes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{frame, put, put_right};
use crate::ui::Look;
use crate::ui::theme::Role;
use crate::ui::view::{Column, Table};

/// Which columns fit in `width` cells: the least important are dropped first, and the last one that stays gets the rest.
fn fitting(columns: &[Column], width: u16) -> Vec<(usize, u16)> {
    let mut chosen: Vec<usize> = (0..columns.len()).collect();
    let cells = |chosen: &[usize]| chosen.iter().map(|i| columns[*i].width + 1).sum::<u16>();
    while cells(&chosen) > width + 1 && chosen.len() > 1 {
        let Some(least) = chosen
            .iter()
            .copied()
            .min_by_key(|i| (columns[*i].rank, usize::MAX - *i))
        else {
            break;
        };
        chosen.retain(|i| *i != least);
    }
    let spare = (width + 1).saturating_sub(cells(&chosen));
    let last = chosen.last().copied();
    chosen
        .into_iter()
        .map(|i| {
            let wide = columns[i].width + if Some(i) == last && !columns[i].right { spare } else { 0 };
            (i, wide.min(width))
        })
        .collect()
}

/// Draws the frame, the head and the rows around the selection.
pub fn draw(buf: &mut Buffer, area: Rect, table: &Table, look: Look) {
    if area.height < 3 || area.width < 8 {
        return;
    }
    let inner = frame(buf, area, &table.title, table.focus, look);
    if table.rows.is_empty() {
        for (i, text) in super::wrap(&table.empty, inner.width)
            .iter()
            .enumerate()
            .take(inner.height as usize)
        {
            let y = inner.y + i as u16;
            put(buf, inner.x, y, inner.width, text, look.theme.style(Role::Dim), look);
        }
        return;
    }
    let columns = fitting(&table.columns, inner.width);
    let head = u16::from(inner.height > 2);
    let room = (inner.height - head) as usize;
    let selected = table.selected.unwrap_or(table.rows.len().saturating_sub(1));
    let first = selected.saturating_sub(room.saturating_sub(1)).max(
        selected
            .saturating_sub(room / 2)
            .min(table.rows.len().saturating_sub(room)),
    );
    let mut x = inner.x;
    for (i, width) in &columns {
        let column = &table.columns[*i];
        let place = if column.right { put_right } else { put };
        if head == 1 {
            place(buf, x, inner.y, *width, column.head, look.theme.style(Role::Dim), look);
        }
        for (r, row) in table.rows.iter().enumerate().skip(first).take(room) {
            let y = inner.y + head + (r - first) as u16;
            let Some(cell) = row.get(*i) else { continue };
            place(buf, x, y, *width, &cell.text, look.theme.style(cell.role), look);
        }
        x += width + 1;
    }
    if let Some(selected) = table.selected.filter(|s| (first..first + room).contains(s)) {
        let row = Rect {
            y: inner.y + head + (selected - first) as u16,
            height: 1,
            ..inner
        };
        buf.set_style(row, look.theme.style(Role::Selected));
    }
}
