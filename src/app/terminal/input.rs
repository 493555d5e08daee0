//! Bytes of the terminal become keys, on a thread of their own. Crossterm's reader is not used: after an incomplete
//! sequence (`ESC [ ?`) crossterm 0.29 reads a blocking terminal once more (`event/source/unix/mio.rs`) and keeps what
//! comes for the sequence's end, so that no key acts any more.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;

use crossterm::event::KeyEvent;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc;

use super::keys::Parser;

/// Milliseconds without a byte after which a sequence is complete: an Escape is the key. Long enough for a sequence that
/// a network took apart, too short for a hand.
const SILENCE: u8 = 50;

/// Keys that wait for the loop; more stay in the terminal's own queue.
const WAITING: usize = 64;

/// What the keys are read from: standard input, else the controlling terminal.
///
/// # Errors
/// There is neither; the text says so and names the next step.
pub fn terminal() -> io::Result<File> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Ok(File::from(stdin.as_fd().try_clone_to_owned()?));
    }
    File::options().read(true).write(true).open("/dev/tty").map_err(|error| {
        io::Error::new(
            error.kind(),
            "no keys can be read: standard input is no terminal, and there is no controlling terminal; run alloctop in a \
             terminal, or use --once for text or --json for one document",
        )
    })
}

/// Reads keys from [`terminal`] to the end of the process. The channel ends when the terminal is gone.
///
/// # Errors
/// There is no thread.
pub fn start(tty: File) -> io::Result<mpsc::Receiver<KeyEvent>> {
    let (keys, receiver) = mpsc::channel(WAITING);
    std::thread::Builder::new()
        .name("keys".into())
        .spawn(move || live(tty, &keys))?;
    Ok(receiver)
}

fn live(mut tty: File, keys: &mpsc::Sender<KeyEvent>) {
    let mut parser = Parser::default();
    let mut chunk = [0; 1024];
    loop {
        let wait = if parser.amid() {
            PollTimeout::from(SILENCE)
        } else {
            PollTimeout::NONE
        };
        let came = match poll(&mut [PollFd::new(tty.as_fd(), PollFlags::POLLIN)], wait) {
            Ok(0) => parser.silence().into_iter().collect(),
            Ok(_) => match tty.read(&mut chunk) {
                Ok(0) => return,
                Ok(n) => parser.feed(&chunk[..n]),
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                    continue;
                }
                Err(_) => return,
            },
            Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        for key in came {
            if keys.blocking_send(key).is_err() {
                return;
            }
        }
    }
}
