//! Keys that act on our own allocator: the commands they become, and the order in which keys typed ahead are sent.

use super::action::Action;
use super::{App, Effect, Held, LogEntry};
use crate::driver::StreamId;
use crate::worker::{BlockKey, Command, Place, Shape};

/// Keys that may wait for answers; more are typed by no hand.
const HELD: usize = 1000;

/// Streams that `S` goes through.
const STREAMS: u64 = 4;

impl App {
    /// An action on our own allocator. A deletion right behind another key waits for that key's answer, since it is about
    /// the block that the answer brings; so does everything behind it.
    pub(super) fn own_action(&mut self, action: Action) -> Vec<Effect> {
        let shape = self.sizes.shape().clone();
        if !self.held.is_empty() || (is_about_a_block(action) && self.outstanding > 0) {
            if self.held.len() < HELD {
                self.held.push_back(Held { action, shape });
            }
            return Vec::new();
        }
        self.act_on_own(action, shape)
    }

    /// Performs the keys that waited, as far as they need wait no longer.
    pub(super) fn release_held(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(next) = self.held.front() {
            if is_about_a_block(next.action) && self.outstanding > 0 {
                break;
            }
            if let Some(Held { action, shape }) = self.held.pop_front() {
                effects.extend(self.act_on_own(action, shape));
            }
        }
        effects
    }

    /// The command of a key, about the blocks that there are now.
    fn act_on_own(&mut self, action: Action, shape: Shape) -> Vec<Effect> {
        // What an action does is to be seen: it ends a pause.
        self.paused = None;
        let dtype = self.sizes.dtype();
        let command = match action {
            Action::AllocGpu => Command::AllocGpu { shape, dtype },
            Action::AllocCpu => Command::AllocCpu { shape, dtype },
            Action::Delete | Action::RecordAndDelete => {
                let Some(key) = self.selected_or_newest(action == Action::RecordAndDelete) else {
                    self.tell("there is no block to delete: g allocates one on the GPU, c one in host memory");
                    return Vec::new();
                };
                if action == Action::Delete {
                    Command::Delete(key)
                } else {
                    Command::RecordAndDelete(key)
                }
            }
            Action::DeleteAll => Command::DeleteAll,
            Action::Flush => Command::Flush,
            Action::Stream => {
                self.streams = (self.worker.stream.0 + 1) % STREAMS;
                Command::Stream(StreamId(self.streams))
            }
            Action::BusyStream => Command::BusyStream,
            Action::OutOfMemory => Command::OutOfMemory,
            // No other key is one of our own allocator's.
            _ => return Vec::new(),
        };
        self.send(command)
    }

    /// Sends a command; what it changes is measured from here.
    pub(super) fn send(&mut self, command: Command) -> Vec<Effect> {
        if let Some(sample) = &self.sample {
            self.baseline = App::figures(sample);
        }
        self.outstanding += 1;
        vec![Effect::Send(command)]
    }

    /// The selected live block, else the newest; pending ones are gone already.
    fn selected_or_newest(&self, gpu_only: bool) -> Option<BlockKey> {
        let live = || {
            self.worker
                .blocks
                .iter()
                .filter(move |b| !b.pending && (!gpu_only || b.place == Place::Gpu))
        };
        live()
            .find(|b| Some(b.key) == self.selected)
            .or_else(|| live().next_back())
            .map(|b| b.key)
    }

    /// R: of a watched process only our sampled maxima can start again, since nothing in it is touched.
    pub(super) fn reset_peaks(&mut self) -> Vec<Effect> {
        self.since_reset = true;
        self.history.reset_peaks();
        if self.watched.is_some() {
            self.note(LogEntry {
                at: self.now,
                letter: 'R',
                text: "sampled maxima start again; the process's own peaks stay".into(),
                cost: String::new(),
                refused: false,
                address: None,
            });
            return Vec::new();
        }
        self.outstanding += 1;
        vec![Effect::Send(Command::ResetPeaks)]
    }
}

/// Is this key about the selected block or the newest?
fn is_about_a_block(action: Action) -> bool {
    matches!(action, Action::Delete | Action::RecordAndDelete)
}
