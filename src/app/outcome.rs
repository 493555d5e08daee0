//! What the allocator's thread did becomes a log entry, a letter on the time axis and a sentence.

use std::sync::Arc;
use std::time::Duration;

use super::{App, LogEntry};
use crate::clock::Moment;
use crate::sample::Sample;
use crate::ui::text;
use crate::units::Bytes;
use crate::worker::{Command, Done, Outcome, State};

impl App {
    /// Takes an outcome in.
    pub(super) fn answered(&mut self, outcome: &Outcome, state: Arc<State>) {
        self.outstanding = self.outstanding.saturating_sub(1);
        let address = about(outcome, &self.worker, &state);
        self.worker = state;
        if let Some(first) = &outcome.first_use {
            // The context's cost is an event of its own (issue 2.3).
            self.context = Some((outcome.at, first.took));
        }
        let refused = outcome.result.is_err();
        if !refused && matches!(outcome.command, Command::Reconfigure { .. }) {
            self.draft = None;
        }
        let cost = match &outcome.result {
            Ok(_) => text::cost(outcome),
            Err(_) => "refused".into(),
        };
        self.note(LogEntry {
            at: outcome.at,
            letter: text::letter(&outcome.command),
            text: text::action(outcome),
            cost,
            refused,
            address,
        });
        self.sentence = (text::sentence(outcome), refused);
        self.short = text::short_sentence(outcome);
        // A deleted block cannot stay selected; its neighbour takes over so that d, d, d deletes down the list.
        if let Some(key) = self.selected
            && !self.worker.blocks.iter().any(|b| b.key == key)
        {
            self.selected = self
                .worker
                .blocks
                .iter()
                .rev()
                .find(|b| b.key < key)
                .or(self.worker.blocks.first())
                .map(|b| b.key);
        }
    }
}

impl App {
    fn context_event(&mut self, at: Moment, bytes: Bytes, took: Duration) {
        self.note(LogEntry {
            at,
            letter: '!',
            text: "first use: CUDA context, kernels".into(),
            cost: format!("{bytes} in {}", text::duration(took)),
            refused: false,
            address: None,
        });
    }

    /// What the first use costs, kernels included, is what the process holds outside reserved, as soon as a sample taken
    /// after it shows both: the same figure as the bill's line.
    pub(super) fn context_seen(&mut self, sample: &Sample) {
        let Some((at, took)) = self.context.filter(|(at, _)| sample.device.at > *at) else {
            return;
        };
        let [_, vram, _, reserved] = App::figures(sample);
        if let Some(bytes) = vram.zip(reserved).and_then(|(v, r)| v.checked_sub(r)) {
            self.context = None;
            self.context_event(at, Bytes(bytes), took);
        }
    }
}

/// The address of the block that an outcome was about: a deleted block is only in the state before.
fn about(outcome: &Outcome, before: &State, after: &State) -> Option<u64> {
    let (key, state) = match (&outcome.command, &outcome.result) {
        (_, Ok(Done::Made { key, .. })) => (*key, after),
        (Command::Delete(key) | Command::RecordAndDelete(key), Ok(_)) => (*key, before),
        _ => return None,
    };
    state.blocks.iter().find(|b| b.key == key).map(|b| b.address)
}
