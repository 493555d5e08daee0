//! Checks of the terminal: that there is one, its kind and size, the locale, and a sample of each glyph set to look at.

use std::io::IsTerminal;

use super::{Check, Scene, Verdict};
use crate::source::printable::printable;

/// Below this many columns and rows the dashboard shows one line only (issue 2, point 6).
const SMALLEST: (u16, u16) = (40, 12);
/// Longest value of a variable that is shown, in characters.
const VALUE_LIMIT: usize = 40;

/// What the screen is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// The output goes to a terminal.
    pub is_terminal: bool,
    /// Columns and rows, where known.
    pub size: Option<(u16, u16)>,
}

impl Screen {
    /// The real one.
    pub fn here() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        Screen {
            is_terminal,
            size: crossterm::terminal::size().ok().filter(|_| is_terminal),
        }
    }
}

pub(super) fn checks(scene: &Scene<'_>) -> Vec<Check> {
    let utf8 = locale(scene).verdict == Verdict::Pass;
    vec![terminal(scene), locale(scene), sample(utf8)]
}

fn terminal(scene: &Scene<'_>) -> Check {
    const NAME: &str = "terminal";
    if !scene.screen.is_terminal {
        return Check::new(
            NAME,
            Verdict::Warn,
            "the output is not a terminal: the dashboard needs one",
        )
        .step("use --once or --json where there is none");
    }
    let term = value(scene, "TERM");
    let colours = match (value(scene, "NO_COLOR"), value(scene, "COLORTERM").as_deref()) {
        (Some(_), _) => "no colours (NO_COLOR)",
        (None, Some("truecolor" | "24bit")) => "true colour",
        (None, _) => "256 colours or fewer",
    };
    let Some(term) = term.filter(|t| t != "dumb") else {
        return Check::new(
            NAME,
            Verdict::Warn,
            "TERM is not set or dumb: the screen may be garbled",
        )
        .step("set TERM to what your terminal is, for example xterm-256color");
    };
    match scene.screen.size {
        Some((columns, rows)) if columns < SMALLEST.0 || rows < SMALLEST.1 => Check::new(
            NAME,
            Verdict::Warn,
            format!("{term}, {columns}x{rows}: too small for the graphs"),
        )
        .step(format!("make it at least {}x{}", SMALLEST.0, SMALLEST.1)),
        Some((columns, rows)) => Check::new(NAME, Verdict::Pass, format!("{term}, {columns}x{rows}, {colours}")),
        None => Check::new(NAME, Verdict::Warn, format!("{term}, {colours}, of unknown size")),
    }
}

/// The first of LC_ALL, LC_CTYPE and LANG that is set decides, as in POSIX (AC-21).
fn locale(scene: &Scene<'_>) -> Check {
    const NAME: &str = "locale";
    let deciding = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| value(scene, name).map(|v| (name, v)));
    let folded = deciding.as_ref().map(|(_, v)| v.to_ascii_lowercase().replace('-', ""));
    match deciding {
        Some((name, v)) if folded.is_some_and(|f| f.contains("utf8")) => {
            Check::new(NAME, Verdict::Pass, format!("{name}={v}: UTF-8"))
        }
        Some((name, v)) => Check::new(
            NAME,
            Verdict::Warn,
            format!("{name}={v} is not UTF-8: graphs are drawn in ASCII"),
        )
        .step("set LANG=C.UTF-8, or pass --utf8 if your terminal shows the sample below"),
        None => Check::new(NAME, Verdict::Warn, "none is set: graphs are drawn in ASCII")
            .step("set LANG=C.UTF-8, or pass --utf8 if your terminal shows the sample below"),
    }
}

/// Something of each glyph set. It is printed whatever the locale says: seeing it decides.
fn sample(utf8: bool) -> Check {
    let note = if utf8 {
        ""
    } else {
        " (boxes or question marks here mean: stay with ASCII)"
    };
    Check::new(
        "glyphs",
        Verdict::Pass,
        format!("block ▁▂▃▄▅▆▇█  braille ⣀⣤⣶⣿  frame ╭─╮│  ascii _.-=#{note}"),
    )
}

/// A variable that is set and not empty, made harmless.
fn value(scene: &Scene<'_>, name: &str) -> Option<String> {
    (scene.environment)(name)
        .filter(|v| !v.is_empty())
        .map(|v| printable(v.as_bytes(), VALUE_LIMIT))
}
