//! The terminal: taken, drawn on, given back on every way out (design rule 12, AC-22), and sent nothing when nothing
//! changed (AC-27).

use std::io::{self, BufWriter, Stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

use crossterm::cursor::{Hide, Show};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// True while the terminal is ours; the panic hook and the guard both give it back, once.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Held while a frame is written, so that a panic in another thread does not give the terminal back in its middle.
static WRITING: Mutex<()> = Mutex::new(());

/// Gives the terminal back, if it is ours. May be called from any thread.
pub fn restore() {
    // A panic in the middle of a frame holds the lock itself, and a terminal that takes no bytes holds it for long:
    // waiting has an end.
    let mut lock = WRITING.try_lock();
    for _ in 0..20 {
        if !matches!(lock, Err(TryLockError::WouldBlock)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        lock = WRITING.try_lock();
    }
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Errors have nowhere to go: the terminal may be gone (SIGHUP).
        let _ = execute!(io::stdout(), EndSynchronizedUpdate, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// The screen: two buffers and the way to the terminal.
pub struct Screen {
    backend: CrosstermBackend<BufWriter<Stdout>>,
    drawn: Buffer,
    next: Buffer,
    /// Bytes are only known through the backend's writer; frames that were sent are counted here.
    pub frames: u64,
}

impl Screen {
    /// Takes the terminal. It is given back when the screen is dropped.
    pub fn open() -> io::Result<Screen> {
        take()?;
        let mut screen = Screen {
            backend: CrosstermBackend::new(BufWriter::with_capacity(1 << 16, io::stdout())),
            drawn: Buffer::empty(Rect::ZERO),
            next: Buffer::empty(Rect::ZERO),
            frames: 0,
        };
        screen.resize()?;
        Ok(screen)
    }

    /// The area to draw on.
    pub fn area(&self) -> Rect {
        self.next.area
    }

    /// Asks the terminal for its size and makes the next frame a full one.
    pub fn resize(&mut self) -> io::Result<()> {
        let (width, height) = crossterm::terminal::size()?;
        let area = Rect::new(0, 0, width, height);
        self.drawn = Buffer::empty(area);
        self.next = Buffer::empty(area);
        queue!(self.backend, Clear(ClearType::All))?;
        Ok(())
    }

    /// Draws one frame: only changed cells are sent, in one synchronised update; nothing at all when no cell changed.
    pub fn draw(&mut self, paint: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.next.reset();
        paint(&mut self.next);
        let changes = self.drawn.diff(&self.next);
        if changes.is_empty() {
            return Ok(());
        }
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        if !TAKEN.load(Ordering::SeqCst) {
            // A panic elsewhere gave the terminal back; the loop is about to notice.
            return Ok(());
        }
        queue!(self.backend, BeginSynchronizedUpdate)?;
        self.backend.draw(changes.into_iter())?;
        queue!(self.backend, EndSynchronizedUpdate)?;
        io::Write::flush(&mut self.backend)?;
        std::mem::swap(&mut self.drawn, &mut self.next);
        self.frames += 1;
        Ok(())
    }

    /// Gives the terminal back, stops this process until it is continued, and takes the terminal again.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        // SIGSTOP cannot be caught, so this works although SIGTSTP has a handler.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGSTOP);
        take()?;
        self.resize()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}
