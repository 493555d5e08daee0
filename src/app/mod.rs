//! The application as a state machine: events in, effects out (design rule 7). It reads no clock, touches no terminal and
//! no device; [`run`] feeds it and performs what it asks for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::sample::history::History;
use crate::sample::{OwnCost, Sample};
use crate::source::host::facts::ProcessKey;
use crate::source::processes::ProcessTable;
use crate::source::readers::AllocatorsRead;
use crate::ui::Look;
use crate::ui::axis::Scale;
use crate::units::Bytes;
use crate::worker::{BlockKey, Command, Dtype, Outcome, Shape, State};

pub mod action;
mod dialogs;
mod filter;
mod job_tree;
pub mod key;
pub mod outcome;
mod overlays;
mod own;
pub mod panels;
mod report;
pub mod run;
pub mod signals;
pub mod sizes;
pub mod strip;
pub mod table;
pub mod table_view;
pub mod terminal;
pub mod update;
pub mod view;

/// Something that the loop tells the application.
#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(crossterm::event::KeyEvent),
    /// A new sample.
    Sample(Box<Sample>),
    /// The allocator's thread did something; its state afterwards.
    Outcome(Box<Outcome>, Arc<State>),
    /// The processes on the GPUs.
    Table(Arc<ProcessTable>),
    /// Their allocators.
    Allocators(Arc<AllocatorsRead>),
    /// Time passed: hints fade.
    Tick,
}

/// Something that the loop is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this to the allocator's thread.
    Send(Command),
    /// Watch this process from now on; `None` is ourselves.
    Watch(Option<u32>),
    /// Collect the process table, or stop collecting it.
    Table(bool),
    /// Do not read the allocators of these processes.
    Stopped(Vec<u32>),
    /// Send this signal to this process, if it still is the same one.
    Signal(ProcessKey, i32),
    /// Show the next device.
    NextDevice,
    /// Draw the whole screen again.
    Redraw,
    /// Suspend the program.
    Suspend,
    /// Leave.
    Quit,
    /// Write the screen as SVG.
    WriteScreen(std::path::PathBuf),
    /// Write a text.
    WriteText(std::path::PathBuf, String),
}

/// What does not change while the program runs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Colours and characters.
    pub look: Look,
    /// The simulated device stands in for a GPU: the badge.
    pub simulated: bool,
    /// Keys that act on other processes are off.
    pub readonly: bool,
    /// Our own process.
    pub own_pid: u32,
    /// What bounds our own allocator.
    pub budget: Option<Bytes>,
    /// Where files go when `w` names no folder.
    pub folder: std::path::PathBuf,
}

/// Which area the arrow keys move in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// The panels.
    #[default]
    Graphs,
    /// The list of live blocks.
    Blocks,
    /// The block strip.
    Strip,
    /// The process table.
    Table,
}

/// A frozen picture: sampling goes on, drawing does not (trippy's way: the next snapshot is not taken).
#[derive(Clone, Debug)]
pub struct Paused {
    /// When it was frozen.
    pub at: Moment,
    /// The right end of the time axis, moved by the arrow keys.
    pub cursor: Moment,
    /// The sample that was shown.
    pub sample: Option<Arc<Sample>>,
}

/// What is open over the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Open {
    /// Nothing.
    #[default]
    Nothing,
    /// The help, scrolled by so many lines.
    Help(usize),
    /// What each figure is.
    Explain(usize),
    /// The configuration editor with its text.
    Configure(String),
    /// The chooser of what to write, with the selected row.
    Write(usize),
    /// The signal dialog, with the selected row.
    Signal(table::Victim, usize),
}

/// One entry of the event log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When.
    pub at: Moment,
    /// Its letter on the time axis.
    pub letter: char,
    /// What was done.
    pub text: String,
    /// What it cost, or why it was not done.
    pub cost: String,
    /// It was refused or it failed.
    pub refused: bool,
    /// The block that it was about.
    pub address: Option<u64>,
}

/// A key on our own allocator that waits for the answers to the keys before it.
#[derive(Clone, Debug)]
struct Held {
    action: action::Action,
    shape: Shape,
}

/// The figures that changes are measured from: RSS, VRAM, allocated, reserved.
pub type Figures = [Option<u64>; 4];

/// The state of the application.
pub struct App {
    /// What does not change.
    pub setup: Setup,
    /// All samples of the watched process, in tiers.
    pub history: History,
    /// The newest sample.
    pub sample: Option<Arc<Sample>>,
    /// Our allocator's state.
    pub worker: Arc<State>,
    /// The process that is watched in place of ours.
    pub watched: Option<u32>,
    /// Now: the moment of the last event.
    pub now: Moment,
    /// Frozen, or live.
    pub paused: Option<Paused>,
    /// Length of the time axis.
    pub zoom: Duration,
    /// y scale of all panels.
    pub scale: Scale,
    /// One panel alone.
    pub alone: Option<usize>,
    /// The panel with the focus.
    pub panel: usize,
    /// The area with the focus.
    pub focus: Focus,
    /// The block strip is shown.
    pub strip: bool,
    /// What the strip shows and where its selection stands.
    pub strip_state: strip::StripState,
    /// The process table is shown.
    pub table: bool,
    /// The processes, their order, filter and selection.
    pub processes: table::TableState,
    /// Histories of processes that were watched before, so that nothing is thrown away.
    shelved: Vec<(Option<u32>, History)>,
    /// The selected block.
    pub selected: Option<BlockKey>,
    /// What the next block will be.
    pub sizes: sizes::Sizes,
    /// Event log, oldest first, bounded.
    pub log: VecDeque<LogEntry>,
    /// The sentence about the last action, and whether it was refused.
    pub sentence: (String, bool),
    /// The same for the smallest screens, where there is such a form.
    short: Option<&'static str>,
    /// Figures before the last action.
    pub baseline: Figures,
    /// `R` was pressed: sampled maxima are since then.
    pub since_reset: bool,
    /// A hint in the footer, and until when.
    pub hint: Option<(String, Moment)>,
    /// What is open.
    pub open: Open,
    /// Tops of the automatic y ranges in the frame before.
    pub tops: [Option<u64>; 4],
    /// A context was made: when, and how long it took. The next sample shows its bytes.
    context: Option<(Moment, Duration)>,
    /// What we ourselves cost, as it is shown: renewed once a second, so that its jitter draws no frames.
    own: Option<(Moment, OwnCost, Duration)>,
    /// Ticks lost so far.
    pub lost: u64,
    /// Commands sent and not yet answered.
    pub outstanding: usize,
    /// Keys typed ahead: what to delete is only known when the commands before are answered.
    held: VecDeque<Held>,
    /// A configuration that was typed and refused, for the next try.
    draft: Option<String>,
    /// The stream to take next with `S`.
    pub streams: u64,
}

/// The default length of the time axis.
pub const DEFAULT_ZOOM: Duration = Duration::from_mins(1);

/// Histories kept of processes that are not watched now.
const SHELVED: usize = 4;

/// Entries kept of the event log.
const LOG: usize = 500;

impl App {
    /// An application with nothing read yet.
    pub fn new(setup: Setup, history: History, watched: Option<u32>, shape: &Shape, dtype: Dtype) -> Self {
        App {
            setup,
            history,
            sample: None,
            worker: Arc::default(),
            watched,
            now: Moment::default(),
            paused: None,
            zoom: DEFAULT_ZOOM,
            scale: Scale::default(),
            alone: None,
            panel: 0,
            focus: Focus::default(),
            strip: false,
            strip_state: strip::StripState::default(),
            table: false,
            processes: table::TableState::default(),
            shelved: Vec::new(),
            selected: None,
            sizes: sizes::Sizes::new(shape, dtype),
            log: VecDeque::new(),
            sentence: (welcome(watched), false),
            short: None,
            baseline: [None; 4],
            since_reset: false,
            hint: None,
            open: Open::default(),
            tops: [None; 4],
            context: None,
            own: None,
            lost: 0,
            outstanding: 0,
            held: VecDeque::new(),
            draft: None,
            streams: 1,
        }
    }

    /// The sample that is shown: the newest, or the frozen one.
    pub fn shown(&self) -> Option<&Arc<Sample>> {
        match &self.paused {
            Some(paused) => paused.sample.as_ref(),
            None => self.sample.as_ref(),
        }
    }

    /// The four figures of a sample; `None` where one is not known.
    pub fn figures(sample: &Sample) -> Figures {
        let counter = |f: fn(&crate::allocator::stats::DeviceStats) -> i64| {
            sample.counters.value().and_then(|c| u64::try_from(f(c)).ok())
        };
        [
            sample.host.value().map(|h| h.rss.0),
            sample.vram().value().map(|b| b.0),
            counter(|c| c.allocated_bytes.all.current),
            counter(|c| c.reserved_bytes.all.current),
        ]
    }

    /// Adds an entry to the event log and its letter to the time axis.
    pub fn note(&mut self, entry: LogEntry) {
        self.history.mark(entry.at, entry.letter, &entry.text);
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(entry);
    }

    /// Makes `text` the sentence.
    pub fn say(&mut self, text: impl Into<String>) {
        self.sentence = (text.into(), false);
        self.short = None;
    }

    /// Shows `text` in the footer for some seconds.
    pub fn tell(&mut self, text: impl Into<String>) {
        self.hint = Some((text.into(), Moment(self.now.0 + Duration::from_secs(4))));
    }

    /// Another process is watched from now on; the history of the one before is kept for when it comes back.
    fn watch(&mut self, pid: Option<u32>) -> Vec<Effect> {
        if pid == self.watched {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.watched, pid);
        let at = self.shelved.iter().position(|(p, _)| *p == pid);
        let history = at.map_or_else(History::new, |i| self.shelved.remove(i).1);
        let shelved = std::mem::replace(&mut self.history, history);
        if self.shelved.len() == SHELVED {
            self.shelved.remove(0);
        }
        self.shelved.push((before, shelved));
        self.sample = None;
        self.paused = None;
        self.tops = [None; 4];
        self.since_reset = false;
        self.say(welcome(pid));
        vec![Effect::Watch(pid)]
    }

    /// Takes a new sample in.
    fn take(&mut self, sample: Sample) {
        if sample.pid != self.watched.unwrap_or(self.setup.own_pid) {
            // Read for the process that was watched before.
            return;
        }
        self.lost += u64::from(sample.lost);
        self.context_seen(&sample);
        if self
            .own
            .is_none_or(|(at, ..)| sample.at.since(at) >= Duration::from_secs(1))
        {
            self.own = Some((sample.at, sample.own, sample.device.took));
        }
        if self.sample.is_none() {
            self.baseline = App::figures(&sample);
        }
        self.history.push(&sample);
        self.sample = Some(Arc::new(sample));
    }
}

fn welcome(watched: Option<u32>) -> String {
    match watched {
        None => "g allocates a block on the GPU, c one in host memory, d deletes, f gives the cache back. Watch which curve moves.".into(),
        Some(pid) => format!("Watching process {pid}, reading only: nothing in it is touched. x lists processes, ? helps."),
    }
}
