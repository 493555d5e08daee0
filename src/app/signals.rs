//! Signals: what ends the program, what suspends it, what tells of a new size. Every signal that would end a process by
//! default and can be caught ends this one by the door: the terminal is given back first (design rule 12, AC-22).

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::libc;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ends the program with 128 + its number. SIGPIPE stays ignored, as Rust's start-up leaves it: a closed pipe is an error
/// of the write.
const ENDS: [i32; 12] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGXCPU,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
];

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caught {
    /// End with this exit code.
    End(u8),
    /// Stop until continued.
    Suspend,
    /// The terminal has another size.
    Resized,
}

/// The exit code of a program that a signal ended, as shells count.
pub fn exit_code(number: i32) -> u8 {
    128 + number as u8
}

/// The signals that are caught, from [`Signals::register`] to the end of the process.
pub struct Signals(Vec<(Caught, Signal)>);

impl Signals {
    /// Catches them from now on. To be called before the terminal is taken: a signal between the two would leave it broken.
    pub fn register() -> io::Result<Self> {
        let on = |number: i32, caught| signal(SignalKind::from_raw(number)).map(|signal| (caught, signal));
        let mut all = Vec::new();
        for number in ENDS {
            all.push(on(number, Caught::End(exit_code(number)))?);
        }
        all.push(on(libc::SIGTSTP, Caught::Suspend)?);
        all.push(on(libc::SIGWINCH, Caught::Resized)?);
        Ok(Signals(all))
    }

    /// The next signal.
    pub async fn next(&mut self) -> Caught {
        poll_fn(|context| {
            for (caught, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*caught);
                }
            }
            Poll::Pending
        })
        .await
    }
}
