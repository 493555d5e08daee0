//! The terminal: taken, drawn on, given back on every way out (design rule 12, AC-22), and sent nothing when nothing
//! changed (AC-27). A terminal that takes no bytes delays nothing but its own frames (`writer`).

use std::io;

use crossterm::cursor::{Hide, Show};
use crossterm::queue;
use crossterm::style::{Attribute, SetAttribute};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub mod input;
pub mod keys;
mod writer;

/// The largest area that is drawn on, in cells: a terminal may claim 65535 x 65535, which no memory holds.
const LARGEST: (u16, u16) = (1000, 500);

/// Gives the terminal back, if it is ours, within a second. May be called from any thread.
pub fn restore() {
    let mut bytes = Vec::new();
    // Writing to memory does not fail. The end of a frame that was given up in its middle comes first.
    let _ = queue!(
        bytes,
        SetAttribute(Attribute::Reset),
        EndSynchronizedUpdate,
        LeaveAlternateScreen,
        Show
    );
    writer::leave(
        || {
            // Errors have nowhere to go: the terminal may be gone (SIGHUP).
            let _ = disable_raw_mode();
        },
        &bytes,
    );
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    let mut bytes = Vec::new();
    queue!(bytes, EnterAlternateScreen, Hide)?;
    writer::take(bytes).inspect_err(|_| {
        let _ = disable_raw_mode();
    })
}

/// The screen: two buffers and the way to the terminal.
pub struct Screen {
    drawn: Buffer,
    next: Buffer,
    /// The next frame starts from an empty screen.
    clear: bool,
}

impl Screen {
    /// Takes the terminal. It is given back when the screen is dropped.
    pub fn open() -> io::Result<Screen> {
        take()?;
        let mut screen = Screen {
            drawn: Buffer::empty(Rect::ZERO),
            next: Buffer::empty(Rect::ZERO),
            clear: true,
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
        let area = Rect::new(0, 0, width.min(LARGEST.0), height.min(LARGEST.1));
        self.drawn = Buffer::empty(area);
        self.next = Buffer::empty(area);
        self.clear = true;
        Ok(())
    }

    /// True when a frame may be drawn: none is on its way. Frames are not queued.
    pub fn ready(&self) -> bool {
        writer::ready()
    }

    /// Resolves when [`Screen::ready`].
    pub async fn written(&self) {
        writer::written().await;
    }

    /// Draws one frame: only changed cells are sent, in one synchronised update; nothing at all when no cell changed. Does
    /// not wait for the terminal.
    ///
    /// # Errors
    /// An earlier frame could not be written.
    pub fn draw(&mut self, paint: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.next.reset();
        paint(&mut self.next);
        let changes = self.drawn.diff(&self.next);
        if changes.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        queue!(bytes, BeginSynchronizedUpdate)?;
        if self.clear {
            queue!(bytes, Clear(ClearType::All))?;
        }
        CrosstermBackend::new(&mut bytes).draw(changes.into_iter())?;
        queue!(bytes, EndSynchronizedUpdate)?;
        if writer::frame(bytes)? {
            self.clear = false;
            std::mem::swap(&mut self.drawn, &mut self.next);
        }
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
