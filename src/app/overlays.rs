//! What is drawn over the dashboard: help, glossary, the configuration editor and the chooser of what to write.

use super::action::{TABLE, Where};
use super::{App, Open};
use crate::ui::layout::MINIMUM;
use crate::ui::pane;
use crate::ui::text::GLOSSARY;
use crate::ui::theme::Role;
use crate::ui::view::{Line, Overlay, Piece};

/// What `w` can write: a name and what it is for.
pub(super) const WRITABLE: [(&str, &str); 3] = [
    ("snapshot .pickle", "of our own allocator, for pytorch.org/memory_viz"),
    ("screen .svg", "this frame as a picture"),
    ("report .json", "figures, bill, blocks and counters"),
];

impl App {
    /// What is open over the dashboard, on a screen of `width` cells.
    pub(super) fn overlay(&self, width: u16) -> Option<Overlay> {
        match &self.open {
            Open::Nothing => None,
            Open::Help(scroll) => Some(pages("keys", help_lines(self.setup.readonly, width), *scroll)),
            Open::Explain(scroll) => Some(pages("what each figure is", glossary_lines(width), *scroll)),
            Open::Configure(text) => Some(editor(text)),
            Open::Signal(victim, at) => Some(App::signal_overlay(victim, *at)),
            Open::Write(at) => Some(self.chooser(*at, width)),
        }
    }

    /// What to write to a file, and where it goes.
    fn chooser(&self, at: usize, width: u16) -> Overlay {
        let mut lines = Vec::new();
        for (i, (name, what)) in WRITABLE.iter().enumerate() {
            let role = if i == at { Role::Selected } else { Role::Text };
            hang(
                &mut lines,
                &[Piece::new(format!(" {name:<18}"), role), Piece::new(" ", Role::Dim)],
                what,
                width,
            );
        }
        lines.push(Vec::new());
        let folder = self.setup.folder.display().to_string();
        hang(&mut lines, &[Piece::new("into ", Role::Dim)], &folder, width);
        Overlay {
            title: "write to a file".into(),
            lines,
            scroll: 0,
            foot: "arrows, Enter writes, Esc closes".into(),
            input: None,
        }
    }
}

/// Text that is scrolled through.
fn pages(title: &str, lines: Vec<Line>, scroll: usize) -> Overlay {
    Overlay {
        title: title.into(),
        lines,
        scroll,
        foot: "arrows scroll, Esc closes".into(),
        input: None,
    }
}

/// The configuration editor, with examples.
fn editor(text: &str) -> Overlay {
    let example = |text| vec![Piece::new(text, Role::Text)];
    Overlay {
        title: "configuration of a fresh allocator".into(),
        lines: vec![
            vec![Piece::new("Own blocks go first: deleted, flushed.", Role::Warn)],
            vec![Piece::new("PYTORCH_CUDA_ALLOC_CONF, e.g.", Role::Dim)],
            example("expandable_segments:True"),
            example("max_split_size_mb:64"),
            example("garbage_collection_threshold:0.8"),
            example("roundup_power2_divisions:[256:1,>:8]"),
        ],
        scroll: 0,
        foot: "Enter, ^U clears, Esc closes".into(),
        input: Some(("conf".into(), text.to_string())),
    }
}

/// Lines of the help for a screen of `width` cells: long explanations go on under themselves.
fn help_lines(readonly: bool, width: u16) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for entry in TABLE.iter().filter(|e| !(readonly && e.place == Where::Others)) {
        let mut lead = vec![Piece::new(format!("{:<12}", entry.keys.join(" ")), Role::Key)];
        if width >= 80 {
            lead.push(Piece::new(format!("{:<11}", entry.place.label()), Role::Dim));
        }
        hang(&mut lines, &lead, entry.does, width);
    }
    lines.push(Vec::new());
    lines.extend(glossary_lines(width));
    lines
}

/// Lines of the glossary: what each figure is.
fn glossary_lines(width: u16) -> Vec<Line> {
    let mut lines = Vec::new();
    for (word, meaning) in GLOSSARY {
        let lead = [Piece::new(format!("{word:<20}"), Role::Key)];
        hang(&mut lines, &lead, meaning, width);
    }
    lines
}

/// Adds `text` after `lead`; what does not fit on the line goes on below it, indented as far.
fn hang(lines: &mut Vec<Line>, lead: &[Piece], text: &str, width: u16) {
    let indent: u16 = lead.iter().map(|p| pane::width(&p.text)).sum();
    let room = width.saturating_sub(indent + 4).max(12);
    for (i, part) in pane::wrap(text, room).into_iter().enumerate() {
        let mut line = if i == 0 {
            lead.to_vec()
        } else {
            vec![Piece::new(" ".repeat(usize::from(indent)), Role::Dim)]
        };
        line.push(Piece::new(part, Role::Text));
        lines.push(line);
    }
}

/// The longest overlay's number of lines on the narrowest screen: scrolling stops there.
pub(super) fn overlay_lines(readonly: bool) -> usize {
    help_lines(readonly, MINIMUM.0).len()
}
