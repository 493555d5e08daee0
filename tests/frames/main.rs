//! Whole frames, compared as text at every named size and in every look, and drawn at every size without a panic.

use alloctop::ui::glyphs::GlyphSet;
use alloctop::ui::theme::{Depth, Scheme, Theme};
use alloctop::ui::{self, Look};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

mod tape;

use tape::Tape;

const SIZES: [(u16, u16); 5] = [(200, 50), (120, 36), (80, 24), (60, 20), (40, 12)];

fn look(scheme: Scheme, glyphs: GlyphSet) -> Look {
    Look {
        theme: Theme::new(scheme, Depth::True),
        glyphs,
    }
}

fn frame(tape: &mut Tape, width: u16, height: u16) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let view = tape.app.view(area);
    let mut buf = Buffer::empty(area);
    ui::draw(&mut buf, area, &view, tape.app.setup.look);
    buf
}

fn text(buf: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buf.area.height {
        let line: String = (0..buf.area.width).map(|x| buf[(x, y)].symbol()).collect();
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[test]
fn the_experiment_at_every_named_size() {
    for (name, glyphs) in [
        ("block", GlyphSet::Block),
        ("braille", GlyphSet::Braille),
        ("ascii", GlyphSet::Ascii),
    ] {
        let mut tape = Tape::new(look(Scheme::Dark, glyphs));
        tape.experiment();
        for (w, h) in SIZES {
            let shown = text(&frame(&mut tape, w, h));
            if glyphs == GlyphSet::Ascii {
                assert!(shown.is_ascii(), "{w}x{h} is not ASCII:\n{shown}");
            }
            insta::assert_snapshot!(format!("{name}_{w}x{h}"), shown);
        }
    }
}

/// Writes pictures of every size and look into the folder that ALLOCTOP_PICTURES names; without it, draws them all the same.
#[test]
fn every_look_draws() {
    let folder = std::env::var_os("ALLOCTOP_PICTURES").map(std::path::PathBuf::from);
    for scheme in [Scheme::Dark, Scheme::Light, Scheme::Recording, Scheme::Mono] {
        for glyphs in [GlyphSet::Block, GlyphSet::Braille, GlyphSet::Ascii] {
            let mut tape = Tape::new(look(scheme, glyphs));
            tape.experiment();
            for (w, h) in SIZES {
                let buf = frame(&mut tape, w, h);
                let svg = ui::svg::picture(&buf, scheme == Scheme::Light);
                assert!(svg.ends_with("</svg>\n"));
                if let Some(folder) = &folder {
                    let name = format!("{scheme:?}-{glyphs:?}-{w}x{h}.svg").to_lowercase();
                    std::fs::write(folder.join(name), svg).unwrap();
                }
            }
        }
    }
}

#[test]
fn every_size_draws_inside_its_area() {
    let mut tape = Tape::new(look(Scheme::Dark, GlyphSet::Block));
    tape.experiment();
    let sizes = (0..=130u16)
        .flat_map(|w| (0..=42u16).map(move |h| (w, h)))
        .filter(|(w, h)| (w + h) % 3 == 0)
        .chain([(400, 100), (1, 100), (400, 1), (65_535, 1)]);
    for (w, h) in sizes {
        frame(&mut tape, w, h);
    }
    // An area that is larger than the buffer, and one that lies outside of it.
    let view = tape.app.view(Rect::new(0, 0, 120, 36));
    let mut small = Buffer::empty(Rect::new(0, 0, 20, 5));
    ui::draw(&mut small, Rect::new(0, 0, 120, 36), &view, tape.app.setup.look);
    ui::draw(&mut small, Rect::new(30, 30, 120, 36), &view, tape.app.setup.look);
}

#[test]
fn below_the_smallest_size_one_line_says_so() {
    let mut tape = Tape::new(look(Scheme::Dark, GlyphSet::Block));
    tape.experiment();
    let shown = text(&frame(&mut tape, 39, 12));
    assert!(shown.starts_with("needs 40x12; q quits"), "{shown}");
}
