//! The one table of actions: it feeds the keymap, the help pane, the footer, the README's key table and the test that
//! each key does what it says (design rule 8; habits behind the choices: acceptance, "Keys").

use crossterm::event::{KeyEvent, KeyModifiers};

use super::key::Key;

/// What a key can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Allocate the next block on the GPU.
    AllocGpu,
    /// Allocate the next block in host memory.
    AllocCpu,
    /// Delete the selected block, else the newest.
    Delete,
    /// Delete all own blocks.
    DeleteAll,
    /// empty_cache.
    Flush,
    /// A smaller next block.
    Smaller,
    /// A larger next block.
    Larger,
    /// The next stream becomes the current one.
    Stream,
    /// record_stream on another stream, then delete.
    RecordAndDelete,
    /// Make the current stream busy, or idle again.
    BusyStream,
    /// Run out of memory on purpose, within the budget.
    OutOfMemory,
    /// Edit the allocator's configuration.
    Configure,
    /// New peak baseline.
    ResetPeaks,
    /// Stop drawing new samples; sampling goes on.
    Pause,
    /// A shorter time axis.
    ZoomIn,
    /// A longer time axis.
    ZoomOut,
    /// The default time axis, at now.
    ZoomReset,
    /// Back in time when paused, else the previous panel.
    Left,
    /// Forward in time when paused, else the next panel.
    Right,
    /// The oldest sample.
    Oldest,
    /// Now.
    Newest,
    /// One panel alone.
    Panel(u8),
    /// All four panels.
    AllPanels,
    /// The focused panel alone, or all again.
    Expand,
    /// The next area gets the focus.
    NextArea,
    /// The previous area gets the focus.
    PreviousArea,
    /// The next y scale: auto, fixed to the total, log.
    Scale,
    /// A row up.
    RowUp,
    /// A row down.
    RowDown,
    /// Ten rows up.
    PageUp,
    /// Ten rows down.
    PageDown,
    /// Drop a mark.
    Mark,
    /// The next device.
    NextDevice,
    /// The block strip.
    Strip,
    /// The process table.
    Table,
    /// Watch the selected process.
    Watch,
    /// Stop or resume reading the selected process's allocator.
    ToggleReading,
    /// The signal dialog for the selected process.
    Signal,
    /// Filter the table.
    Filter,
    /// Sort the table by the next column.
    Sort,
    /// Reverse the sort order.
    ReverseSort,
    /// The table as a tree.
    Tree,
    /// One user's processes only.
    User,
    /// The chooser of what to write to a file.
    Write,
    /// A sentence beside each figure.
    Explain,
    /// Help.
    Help,
    /// Close what is open.
    Close,
    /// Draw everything again.
    Redraw,
    /// Suspend the program.
    Suspend,
    /// Quit.
    Quit,
}

/// When an action is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// Always.
    Everywhere,
    /// On the graphs.
    Graphs,
    /// On our own allocator: not while another process is watched.
    Own,
    /// On the process table.
    Table,
    /// On another process: not with `--readonly`.
    Others,
}

impl Where {
    /// The word in the key table.
    pub fn label(self) -> &'static str {
        match self {
            Where::Everywhere => "everywhere",
            Where::Graphs => "graphs",
            Where::Own => "own",
            Where::Table | Where::Others => "table",
        }
    }
}

/// One row of the table.
pub struct Entry {
    /// What it does.
    pub action: Action,
    /// The keys, as they are written for people; [`Key::parse`] reads them.
    pub keys: &'static [&'static str],
    /// Where it works.
    pub place: Where,
    /// What it does, for the help and the README.
    pub does: &'static str,
    /// Its word in the footer, if it stands there.
    pub footer: Option<&'static str>,
}

const fn entry(
    action: Action,
    keys: &'static [&'static str],
    place: Where,
    footer: Option<&'static str>,
    does: &'static str,
) -> Entry {
    Entry {
        action,
        keys,
        place,
        does,
        footer,
    }
}

/// Every action, in the order of the footer and the help.
// rustfmt would give each field of an entry a line of its own: a table reads best as a table.
#[rustfmt::skip]
pub const TABLE: &[Entry] = &[
    entry(Action::AllocGpu, &["g", "a"], Where::Own, Some("GPU"), "allocate a block on the GPU"),
    entry(Action::AllocCpu, &["c"], Where::Own, Some("CPU"), "allocate a block in host memory"),
    entry(Action::Delete, &["d"], Where::Own, Some("del"), "delete the selected block, else the newest"),
    entry(Action::DeleteAll, &["D"], Where::Own, None, "delete all own blocks"),
    entry(Action::Flush, &["f"], Where::Own, Some("flush"), "flush: give the cache back to the driver (empty_cache)"),
    entry(Action::Smaller, &["["], Where::Own, Some("size"), "a smaller next block"),
    entry(Action::Larger, &["]"], Where::Own, None, "a larger next block"),
    entry(Action::Stream, &["S"], Where::Own, None, "the next stream becomes the current one"),
    entry(Action::RecordAndDelete, &["r"], Where::Own, None,
        "record_stream on another stream, then delete: pending until that stream's work has ended and the next g or f notices"),
    entry(Action::BusyStream, &["n"], Where::Own, None, "give a side stream work for some seconds"),
    entry(Action::OutOfMemory, &["o"], Where::Own, None,
        "run out of memory on purpose (memory fraction; within the budget)"),
    entry(Action::Configure, &["p"], Where::Own, None,
        "edit the allocator's configuration (a fresh allocator gets it)"),
    entry(Action::ResetPeaks, &["R"], Where::Everywhere, None,
        "new peak baseline (reset_peak_memory_stats on our own allocator)"),
    entry(Action::Pause, &["Space", "Z"], Where::Everywhere, Some("pause"), "pause the drawing; sampling goes on"),
    entry(Action::ZoomIn, &["+"], Where::Graphs, None, "zoom in: a shorter time axis"),
    entry(Action::ZoomOut, &["-"], Where::Graphs, Some("zoom"), "zoom out: a longer time axis"),
    entry(Action::ZoomReset, &["=", "`"], Where::Graphs, None, "the default time axis, at now (ends a pause)"),
    entry(Action::Left, &["Left", "h"], Where::Graphs, None, "paused: back in time; live: the previous panel"),
    entry(Action::Right, &["Right", "l"], Where::Graphs, None, "paused: forward in time; live: the next panel"),
    entry(Action::Oldest, &["Home"], Where::Graphs, None, "the oldest sample, or the first row"),
    entry(Action::Newest, &["End"], Where::Graphs, None, "now (ends a pause), or the last row"),
    entry(Action::Panel(1), &["1"], Where::Everywhere, None, "CPU RAM alone"),
    entry(Action::Panel(2), &["2"], Where::Everywhere, None, "driver VRAM alone"),
    entry(Action::Panel(3), &["3"], Where::Everywhere, None, "allocated alone"),
    entry(Action::Panel(4), &["4"], Where::Everywhere, None, "reserved alone"),
    entry(Action::AllPanels, &["0"], Where::Everywhere, None, "all four panels"),
    entry(Action::Expand, &["e"], Where::Graphs, None, "the panel with the focus alone, or all again"),
    entry(Action::NextArea, &["Tab"], Where::Everywhere, None, "the next area gets the focus"),
    entry(Action::PreviousArea, &["S-Tab"], Where::Everywhere, None, "the previous area gets the focus"),
    entry(Action::Scale, &["y"], Where::Graphs, Some("scale"), "y scale: auto, fixed to the total, log"),
    entry(Action::RowUp, &["Up", "k"], Where::Everywhere, None, "a row up"),
    entry(Action::RowDown, &["Down", "j"], Where::Everywhere, None, "a row down"),
    entry(Action::PageUp, &["PgUp"], Where::Everywhere, None, "ten rows up"),
    entry(Action::PageDown, &["PgDn"], Where::Everywhere, None, "ten rows down"),
    entry(Action::Mark, &["m"], Where::Everywhere, None, "drop a mark on the time axis"),
    entry(Action::NextDevice, &["v"], Where::Everywhere, None, "the next GPU"),
    entry(Action::Strip, &["b"], Where::Everywhere, Some("blocks"), "the block strip: segments drawn to scale"),
    entry(Action::Table, &["x"], Where::Everywhere, Some("processes"), "the process table"),
    entry(Action::Watch, &["Enter"], Where::Table, None,
        "on a row: watch this process, the four panels become its own (on our own row: back to ours); on the strip: a block's history; on a graph: that panel alone"),
    entry(Action::ToggleReading, &["A"], Where::Table, None, "stop or resume reading this process's allocator"),
    entry(Action::Signal, &["F9", "Del"], Where::Others, None,
        "signal dialog for this process (asks first; SIGTERM first)"),
    entry(Action::Filter, &["/", "F3", "F4", "\\"], Where::Table, None,
        "filter the rows as you type; a regular expression after ~"),
    entry(Action::Sort, &["F6", "s"], Where::Table, None, "sort by the next column"),
    entry(Action::ReverseSort, &["I"], Where::Table, None, "reverse the order"),
    entry(Action::Tree, &["t", "F5"], Where::Table, None, "parents and children as a tree"),
    entry(Action::User, &["u"], Where::Table, None, "one user's processes, or all again"),
    entry(Action::Write, &["w"], Where::Everywhere, None, "write to a file: snapshot, report, screen"),
    entry(Action::Explain, &["i"], Where::Everywhere, None, "explain: what each figure is"),
    entry(Action::Help, &["?", "F1"], Where::Everywhere, Some("help"), "this help"),
    entry(Action::Close, &["Esc"], Where::Everywhere, None,
        "close what is open: dialog, filter, table, strip, panel alone; never quits"),
    entry(Action::Redraw, &["^L"], Where::Everywhere, None, "draw everything again"),
    entry(Action::Suspend, &["^Z"], Where::Everywhere, None, "suspend (fg brings it back)"),
    entry(Action::Quit, &["q", "F10", "^C"], Where::Everywhere, Some("quit"),
        "quit: own blocks are freed, the terminal is restored (q closes an open dialog first)"),
];

/// The entry that a key event asks for.
pub fn lookup(event: &KeyEvent) -> Option<&'static Entry> {
    if event.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    let key = Key::of(event);
    TABLE
        .iter()
        .find(|entry| entry.keys.iter().any(|k| Key::parse(k) == Some(key)))
}

/// The key table in Markdown, as the README has it.
pub fn markdown() -> String {
    let mut out = String::from("| key | does | where |\n|---|---|---|\n");
    for entry in TABLE {
        let keys: Vec<String> = entry
            .keys
            .iter()
            .map(|k| {
                if *k == "`" {
                    "`` ` ``".to_string()
                } else {
                    format!("`{k}`")
                }
            })
            .collect();
        out += &format!("| {} | {} | {} |\n", keys.join(" "), entry.does, entry.place.label());
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crossterm::event::KeyCode;

    use super::*;

    #[test]
    fn every_key_parses_and_is_bound_once() {
        let mut seen = HashSet::new();
        for entry in TABLE {
            for text in entry.keys {
                let key = Key::parse(text).unwrap_or_else(|| panic!("{text} does not parse"));
                assert!(seen.insert(key), "{text} is bound twice");
            }
        }
        // Free for users and later work (acceptance, "Keys").
        for free in ["K", "T", "N", "P", "z", "5", "9"] {
            assert!(!seen.contains(&Key::parse(free).unwrap()), "{free} must stay free");
        }
    }

    #[test]
    fn lookup_finds_keys_and_controls() {
        let find = |code, modifiers| lookup(&KeyEvent::new(code, modifiers)).map(|e| e.action);
        assert_eq!(find(KeyCode::Char('g'), KeyModifiers::NONE), Some(Action::AllocGpu));
        assert_eq!(find(KeyCode::Char('D'), KeyModifiers::SHIFT), Some(Action::DeleteAll));
        assert_eq!(find(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(find(KeyCode::Char('c'), KeyModifiers::NONE), Some(Action::AllocCpu));
        assert_eq!(find(KeyCode::F(10), KeyModifiers::NONE), Some(Action::Quit));
        assert_eq!(find(KeyCode::Char('g'), KeyModifiers::ALT), None);
        assert_eq!(find(KeyCode::Char('K'), KeyModifiers::SHIFT), None);
    }

    #[test]
    fn the_readme_has_this_table() {
        let readme = include_str!("../../README.md");
        for row in markdown().lines() {
            assert!(readme.contains(row), "README.md lacks the key table's row: {row}");
        }
    }
}
