//! Keys while a dialog is open: scrolling, choosing, and typing in the configuration editor.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::action::Action;
use super::overlays::{WRITABLE, overlay_lines};
use super::report::report_json;
use super::table::SIGNALS;
use super::{App, Effect, Open};
use crate::worker::Command;

impl App {
    /// A key while an overlay is open; `None` lets the key act as usual.
    pub(super) fn in_overlay(&mut self, action: Action) -> Option<Vec<Effect>> {
        if matches!(action, Action::Suspend | Action::Redraw) {
            return None;
        }
        match (&mut self.open, action) {
            (_, Action::Close | Action::Quit) => self.open = Open::Nothing,
            (Open::Help(_), Action::Help) | (Open::Explain(_), Action::Explain) | (Open::Write(_), Action::Write) => {
                self.open = Open::Nothing;
            }
            (Open::Help(at) | Open::Explain(at), move_action) => {
                *at = match move_action {
                    Action::RowUp => at.saturating_sub(1),
                    Action::RowDown => *at + 1,
                    Action::PageUp => at.saturating_sub(10),
                    Action::PageDown => *at + 10,
                    Action::Oldest => 0,
                    Action::Newest => usize::MAX / 2,
                    _ => *at,
                };
                // The pane stops at the last page; a position far beyond it would swallow the next key up.
                *at = (*at).min(overlay_lines(self.setup.readonly));
            }
            (Open::Signal(_, at) | Open::Write(at), Action::RowUp) => *at = at.saturating_sub(1),
            (Open::Signal(_, at), Action::RowDown) => *at = (*at + 1).min(SIGNALS.len() - 1),
            (Open::Signal(victim, at), Action::Watch) => {
                let effect = Effect::Signal(victim.key, SIGNALS[*at].1);
                self.open = Open::Nothing;
                return Some(vec![effect]);
            }
            (Open::Write(at), Action::RowDown) => *at = (*at + 1).min(WRITABLE.len() - 1),
            (Open::Write(at), Action::Watch) => {
                let at = *at;
                self.open = Open::Nothing;
                return Some(self.write(at));
            }
            _ => {}
        }
        Some(Vec::new())
    }

    /// Enter in the chooser of what to write.
    fn write(&mut self, at: usize) -> Vec<Effect> {
        let stamp = self.now.0.as_millis();
        let path = |kind: &str| {
            self.setup
                .folder
                .join(format!("alloctop-{}-{stamp}.{kind}", self.setup.own_pid))
        };
        match at {
            0 if self.watched.is_some() => {
                self.tell("a snapshot needs our own allocator: of another process only counters are read");
                Vec::new()
            }
            0 => {
                self.outstanding += 1;
                vec![Effect::Send(Command::Snapshot(path("pickle")))]
            }
            1 => vec![Effect::WriteScreen(path("svg"))],
            _ => vec![Effect::WriteText(path("json"), report_json(self))],
        }
    }

    /// Typing in the configuration editor.
    pub(super) fn edit(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Open::Configure(text) = &mut self.open else {
            return Vec::new();
        };
        match key.code {
            KeyCode::Esc => self.open = Open::Nothing,
            KeyCode::Enter => {
                let conf = text.clone();
                self.open = Open::Nothing;
                self.draft = Some(conf.clone());
                return self.send(Command::Reconfigure { conf, torch: None });
            }
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => text.clear(),
            KeyCode::Char(c) if !key.modifiers.contains(KeyModifiers::CONTROL) && text.len() < 500 => text.push(c),
            _ => {}
        }
        Vec::new()
    }
}
