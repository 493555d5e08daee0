//! What one frame shows, as plain data: texts, figures and roles. [`crate::app::view`] builds it, the panes draw it; a
//! pane sees nothing else (design rule 1). Two equal views draw equal frames, so an unchanged view is not drawn again.

use super::axis::Axis;
use super::theme::Role;

/// A piece of text with its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text; free of control characters.
    pub text: String,
    /// How it looks.
    pub role: Role,
}

impl Piece {
    /// A piece of text.
    pub fn new(text: impl Into<String>, role: Role) -> Self {
        Piece {
            text: text.into(),
            role,
        }
    }
}

/// A line of pieces.
pub type Line = Vec<Piece>;

/// One column of a curve: how high it stood in its span of time, in steps of the glyph set. Steps and not bytes, so that a
/// change too small to be seen is no change of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// At its end.
    pub last: u16,
    /// At its highest: never lost by down-sampling (AC-33).
    pub max: u16,
}

/// One of the four panels.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Number and name, e.g. "1 CPU RAM (RES)".
    pub title: String,
    /// Name for small panels, e.g. "RAM".
    pub short: &'static str,
    /// The colour of its curve.
    pub role: Role,
    /// The figure now, or "-".
    pub now: String,
    /// Change since the last action.
    pub change: Piece,
    /// The peak and where it comes from.
    pub peak: String,
    /// Capacity or limit, e.g. "limit 23.4 GiB".
    pub limit: String,
    /// A warning, a label ("incl. driver", "stale 3 s") or the reason why there is no figure.
    pub note: Option<Piece>,
    /// The curve, one entry a sub-column, oldest first; `None` is a gap.
    pub curve: Vec<Option<Span>>,
    /// Letters of events on the time axis: the cell of the curve and the letter.
    pub letters: Vec<(u16, char)>,
    /// The y axis.
    pub axis: Axis,
    /// The row of the peak, from the top of the curve's area.
    pub peak_at: Option<u16>,
    /// The row of the limit.
    pub limit_at: Option<u16>,
    /// True when this panel has the focus.
    pub focus: bool,
}

/// The time axis that all panels share (AC-32).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeAxis {
    /// Text at the left end, e.g. "-60 s".
    pub left: String,
    /// Text in the middle.
    pub middle: String,
    /// Text at the right end: "now", or how long ago when paused.
    pub right: String,
}

/// One line of the bill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BillLine {
    /// Which part.
    pub role: Role,
    /// Its name.
    pub label: String,
    /// Its figure, or "-".
    pub text: String,
    /// Bytes for the bar; `None` when unknown or not positive.
    pub bytes: Option<u64>,
}

/// The bill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// "bill 140 GiB", or the reason why there is none.
    pub title: String,
    /// "taken 1.89 GiB of 140 GiB", for one row.
    pub summary: String,
    /// Its lines, in the order of the bar; free stands before unexplained.
    pub lines: Vec<BillLine>,
    /// "moving", or what is unknown.
    pub note: Option<Piece>,
    /// The device's total in bytes.
    pub total: Option<u64>,
}

/// A table: header, rows of cells, a selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The frame's title.
    pub title: String,
    /// Column heads, with the width each column wants and whether it is right-aligned.
    pub columns: Vec<Column>,
    /// Rows of cells.
    pub rows: Vec<Vec<Piece>>,
    /// Selected row.
    pub selected: Option<usize>,
    /// Text when there is no row.
    pub empty: String,
    /// True when it has the focus.
    pub focus: bool,
}

/// A column of a [`Table`]; columns are dropped from the lowest `rank` upwards when the table is narrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Head.
    pub head: &'static str,
    /// Cells it wants.
    pub width: u16,
    /// Right-aligned.
    pub right: bool,
    /// Importance: 0 is dropped first.
    pub rank: u8,
}

impl Column {
    /// A column.
    pub const fn new(head: &'static str, width: u16, right: bool, rank: u8) -> Self {
        Column {
            head,
            width,
            right,
            rank,
        }
    }
}

/// One segment of the block strip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripSegment {
    /// What it is: address, size, pool, stream.
    pub label: String,
    /// Bytes of the segment (or of the expandable range).
    pub bytes: u64,
    /// Its parts in address order.
    pub parts: Vec<StripPart>,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripPart {
    /// Live, pending, cached, rounding (`Role::Dim`), unmapped (`Role::Free`).
    pub role: Role,
    /// Bytes.
    pub bytes: u64,
    /// True for the selected block.
    pub selected: bool,
}

/// The block strip.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strip {
    /// The frame's title.
    pub title: String,
    /// Pool, stream and the two figures that are fragmentation.
    pub facts: Line,
    /// The segments.
    pub segments: Vec<StripSegment>,
    /// Lines about the selected block.
    pub detail: Vec<String>,
    /// The first segment shown.
    pub first: usize,
    /// True when it has the focus.
    pub focus: bool,
}

/// Something over the dashboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// The frame's title.
    pub title: String,
    /// Its lines.
    pub lines: Vec<Line>,
    /// The first line shown.
    pub scroll: usize,
    /// The last line: what the keys do here.
    pub foot: String,
    /// Text being typed, with its prompt.
    pub input: Option<(String, String)>,
}

/// Everything on one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Left part of the header, most important pieces first: the later ones are dropped when it is narrow.
    pub header: Line,
    /// Right part of the header.
    pub header_right: Line,
    /// The four panels.
    pub panels: [Panel; 4],
    /// Their time axis.
    pub time: TimeAxis,
    /// The bill.
    pub bill: Bill,
    /// Live blocks.
    pub blocks: Table,
    /// The block strip.
    pub strip: Option<Strip>,
    /// The process table.
    pub table: Option<Table>,
    /// Event log, newest last.
    pub events: Vec<Line>,
    /// Title of the event log.
    pub events_title: String,
    /// The sentence, and its role.
    pub sentence: Piece,
    /// Keys in the footer: key, word.
    pub footer: Vec<(String, String)>,
    /// A hint in place of the footer.
    pub hint: Option<Piece>,
    /// What is open over it.
    pub overlay: Option<Overlay>,
    /// Which panels, table and strip are shown.
    pub shown: super::layout::Shown,
}
