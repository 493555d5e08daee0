//! Where everything stands, for every size from 0x0 up: pure functions of the size and of what is shown. Nothing
//! overlaps and nothing leaves the screen (AC-20; test below).

use ratatui::layout::Rect;

/// The smallest screen that gets the dashboard; below it, one line.
pub const MINIMUM: (u16, u16) = (40, 12);

/// What is to be placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// One panel alone (0-3).
    pub alone: Option<usize>,
    /// The process table.
    pub table: bool,
    /// The block strip.
    pub strip: bool,
    /// The sentence is a long one (an OOM text): it gets more rows where there are some to spare.
    pub long: bool,
}

/// Areas of one frame. An area that has no room is empty (`Rect::ZERO`) and is not drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    /// Too small for the dashboard: only `header` is used, for the one-line notice.
    pub too_small: bool,
    /// The header line.
    pub header: Rect,
    /// The four panels; one of them has the whole area when it stands alone.
    pub panels: [Rect; 4],
    /// The bill.
    pub bill: Rect,
    /// The block strip.
    pub strip: Rect,
    /// The process table.
    pub table: Rect,
    /// The list of live blocks.
    pub blocks: Rect,
    /// The event log.
    pub events: Rect,
    /// The sentence.
    pub sentence: Rect,
    /// The footer.
    pub footer: Rect,
}

/// Takes rows off the top or the bottom of a rest.
struct Rest(Rect);

impl Rest {
    fn top(&mut self, rows: u16) -> Rect {
        let rows = rows.min(self.0.height);
        let taken = Rect { height: rows, ..self.0 };
        self.0.y += rows;
        self.0.height -= rows;
        taken
    }

    fn bottom(&mut self, rows: u16) -> Rect {
        let rows = rows.min(self.0.height);
        self.0.height -= rows;
        Rect {
            y: self.0.y + self.0.height,
            height: rows,
            ..self.0
        }
    }
}

impl Areas {
    /// Places what is `shown` on a screen of `area`.
    pub fn of(area: Rect, shown: Shown) -> Areas {
        let mut areas = Areas::default();
        if area.width < MINIMUM.0 || area.height < MINIMUM.1 {
            areas.too_small = true;
            areas.header = Rect {
                height: area.height.min(1),
                ..area
            };
            return areas;
        }
        let mut rest = Rest(area);
        areas.header = rest.top(1);
        areas.footer = rest.bottom(1);
        let h = area.height;
        areas.sentence = rest.bottom(match (h, area.width) {
            (..16, _) | (..30, 180..) => 1,
            (24.., _) if shown.long => 4,
            (20.., ..100) => 3,
            _ => 2,
        });
        let lower_wanted = shown.table || shown.strip;
        // What is under the panels: the bill always, then the strip, then the table or the lists.
        let bill = if h < 16 {
            1
        } else if area.width < 100 || h < 30 || area.width >= 160 {
            3
        } else {
            4
        };
        let rows = rest.0.height;
        let panels = match h {
            0..=15 if lower_wanted => 4,
            0..=15 => rows - bill,
            16..=22 if lower_wanted => (rows - bill).min(5),
            // Where no list fits below, the panels have the rest.
            16..=22 if rows < bill + 13 => rows - bill,
            16..=22 => 10,
            23..=29 if lower_wanted => 6,
            23..=29 => 12.min(rows - bill),
            _ if lower_wanted => (rows / 3).clamp(8, 16),
            _ => (rows * 12 / 25).max(12),
        };
        place_panels(&mut areas, rest.top(panels), shown.alone);
        areas.bill = rest.top(bill);
        // Too low for both: the table, which was asked for last or has the rows that act.
        if shown.strip && !(shown.table && rest.0.height < 8) {
            let share = if shown.table { rest.0.height / 2 } else { rest.0.height };
            areas.strip = rest.top(share);
        }
        if shown.table {
            areas.table = rest.0;
            return areas;
        }
        let lists = rest.0;
        if lists.height >= 3 {
            if lists.width >= 72 {
                let left = lists.width / 2;
                areas.blocks = Rect { width: left, ..lists };
                areas.events = Rect {
                    x: lists.x + left,
                    width: lists.width - left,
                    ..lists
                };
            } else if lists.height >= 8 {
                areas.blocks = rest.top(lists.height / 2);
                areas.events = rest.0;
            } else {
                areas.events = lists;
            }
        }
        areas
    }
}

/// Four side by side, 2x2 or stacked, by what gives each panel a readable curve.
fn place_panels(areas: &mut Areas, area: Rect, alone: Option<usize>) {
    if let Some(i) = alone {
        areas.panels[i.min(3)] = area;
        return;
    }
    let (columns, rows) = if area.width >= 100 || (area.width >= 72 && area.height < 10) {
        (4, 1)
    } else if area.width >= 56 && area.height >= 8 || area.height < 4 {
        (2, 2)
    } else {
        (1, 4)
    };
    for i in 0..4u16 {
        let (c, r) = (i % columns, i / columns);
        let (x0, x1) = (area.width * c / columns, area.width * (c + 1) / columns);
        let (y0, y1) = (area.height * r / rows, area.height * (r + 1) / rows);
        areas.panels[i as usize] = Rect::new(area.x + x0, area.y + y0, x1 - x0, y1 - y0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_nothing_leaves_the_screen_at_any_size() {
        for width in 0..=220u16 {
            for height in 0..=70u16 {
                for bits in 0..8u8 {
                    let shown = Shown {
                        alone: (bits & 1 != 0).then_some(2),
                        table: bits & 2 != 0,
                        strip: bits & 4 != 0,
                        long: bits & 2 == 0,
                    };
                    let area = Rect::new(0, 0, width, height);
                    let a = Areas::of(area, shown);
                    let mut all = vec![
                        a.header, a.bill, a.strip, a.table, a.blocks, a.events, a.sentence, a.footer,
                    ];
                    all.extend(a.panels);
                    all.retain(|r| !r.is_empty());
                    for (i, r) in all.iter().enumerate() {
                        assert_eq!(
                            area.intersection(*r),
                            *r,
                            "{width}x{height} {shown:?}: {r:?} leaves the screen"
                        );
                        for s in &all[i + 1..] {
                            assert!(!r.intersects(*s), "{width}x{height} {shown:?}: {r:?} and {s:?} overlap");
                        }
                    }
                    if !a.too_small {
                        let drawn = a.panels.iter().filter(|p| p.height >= 1 && p.width >= 18).count();
                        assert_eq!(
                            drawn,
                            if shown.alone.is_some() { 1 } else { 4 },
                            "{width}x{height} {shown:?}"
                        );
                        assert!(
                            !a.bill.is_empty() && !a.sentence.is_empty(),
                            "{width}x{height} {shown:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_shapes_of_the_named_sizes() {
        let shape = |w, h| {
            let a = Areas::of(Rect::new(0, 0, w, h), Shown::default());
            let columns = a.panels.iter().filter(|p| p.y == a.panels[0].y).count();
            (columns, 4 / columns)
        };
        assert_eq!(shape(200, 50), (4, 1));
        assert_eq!(shape(120, 36), (4, 1));
        assert_eq!(shape(80, 24), (2, 2));
        assert_eq!(shape(60, 20), (2, 2));
        assert_eq!(shape(40, 12), (1, 4));
    }
}
