//! The bill: the device total as one stacked bar, and its lines, which sum to it exactly (design rule 6).

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{line, put, width};
use crate::ui::Look;
use crate::ui::theme::Role;
use crate::ui::view::{Bill, BillLine, Piece};

/// Cells of a bar of `width` cells for parts of `bytes`: in proportion, but every part that is not zero gets at least one
/// cell, taken from the largest; the sum is `width`.
pub fn cells(parts: &[u64], width: u16) -> Vec<u16> {
    let total: u128 = parts.iter().map(|p| u128::from(*p)).sum();
    if total == 0 || width == 0 {
        return vec![0; parts.len()];
    }
    let mut cells: Vec<u16> = parts
        .iter()
        .map(|p| {
            let share = (u128::from(*p) * u128::from(width) + total / 2) / total;
            if *p > 0 { share.max(1) as u16 } else { 0 }
        })
        .collect();
    // Rounding, and the cells given to small parts, come off (or go to) the largest.
    loop {
        let sum: i32 = cells.iter().map(|c| i32::from(*c)).sum();
        let surplus = sum - i32::from(width);
        let Some(largest) = (0..cells.len()).max_by_key(|i| cells[*i]) else {
            return cells;
        };
        match surplus {
            0 => return cells,
            s if s < 0 => cells[largest] += (-s) as u16,
            _ if cells[largest] > 1 => cells[largest] -= 1,
            // More parts than cells: the last ones have no cell.
            _ => match cells.iter().rposition(|c| *c > 0) {
                Some(last) => cells[last] = 0,
                None => return cells,
            },
        }
    }
}

/// Draws the bill in one to four rows: figures and bar, then the used part enlarged.
pub fn draw(buf: &mut Buffer, area: Rect, bill: &Bill, look: Look) {
    if area.is_empty() {
        return;
    }
    let inner = Rect {
        x: area.x + 1,
        width: area.width.saturating_sub(2),
        ..area
    };
    let row = |i: u16| Rect {
        y: inner.y + i,
        height: 1,
        ..inner
    };
    let used: Vec<&BillLine> = bill.lines.iter().filter(|l| l.role != Role::Free).collect();
    if area.height == 1 {
        let captioned = bill.total.is_some().then_some(bill.summary.as_str());
        bar(buf, row(0), captioned.unwrap_or(&bill.title), &used, look);
        return;
    }
    // The figures come first: as many rows as they need, the bars get the rest.
    let groups = figures(inner.width, bill, look);
    let text_rows = rows_of(&groups, inner.width).min(area.height);
    put_figures(buf, inner, text_rows, groups, look);
    let mut next = text_rows;
    if bill.total.is_some() && next < area.height {
        let all: Vec<&BillLine> = bill.lines.iter().collect();
        let caption = if area.height - next >= 2 { "device" } else { "" };
        bar(buf, row(next), caption, &all, look);
        next += 1;
    }
    if bill.total.is_some() && next < area.height {
        bar(buf, row(next), "used  ", &used, look);
    }
}

fn bar(buf: &mut Buffer, area: Rect, caption: &str, lines: &[&BillLine], look: Look) {
    let caption_width = if caption.is_empty() { 0 } else { width(caption) + 1 };
    put(
        buf,
        area.x,
        area.y,
        caption_width,
        caption,
        look.theme.style(Role::Dim),
        look,
    );
    let parts: Vec<u64> = lines.iter().map(|l| l.bytes.unwrap_or_default()).collect();
    let mut x = area.x + caption_width;
    for (line, cells) in lines
        .iter()
        .zip(cells(&parts, area.width.saturating_sub(caption_width)))
    {
        let fill = look.glyphs.fill(line.role);
        for _ in 0..cells {
            buf[(x, area.y)].set_symbol(fill).set_style(look.theme.style(line.role));
            x += 1;
        }
    }
}

/// How much is said: the words of the lines are shortened, and lines of 0 left out, as the screen narrows.
fn word(line: &BillLine, width: u16) -> &str {
    match line.label.as_str() {
        "driver" if width < 72 => "drv",
        "context" if width < 72 => "ctx",
        label => label,
    }
}

/// Total, then "swatch label figure" of each line, as groups that are not torn apart.
fn figures(width: u16, bill: &Bill, look: Look) -> Vec<Vec<Piece>> {
    let compact = width < 98;
    let title = if compact {
        bill.title.trim_start_matches("bill ")
    } else {
        &bill.title
    };
    let mut groups: Vec<Vec<Piece>> = vec![vec![Piece::new(title, Role::Figure)]];
    if let Some(note) = &bill.note {
        groups.push(vec![Piece::new(" ", Role::Dim), note.clone()]);
    }
    let lines = bill.lines.iter().filter(|l| !compact || l.bytes != Some(0));
    for (i, item) in lines.enumerate() {
        let joint = if i == 0 { " = " } else { " + " };
        let figure = Piece::new(
            item.text.clone(),
            if item.bytes.is_some() { Role::Text } else { Role::Dim },
        );
        let gap = if compact { "" } else { " " };
        groups.push(vec![
            Piece::new(joint, Role::Dim),
            Piece::new(look.glyphs.fill(item.role), item.role),
            Piece::new(format!("{gap}{} ", word(item, width)), Role::Dim),
            figure,
        ]);
    }
    groups
}

fn group_width(group: &[Piece]) -> u16 {
    group.iter().map(|p| width(&p.text)).sum()
}

/// Rows that the groups take; a group that begins a row loses the blank before its joint.
fn rows_of(groups: &[Vec<Piece>], width: u16) -> u16 {
    let (mut rows, mut x) = (1, 0);
    for group in groups {
        let wanted = group_width(group);
        if x > 0 && x + wanted > width {
            rows += 1;
            x = 0;
        }
        x += wanted - u16::from(x == 0 && rows > 1);
    }
    rows
}

fn put_figures(buf: &mut Buffer, area: Rect, rows: u16, groups: Vec<Vec<Piece>>, look: Look) {
    let (mut x, mut y) = (area.x, area.y);
    for mut group in groups {
        if x > area.x && x + group_width(&group) > area.right() {
            if y + 1 >= area.y + rows {
                let style = look.theme.style(Role::Dim);
                put(buf, x, y, area.right().saturating_sub(x), " …", style, look);
                return;
            }
            y += 1;
            x = area.x;
            group[0].text = group[0].text.trim_start().to_string();
        }
        let rest = Rect::new(x, y, area.right().saturating_sub(x), 1);
        x += line(buf, rest, &group, look);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_and_shows_every_part() {
        assert_eq!(cells(&[1, 0, 1_000_000], 10), [1, 0, 9]);
        assert_eq!(cells(&[1, 1, 1], 10).iter().sum::<u16>(), 10);
        assert_eq!(cells(&[0, 0], 10), [0, 0]);
        for width in 1..60 {
            let got = cells(&[615, 0, 610, 1, 764, 138_000, 9], width);
            assert_eq!(got.iter().sum::<u16>(), width, "{got:?}");
        }
    }
}
