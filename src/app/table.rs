//! The process table: order, filter, selection, and the dialog that sends a signal.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::filter::Pattern;
use super::job_tree::{Shown, tree};
use super::{App, Effect, Focus, Open};
use crate::attach::DeviceRead;
use crate::reading::Reading;
use crate::source::host::facts::ProcessKey;
use crate::source::processes::{ProcessRow, ProcessTable};
use crate::source::readers::AllocatorsRead;

/// What the rows are ordered by; each compares the figures that are shown (AC-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// VRAM over all devices.
    #[default]
    Vram,
    /// Resident set.
    Rss,
    /// allocated.
    Allocated,
    /// reserved.
    Reserved,
    /// PID.
    Pid,
    /// Owner.
    User,
    /// Age.
    Age,
    /// Command line.
    Command,
}

impl SortBy {
    const ALL: [SortBy; 8] = [
        SortBy::Vram,
        SortBy::Rss,
        SortBy::Allocated,
        SortBy::Reserved,
        SortBy::Pid,
        SortBy::User,
        SortBy::Age,
        SortBy::Command,
    ];

    /// Its word on the screen.
    pub fn word(self) -> &'static str {
        match self {
            SortBy::Vram => "VRAM",
            SortBy::Rss => "RSS",
            SortBy::Allocated => "allocated",
            SortBy::Reserved => "reserved",
            SortBy::Pid => "PID",
            SortBy::User => "user",
            SortBy::Age => "age",
            SortBy::Command => "command",
        }
    }

    fn next(self) -> Self {
        let at = SortBy::ALL.iter().position(|s| *s == self).unwrap_or_default();
        SortBy::ALL[(at + 1) % SortBy::ALL.len()]
    }
}

/// Signals that the dialog offers, the gentle one first.
pub(super) const SIGNALS: [(&str, i32); 6] = [
    ("SIGTERM", 15),
    ("SIGINT", 2),
    ("SIGKILL", 9),
    ("SIGSTOP", 19),
    ("SIGCONT", 18),
    ("SIGUSR1", 10),
];

/// A process that the dialog is about: the list is frozen while it is open (AC-37).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// PID and start time: a process of another start time gets nothing.
    pub key: ProcessKey,
    /// Its command line.
    pub command: String,
    /// Its owner.
    pub user: String,
    /// Its age when the dialog was opened.
    pub age: String,
}

/// The state of the table.
#[derive(Debug, Default)]
pub struct TableState {
    /// The newest rows.
    pub rows: Option<Arc<ProcessTable>>,
    /// Their allocators.
    pub allocators: Arc<AllocatorsRead>,
    /// The selected process.
    pub selected: Option<u32>,
    /// Order.
    pub sort: SortBy,
    /// Reversed order.
    pub reverse: bool,
    /// Filter, as typed; a regular expression after `~`.
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// Parents and children as a tree.
    pub tree: bool,
    /// One user's processes.
    pub user: Option<String>,
    /// Processes whose allocators are not read.
    pub stopped: Vec<u32>,
}

/// Bytes of a counter over all devices of a process.
fn over_devices(read: &[DeviceRead], counter: impl Fn(&DeviceRead) -> i64) -> Option<u64> {
    u64::try_from(read.iter().map(counter).sum::<i64>()).ok()
}

/// What the table shows of an allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AllocatorFigures {
    /// allocated.
    pub allocated: Option<u64>,
    /// reserved.
    pub reserved: Option<u64>,
    /// reserved - active.
    pub cached: Option<u64>,
}

impl App {
    /// The allocator's figures of one process; our own come from our own allocator.
    pub(super) fn allocator_of(&self, pid: u32) -> AllocatorFigures {
        if pid == self.setup.own_pid {
            let s = &self.worker.stats;
            let whole = |v: i64| u64::try_from(v).ok();
            return AllocatorFigures {
                allocated: whole(s.allocated_bytes.all.current),
                reserved: whole(s.reserved_bytes.all.current),
                cached: whole(s.reserved_bytes.all.current - s.active_bytes.all.current),
            };
        }
        match self.processes.allocators.get(&pid) {
            Some(Reading::Is(devices)) => AllocatorFigures {
                allocated: over_devices(devices, |d| d.stats.allocated_bytes.all.current),
                reserved: over_devices(devices, |d| d.stats.reserved_bytes.all.current),
                cached: over_devices(devices, |d| {
                    d.stats.reserved_bytes.all.current - d.stats.active_bytes.all.current
                }),
            },
            _ => AllocatorFigures::default(),
        }
    }

    /// The rows that are shown, in order.
    pub(super) fn table_rows(&self) -> Vec<Shown<'_>> {
        let Some(table) = &self.processes.rows else {
            return Vec::new();
        };
        let pattern = Pattern::new(&self.processes.filter);
        let mut rows: Vec<&ProcessRow> = table.rows.iter().filter(|r| self.is_shown(r, &pattern)).collect();
        // Unknown figures stand last in either direction.
        rows.sort_by(|a, b| {
            let order = self.compare(a, b);
            order.then(a.pid.cmp(&b.pid))
        });
        if self.processes.tree {
            return tree(&rows);
        }
        rows.into_iter().map(|r| Shown::Process(0, r)).collect()
    }

    fn is_shown(&self, row: &ProcessRow, pattern: &Pattern) -> bool {
        if let Some(user) = &self.processes.user
            && row.user.value() != Some(user)
        {
            return false;
        }
        let command = row.facts.value().map_or("", |f| f.command.as_str());
        pattern.matches(command)
            || pattern.matches(&row.pid.to_string())
            || row.user.value().is_some_and(|u| pattern.matches(u))
    }

    fn compare(&self, a: &ProcessRow, b: &ProcessRow) -> std::cmp::Ordering {
        let largest_first = |x: Option<u64>, y: Option<u64>| match (x, y) {
            (Some(x), Some(y)) if self.processes.reverse => x.cmp(&y),
            (Some(x), Some(y)) => y.cmp(&x),
            (x, y) => y.is_some().cmp(&x.is_some()),
        };
        let text = |x: &str, y: &str| if self.processes.reverse { y.cmp(x) } else { x.cmp(y) };
        let command = |r: &ProcessRow| r.facts.value().map_or(String::new(), |f| f.command.clone());
        match self.processes.sort {
            SortBy::Vram => largest_first(a.vram().value().map(|b| b.0), b.vram().value().map(|b| b.0)),
            SortBy::Rss => largest_first(a.rss.value().map(|b| b.0), b.rss.value().map(|b| b.0)),
            SortBy::Allocated => largest_first(self.allocator_of(a.pid).allocated, self.allocator_of(b.pid).allocated),
            SortBy::Reserved => largest_first(self.allocator_of(a.pid).reserved, self.allocator_of(b.pid).reserved),
            SortBy::Pid if self.processes.reverse => b.pid.cmp(&a.pid),
            SortBy::Pid => a.pid.cmp(&b.pid),
            SortBy::User => text(
                a.user.value().map_or("", String::as_str),
                b.user.value().map_or("", String::as_str),
            ),
            SortBy::Age => {
                let age = |r: &ProcessRow| {
                    r.facts
                        .value()
                        .and_then(|f| f.age.value())
                        .map(|d| d.as_millis() as u64)
                };
                largest_first(age(a), age(b))
            }
            SortBy::Command => text(&command(a), &command(b)),
        }
    }

    fn selected_row(&self) -> Option<&ProcessRow> {
        let rows = self.table_rows();
        let mut processes = rows.iter().filter_map(Shown::process);
        let first = processes.clone().next();
        processes.find(|r| Some(r.pid) == self.processes.selected).or(first)
    }

    /// Moves the selection.
    pub(super) fn move_in_table(&mut self, by: isize) {
        let pids: Vec<u32> = self
            .table_rows()
            .iter()
            .filter_map(Shown::process)
            .map(|r| r.pid)
            .collect();
        if pids.is_empty() {
            return;
        }
        let at = pids
            .iter()
            .position(|pid| Some(*pid) == self.processes.selected)
            .unwrap_or_default();
        self.processes.selected = Some(pids[at.saturating_add_signed(by).min(pids.len() - 1)]);
    }

    /// x: the table, which has the focus while it is open.
    pub(super) fn toggle_table(&mut self) -> Vec<Effect> {
        self.table = !self.table;
        self.focus = if self.table { Focus::Table } else { Focus::Graphs };
        vec![Effect::Table(self.table)]
    }

    /// Enter: the four panels become this process's own; on our own row they become ours again.
    pub(super) fn watch_selected(&mut self) -> Vec<Effect> {
        let Some(row) = self.selected_row() else {
            return Vec::new();
        };
        if row.facts.value().is_none() {
            self.tell("this process is not visible here, so nothing of it can be read");
            return Vec::new();
        }
        let pid = row.pid;
        let wanted = (pid != self.setup.own_pid).then_some(pid);
        if wanted == self.watched {
            self.tell(format!("the panels are those of process {pid} already"));
        }
        self.watch(wanted)
    }

    /// A: stop or resume reading one process's allocator.
    pub(super) fn toggle_reading(&mut self) -> Vec<Effect> {
        let Some(pid) = self.selected_row().map(|r| r.pid) else {
            return Vec::new();
        };
        if pid == self.setup.own_pid {
            self.tell("our own allocator is not read from outside: it publishes its counters");
            return Vec::new();
        }
        if let Some(at) = self.processes.stopped.iter().position(|p| *p == pid) {
            self.processes.stopped.remove(at);
            self.tell(format!("reading the allocator of process {pid} again"));
        } else {
            self.processes.stopped.push(pid);
            self.tell(format!(
                "the allocator of process {pid} is not read any more: A resumes it"
            ));
        }
        vec![Effect::Stopped(self.processes.stopped.clone())]
    }

    /// F9: the dialog about the selected process.
    pub(super) fn ask_for_signal(&mut self) -> Vec<Effect> {
        let victim = self.selected_row().and_then(|row| {
            let facts = row.facts.value()?;
            Some(Victim {
                key: facts.key,
                command: facts.command.clone(),
                user: row.user.value().cloned().unwrap_or_else(|| "-".into()),
                age: facts.age.value().map_or("-".into(), |a| crate::ui::text::span(*a)),
            })
        });
        match victim {
            Some(victim) if victim.key.pid == self.setup.own_pid => self.tell("that is alloctop itself: q quits"),
            Some(victim) => self.open = Open::Signal(victim, 0),
            None => self.tell("this process is not visible here, so no signal can be sent to it"),
        }
        Vec::new()
    }

    /// u: the selected process's user alone, or all again.
    pub(super) fn toggle_user(&mut self) {
        self.processes.user = match self.processes.user.take() {
            Some(_) => None,
            None => self.selected_row().and_then(|r| r.user.value().cloned()),
        };
    }

    /// F6: the next column.
    pub(super) fn sort_next(&mut self) {
        self.processes.sort = self.processes.sort.next();
        self.tell(format!("sorted by {}", self.processes.sort.word()));
    }

    /// Typing of the filter.
    pub(super) fn type_filter(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Enter => self.processes.typing = false,
            KeyCode::Esc => {
                self.processes.typing = false;
                self.processes.filter.clear();
            }
            KeyCode::Backspace => {
                self.processes.filter.pop();
            }
            KeyCode::Char(c) if !key.modifiers.contains(KeyModifiers::CONTROL) && self.processes.filter.len() < 200 => {
                self.processes.filter.push(c);
            }
            _ => {}
        }
    }
}
