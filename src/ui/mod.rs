//! The screen: pure functions from a [`view::View`] to cells. Nothing here reads a clock, takes a lock or knows the
//! application (design rule 1).

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub mod axis;
pub mod glyphs;
pub mod layout;
pub mod pane;
pub mod svg;
pub mod text;
pub mod theme;
pub mod view;

use glyphs::GlyphSet;
use layout::Areas;
use theme::{Role, Theme};
use view::View;

/// How things are drawn: colours and characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Colours.
    pub theme: Theme,
    /// Characters.
    pub glyphs: GlyphSet,
}

/// Draws `view` on `area`.
pub fn draw(buf: &mut Buffer, area: Rect, view: &View, look: Look) {
    let area = area.intersection(buf.area);
    let areas = Areas::of(area, view.shown);
    buf.set_style(area, look.theme.style(Role::Text));
    if areas.too_small {
        pane::line(
            buf,
            areas.header,
            &[view::Piece::new(text::too_small(area.width, area.height), Role::Warn)],
            look,
        );
        return;
    }
    pane::header::draw(buf, areas.header, view, look);
    for (panel, rect) in view.panels.iter().zip(areas.panels) {
        pane::panel::draw(buf, rect, panel, &view.time, look);
    }
    pane::bill::draw(buf, areas.bill, &view.bill, look);
    if let Some(strip) = &view.strip {
        pane::strip::draw(buf, areas.strip, strip, look);
    }
    if let Some(table) = &view.table {
        pane::table::draw(buf, areas.table, table, look);
    }
    pane::table::draw(buf, areas.blocks, &view.blocks, look);
    pane::events::draw(buf, areas.events, &view.events_title, &view.events, look);
    pane::wrapped(buf, areas.sentence, &view.sentence, look);
    pane::footer::draw(buf, areas.footer, view, look);
    if let Some(overlay) = &view.overlay {
        pane::overlay::draw(buf, area, overlay, look);
    }
}
