//! Events change the state and ask for effects.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::action::{self, Action, Entry, Where};
use super::{App, DEFAULT_ZOOM, Effect, Event, Focus, LogEntry, Open, Paused};
use crate::clock::Moment;

/// Lengths of the time axis, in seconds: 10 s to 24 h (AC-32).
const ZOOMS: [u64; 13] = [
    10, 20, 30, 60, 120, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400,
];

impl App {
    /// Takes an event in and returns what is to be done about it.
    pub fn update(&mut self, event: Event, now: Moment) -> Vec<Effect> {
        self.now = now;
        if self.hint.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.hint = None;
        }
        match event {
            Event::Key(key) => self.key(key),
            Event::Sample(sample) => {
                self.take(*sample);
                Vec::new()
            }
            Event::Outcome(outcome, state) => {
                self.answered(&outcome, state);
                self.release_held()
            }
            Event::Table(table) => {
                // The list is frozen while a signal dialog is open (AC-37).
                if !matches!(self.open, Open::Signal(..)) {
                    self.processes.rows = Some(table);
                }
                Vec::new()
            }
            Event::Allocators(read) => {
                self.processes.allocators = read;
                Vec::new()
            }
            Event::Tick => Vec::new(),
        }
    }

    /// A key: the open dialog has it first, then the action table. Only presses act (AC-26).
    fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        // These two quit whatever is open; q is a letter in an editor and closes a dialog first.
        let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        if control_c || key.code == KeyCode::F(10) {
            return vec![Effect::Quit];
        }
        if let Open::Configure(..) = &self.open {
            return self.edit(key);
        }
        if self.processes.typing {
            self.type_filter(key);
            return Vec::new();
        }
        let Some(entry) = action::lookup(&key) else {
            return Vec::new();
        };
        if self.open != Open::Nothing
            && let Some(effects) = self.in_overlay(entry.action)
        {
            return effects;
        }
        if let Err(hint) = self.allowed(entry) {
            self.tell(hint);
            return Vec::new();
        }
        self.hint = None;
        self.act(entry.action)
    }

    /// Is this action offered now? If not, what to say.
    fn allowed(&self, entry: &Entry) -> Result<(), String> {
        let key = entry.keys[0];
        match entry.place {
            Where::Own => {
                if let Some(pid) = self.watched {
                    return Err(format!("{key} acts on our own allocator, but process {pid} is watched"));
                }
                match &self.worker.ended {
                    Some(why) => Err(why.to_string()),
                    None => Ok(()),
                }
            }
            Where::Others if self.setup.readonly => Err(format!("{key} is off: --readonly")),
            Where::Table | Where::Others if !self.table && entry.action != Action::Watch => {
                Err(format!("{key} works in the process table: x opens it"))
            }
            _ => Ok(()),
        }
    }

    /// What an action does.
    fn act(&mut self, action: Action) -> Vec<Effect> {
        match action {
            Action::AllocGpu
            | Action::AllocCpu
            | Action::Delete
            | Action::DeleteAll
            | Action::Flush
            | Action::Stream
            | Action::RecordAndDelete
            | Action::BusyStream
            | Action::OutOfMemory => return self.own_action(action),
            Action::Smaller => self.sizes.smaller(),
            Action::Larger => self.sizes.larger(),
            Action::Configure => {
                let text = self.draft.clone().unwrap_or_else(|| self.worker.conf.clone());
                self.open = Open::Configure(text);
            }
            Action::ResetPeaks => return self.reset_peaks(),
            Action::Pause => self.pause(),
            Action::ZoomIn => self.zoom_by(-1),
            Action::ZoomOut => self.zoom_by(1),
            Action::ZoomReset => {
                self.zoom = DEFAULT_ZOOM;
                self.paused = None;
            }
            Action::Left => self.sideways(-1),
            Action::Right => self.sideways(1),
            Action::Oldest => self.far(false),
            Action::Newest => self.far(true),
            Action::Panel(n) => {
                let i = usize::from(n.saturating_sub(1)).min(3);
                self.panel = i;
                self.alone = Some(i);
            }
            Action::AllPanels => self.alone = None,
            Action::Expand => self.alone = if self.alone.is_some() { None } else { Some(self.panel) },
            Action::NextArea => self.next_area(true),
            Action::PreviousArea => self.next_area(false),
            Action::Scale => {
                self.scale = self.scale.next();
                self.tops = [None; 4];
                self.tell(format!("y scale: {}", self.scale.word()));
            }
            Action::RowUp => self.rows(-1),
            Action::RowDown => self.rows(1),
            Action::PageUp => self.rows(-10),
            Action::PageDown => self.rows(10),
            Action::Mark => self.mark(),
            Action::NextDevice => return vec![Effect::NextDevice],
            Action::Strip => {
                self.strip = !self.strip;
                self.focus = if self.strip { Focus::Strip } else { Focus::Graphs };
            }
            Action::Explain => self.open = Open::Explain(0),
            Action::Help => self.open = Open::Help(0),
            Action::Write => self.open = Open::Write(0),
            Action::Close => return self.close(),
            Action::Redraw => return vec![Effect::Redraw],
            Action::Suspend => return vec![Effect::Suspend],
            Action::Quit => return vec![Effect::Quit],
            Action::Table => return self.toggle_table(),
            Action::Watch if self.focus == Focus::Strip => self.strip_state.detail = !self.strip_state.detail,
            Action::Watch if self.focus == Focus::Graphs => return self.act(Action::Expand),
            Action::Watch => return self.watch_selected(),
            Action::ToggleReading => return self.toggle_reading(),
            Action::Signal => return self.ask_for_signal(),
            Action::Filter => self.processes.typing = true,
            Action::Sort => self.sort_next(),
            Action::ReverseSort => self.processes.reverse = !self.processes.reverse,
            Action::Tree => self.processes.tree = !self.processes.tree,
            Action::User => self.toggle_user(),
        }
        Vec::new()
    }

    fn pause(&mut self) {
        self.paused = match self.paused {
            Some(_) => None,
            None => Some(Paused {
                at: self.now,
                cursor: self.now,
                sample: self.sample.clone(),
            }),
        };
    }

    fn zoom_by(&mut self, step: isize) {
        let at = ZOOMS
            .iter()
            .position(|z| *z >= self.zoom.as_secs())
            .unwrap_or(ZOOMS.len() - 1);
        let next = at.saturating_add_signed(step).min(ZOOMS.len() - 1);
        self.zoom = Duration::from_secs(ZOOMS[next]);
        self.tell(format!("time axis {}", crate::ui::text::span(self.zoom)));
    }

    /// Paused: through time, a tenth of the axis a step. Live: from panel to panel.
    fn sideways(&mut self, step: isize) {
        if self.focus == Focus::Strip {
            return self.move_in_strip(step, 0, 0);
        }
        let by = self.zoom / 10;
        // Before the oldest sample there is nothing to be seen.
        let oldest = self.history.oldest().unwrap_or_default();
        match &mut self.paused {
            Some(paused) if step < 0 => {
                paused.cursor = Moment(paused.cursor.0.saturating_sub(by)).max(oldest).min(paused.at);
            }
            Some(paused) => paused.cursor = Moment(paused.cursor.0 + by).min(paused.at),
            None => {
                self.panel = (self.panel + 4).wrapping_add_signed(step) % 4;
                if self.alone.is_some() {
                    self.alone = Some(self.panel);
                }
            }
        }
    }

    /// Home and End: the ends of the list with the focus, else of time.
    fn far(&mut self, newest: bool) {
        if self.focus != Focus::Graphs {
            self.rows(if newest { isize::MAX / 2 } else { isize::MIN / 2 });
            return;
        }
        if newest {
            self.paused = None;
            return;
        }
        if self.paused.is_none() {
            self.pause();
        }
        let oldest = self.history.oldest().unwrap_or_default();
        if let Some(paused) = &mut self.paused {
            paused.cursor = Moment(oldest.0 + self.zoom).min(paused.at);
        }
    }

    fn next_area(&mut self, forward: bool) {
        let mut areas = vec![Focus::Graphs];
        if self.strip {
            areas.push(Focus::Strip);
        }
        areas.push(if self.table { Focus::Table } else { Focus::Blocks });
        let at = areas.iter().position(|a| *a == self.focus).unwrap_or_default();
        let step = if forward { 1 } else { areas.len() - 1 };
        self.focus = areas[(at + step) % areas.len()];
    }

    /// Moves the selection of the focused list; without one, that of the live blocks.
    fn rows(&mut self, by: isize) {
        if self.focus == Focus::Table {
            return self.move_in_table(by);
        }
        if self.focus == Focus::Strip {
            return match by.abs() {
                10 => self.move_in_strip(0, 0, by.signum()),
                _ => self.move_in_strip(0, by, 0),
            };
        }
        let blocks = &self.worker.blocks;
        if blocks.is_empty() {
            return;
        }
        let last = blocks.len() - 1;
        // Nothing selected stands for the newest: the first key selects that one.
        let at = blocks.iter().position(|b| Some(b.key) == self.selected);
        let next = at.map_or(last, |at| at.saturating_add_signed(by).min(last));
        self.selected = Some(blocks[next].key);
    }

    fn mark(&mut self) {
        let number = self.log.iter().filter(|e| e.letter == 'm').count() + 1;
        if let Some(sample) = &self.sample {
            self.baseline = App::figures(sample);
        }
        self.note(LogEntry {
            at: self.now,
            letter: 'm',
            text: format!("mark {number}: changes are measured from here"),
            cost: String::new(),
            refused: false,
            address: None,
        });
    }

    /// Esc: the innermost thing that is open.
    fn close(&mut self) -> Vec<Effect> {
        if self.table && !self.processes.filter.is_empty() {
            self.processes.filter.clear();
        } else if self.table && self.focus != Focus::Strip {
            return self.toggle_table();
        } else if self.strip {
            self.strip = false;
            self.focus = if self.table { Focus::Table } else { Focus::Graphs };
        } else if self.alone.is_some() {
            self.alone = None;
        } else {
            self.focus = Focus::Graphs;
            self.selected = None;
        }
        Vec::new()
    }
}
