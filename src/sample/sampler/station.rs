//! A source on a thread of its own. Whoever asks never waits here: a question goes in, an answer comes out when there is
//! one. A source that stalls keeps its thread and nothing else; the newest question replaces one that still waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The asking side of a source's thread.
#[derive(Debug)]
pub(super) struct Station<Q, A> {
    desk: Arc<Desk<Q, A>>,
}

#[derive(Debug)]
struct Desk<Q, A> {
    state: Mutex<State<Q, A>>,
    wake: Condvar,
}

#[derive(Debug)]
struct State<Q, A> {
    question: Option<Q>,
    answer: Option<A>,
    /// The source works on a question.
    busy: bool,
    closed: bool,
}

impl<Q, A> Desk<Q, A> {
    /// A source that panicked leaves a state that is still whole: each change is one assignment.
    fn lock(&self) -> MutexGuard<'_, State<Q, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q: Send + 'static, A: Send + 'static> Station<Q, A> {
    /// Starts the thread `name`, on which `source` answers one question after the other; `done` is told of each answer.
    pub(super) fn start(
        name: &str,
        done: Arc<Notify>,
        mut source: impl FnMut(Q) -> A + Send + 'static,
    ) -> std::io::Result<Self> {
        let desk = Arc::new(Desk {
            state: Mutex::new(State {
                question: None,
                answer: None,
                busy: false,
                closed: false,
            }),
            wake: Condvar::new(),
        });
        let inside = desk.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Some(question) = inside.next_question() {
                let answer = source(question);
                let mut state = inside.lock();
                state.answer = Some(answer);
                state.busy = false;
                drop(state);
                done.notify_one();
            }
        })?;
        Ok(Station { desk })
    }

    /// Puts a question; true if the source was free to take it at once.
    pub(super) fn ask(&self, question: Q) -> bool {
        let mut state = self.desk.lock();
        let free = !state.busy && state.question.is_none();
        state.question = Some(question);
        drop(state);
        self.desk.wake.notify_one();
        free
    }

    /// The source has nothing to do: its answers so far are all there.
    pub(super) fn is_free(&self) -> bool {
        let state = self.desk.lock();
        !state.busy && state.question.is_none()
    }

    /// The newest answer, once.
    pub(super) fn take(&self) -> Option<A> {
        self.desk.lock().answer.take()
    }
}

impl<Q, A> Desk<Q, A> {
    /// Waits for a question; none once the station is closed.
    fn next_question(&self) -> Option<Q> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(question) = state.question.take() {
                state.busy = true;
                return Some(question);
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<Q, A> Drop for Station<Q, A> {
    /// The thread ends after the call that it is in; nobody waits for it.
    fn drop(&mut self) {
        self.desk.lock().closed = true;
        self.desk.wake.notify_one();
    }
}
