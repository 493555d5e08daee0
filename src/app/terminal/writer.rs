//! The way to the terminal: a thread of its own writes, so that a terminal that takes no bytes (nobody reads the pty, the
//! emulator holds its output) stops neither the loop nor the way out. The descriptor itself stays as it is: `O_NONBLOCK`
//! would be shared with the shell that started us.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlowArg, FlushArg, tcflow, tcflush};
use tokio::sync::Notify;

/// Written at once; between two chunks the rest of a piece can be given up. Half of what a pty holds (8 KiB), so that the
/// sequence that leaves the screen fits behind one.
const CHUNK: usize = 2048;

/// How long the last frame may take on the way out.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long the sequence that leaves the screen may take.
const LAST_PATIENCE: Duration = Duration::from_millis(250);

/// Bytes that are written as a whole or, on the way out of a stalled terminal, given up.
struct Piece {
    bytes: Vec<u8>,
    frame: bool,
}

/// Whose terminal it is.
#[derive(PartialEq, Eq)]
enum Owner {
    Others,
    /// Ours: frames are taken.
    Us,
    /// A thread of ours is on the way out with it.
    Leaving,
}

/// What the thread is writing.
#[derive(PartialEq, Eq)]
enum Flight {
    Nothing,
    Control,
    Frame,
    /// Something whose rest is not wanted any more.
    GivenUp,
}

struct State {
    started: bool,
    owner: Owner,
    waiting: VecDeque<Piece>,
    flight: Flight,
    failed: Option<io::ErrorKind>,
}

impl State {
    fn idle(&self) -> bool {
        self.flight == Flight::Nothing && self.waiting.is_empty()
    }
}

static STATE: Mutex<State> = Mutex::new(State {
    started: false,
    owner: Owner::Others,
    waiting: VecDeque::new(),
    flight: Flight::Nothing,
    failed: None,
});

/// The state changed.
static CHANGED: Condvar = Condvar::new();

/// A frame was written.
static WRITTEN: Notify = Notify::const_new();

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `done` or the time is over; true if done.
fn wait(state: MutexGuard<'_, State>, patience: Duration, done: fn(&State) -> bool) -> (MutexGuard<'_, State>, bool) {
    let (state, _) = CHANGED
        .wait_timeout_while(state, patience, |state| !done(state))
        .unwrap_or_else(PoisonError::into_inner);
    let is = done(&state);
    (state, is)
}

/// Takes the terminal: starts the thread at the first call and queues `enter`.
///
/// # Errors
/// There is no thread, or standard output is closed.
pub fn take(enter: Vec<u8>) -> io::Result<()> {
    let mut state = lock();
    if !state.started {
        let tty = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        std::thread::Builder::new()
            .name("screen".into())
            .spawn(move || live(tty))?;
        state.started = true;
    }
    state.owner = Owner::Us;
    push(&mut state, enter, false);
    Ok(())
}

fn push(state: &mut State, bytes: Vec<u8>, frame: bool) {
    state.waiting.push_back(Piece { bytes, frame });
    CHANGED.notify_all();
}

/// True when the next frame would be written at once. While a frame is on its way there is no second one behind it: the
/// difference to the screen is taken when the way is free.
pub fn ready() -> bool {
    let state = lock();
    state.flight != Flight::Frame && !state.waiting.iter().any(|piece| piece.frame)
}

/// Resolves when [`ready`].
pub async fn written() {
    while !ready() {
        WRITTEN.notified().await;
    }
}

/// Hands a frame over. False if the terminal was given back meanwhile (a panic elsewhere).
///
/// # Errors
/// An earlier frame could not be written.
pub fn frame(bytes: Vec<u8>) -> io::Result<bool> {
    let mut state = lock();
    if let Some(kind) = state.failed {
        return Err(kind.into());
    }
    if state.owner != Owner::Us {
        return Ok(false);
    }
    push(&mut state, bytes, true);
    Ok(true)
}

/// Gives the terminal back, once, from whichever thread: the last frame gets its time, then `cooked` puts the modes back,
/// then `leave` gets its time. A stalled terminal loses what it has not read, so that `leave` is what it reads next.
pub fn leave(cooked: impl FnOnce(), leave: &[u8]) {
    let mut state = lock();
    if state.owner != Owner::Us {
        // Another thread is at it: it must be over before the process ends.
        drop(wait(state, PATIENCE + 2 * LAST_PATIENCE, |state| {
            state.owner != Owner::Leaving
        }));
        return;
    }
    state.owner = Owner::Leaving;
    let (state, arrived) = wait(state, PATIENCE, State::idle);
    drop(state);
    cooked();
    let mut state = lock();
    if !arrived {
        discard(&mut state);
    }
    push(&mut state, leave.to_vec(), false);
    let (mut state, arrived) = wait(state, LAST_PATIENCE, State::idle);
    if !arrived {
        // The last frame filled the terminal to the brim.
        discard(&mut state);
        push(&mut state, leave.to_vec(), false);
        (state, _) = wait(state, LAST_PATIENCE, State::idle);
    }
    state.owner = Owner::Others;
    CHANGED.notify_all();
}

/// Discards what is not written, and what the terminal has not read. Linux does not wake a writer that waits for the room
/// so made, but it wakes one when output is stopped and started. Errors have nowhere to go: the terminal may be gone
/// (SIGHUP).
fn discard(state: &mut State) {
    state.waiting.clear();
    if state.flight != Flight::Nothing {
        state.flight = Flight::GivenUp;
    }
    let tty = io::stdout();
    let _ = tcflush(&tty, FlushArg::TCOFLUSH);
    let _ = tcflow(&tty, FlowArg::TCOOFF);
    let _ = tcflow(&tty, FlowArg::TCOON);
}

/// Writes piece after piece, to the end of the process.
fn live(mut tty: File) {
    loop {
        let mut state = lock();
        let piece = loop {
            if let Some(piece) = state.waiting.pop_front() {
                break piece;
            }
            state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.flight = if piece.frame { Flight::Frame } else { Flight::Control };
        drop(state);
        let result = write(&mut tty, &piece.bytes);
        let mut state = lock();
        state.flight = Flight::Nothing;
        if let Err(error) = result {
            state.failed = Some(error.kind());
        }
        if piece.frame {
            WRITTEN.notify_one();
        }
        CHANGED.notify_all();
    }
}

fn write(tty: &mut File, bytes: &[u8]) -> io::Result<()> {
    for chunk in bytes.chunks(CHUNK) {
        let mut rest = chunk;
        while !rest.is_empty() {
            if lock().flight == Flight::GivenUp {
                return Ok(());
            }
            match tty.write(rest) {
                Ok(n) => rest = &rest[n..],
                // Somebody who shares the terminal made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = poll(
                        &mut [PollFd::new(tty.as_fd(), PollFlags::POLLOUT)],
                        PollTimeout::from(100u8),
                    );
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
