//! The real program in a real pseudo-terminal, with a screen model that reads what it writes.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};

/// How long the program may take for anything that a test waits for; debug builds on busy machines are slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running program.
pub struct Session {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    screen: Arc<Mutex<vt100::Parser>>,
    bytes: Arc<AtomicUsize>,
    held: Arc<AtomicBool>,
    before: Termios,
    /// Its log and state go here.
    _state: tempfile::TempDir,
}

fn modes(master: &dyn MasterPty) -> Termios {
    let fd = master.as_raw_fd().expect("a pty has a file descriptor");
    // SAFETY: the descriptor is borrowed for one call while the master, which owns it, lives.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    tcgetattr(borrowed).expect("the modes of a pty can be read")
}

fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).unwrap_or(NonZero::<u16>::MIN)
}

fn size(width: u16, height: u16) -> PtySize {
    PtySize {
        rows: height,
        cols: width,
        pixel_width: 0,
        pixel_height: 0,
    }
}

impl Session {
    /// Starts `alloctop ARGS` on the simulated device on a screen of that size.
    pub fn start(width: u16, height: u16, args: &[&str]) -> Session {
        Session::with_env(width, height, args, &[])
    }

    /// The same with variables; an empty value removes one.
    pub fn with_env(width: u16, height: u16, args: &[&str], env: &[(&str, &str)]) -> Session {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_alloctop"));
        command.args(args);
        Session::launch(width, height, command, env, false)
    }

    /// Starts it in a terminal that takes nothing until [`Session::hold`] says otherwise.
    pub fn stalled(width: u16, height: u16, args: &[&str]) -> Session {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_alloctop"));
        command.args(args);
        Session::launch(width, height, command, &[], true)
    }

    /// Starts it with a terminal to write to and none to read from.
    pub fn without_input(width: u16, height: u16, args: &[&str]) -> Session {
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" </dev/null", env!("CARGO_BIN_EXE_alloctop")]);
        command.args(args);
        command.set_controlling_tty(false);
        Session::launch(width, height, command, &[], false)
    }

    fn launch(width: u16, height: u16, mut command: CommandBuilder, env: &[(&str, &str)], stalled: bool) -> Session {
        let pair = native_pty_system().openpty(size(width, height)).unwrap();
        let state = tempfile::tempdir().unwrap();
        for name in [
            "NO_COLOR",
            "COLORTERM",
            "LC_ALL",
            "LC_CTYPE",
            "PYTORCH_CUDA_ALLOC_CONF",
            "ALLOCTOP_BACKEND",
        ] {
            command.env_remove(name);
        }
        for (name, value) in [
            ("TERM", "xterm-256color"),
            ("LANG", "C.UTF-8"),
            ("RUST_BACKTRACE", "0"),
            ("XDG_STATE_HOME", state.path().to_str().unwrap()),
        ]
        .iter()
        .chain(env)
        {
            if value.is_empty() {
                command.env_remove(name);
            } else {
                command.env(name, value);
            }
        }
        command.cwd(state.path());
        let before = modes(pair.master.as_ref());
        let child = pair.slave.spawn_command(command).unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(height), cells(width), 0)));
        let bytes = Arc::new(AtomicUsize::new(0));
        let mut reader = pair.master.try_clone_reader().unwrap();
        let held = Arc::new(AtomicBool::new(stalled));
        let (model, written, pause) = (screen.clone(), bytes.clone(), held.clone());
        std::thread::spawn(move || {
            let mut chunk = [0; 8192];
            loop {
                while pause.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let Ok(n @ 1..) = reader.read(&mut chunk) else { break };
                written.fetch_add(n, Ordering::SeqCst);
                model.lock().unwrap().process(&chunk[..n]);
            }
        });
        Session {
            keys: pair.master.take_writer().unwrap(),
            child,
            master: pair.master,
            screen,
            bytes,
            held,
            before,
            _state: state,
        }
    }

    /// What is on the screen.
    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Waits until the screen satisfies `wanted`.
    pub fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let text = self.text();
            if wanted(&text) {
                return text;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "waited in vain for {what}; on the screen:\n{text}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the screen holds `needle`, also over the end of a line.
    pub fn see(&self, needle: &str) -> String {
        self.wait(needle, |text| {
            text.contains(needle) || text.split_whitespace().collect::<Vec<_>>().join(" ").contains(needle)
        })
    }

    /// Types.
    pub fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Changes the terminal's size.
    pub fn resize(&self, width: u16, height: u16) {
        self.master.resize(size(width, height)).unwrap();
        self.screen
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(cells(height), cells(width));
    }

    /// Changes the size that the terminal claims to have, not the one of the screen model.
    pub fn claim(&self, width: u16, height: u16) {
        self.master.resize(size(width, height)).unwrap();
    }

    /// Stops reading what the program writes, or goes on.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// Waits until the program has taken the terminal; the screen may still be empty.
    pub fn wait_taken(&self) {
        let start = Instant::now();
        while modes(self.master.as_ref()) == self.before {
            assert!(start.elapsed() < PATIENCE, "the terminal is not taken");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asserts that raw mode is off; what is on the screen of a stalled terminal is not known.
    pub fn assert_cooked(&self) {
        assert_eq!(modes(self.master.as_ref()), self.before, "terminal modes");
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = self.child.process_id().expect("the program runs");
        kill(Pid::from_raw(pid as i32), signal).unwrap();
    }

    /// The state letter of the process in /proc.
    pub fn state(&self) -> char {
        let pid = self.child.process_id().expect("the program runs");
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap()
    }

    /// Waits for the end.
    pub fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // What was written last must have arrived.
                std::thread::sleep(Duration::from_millis(100));
                return status;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "the program does not end; on the screen:\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asserts that the terminal is as it was before the start (AC-22).
    pub fn assert_restored(&self) {
        assert_eq!(modes(self.master.as_ref()), self.before, "terminal modes");
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        assert!(!screen.alternate_screen(), "the alternate screen was not left");
        assert!(!screen.hide_cursor(), "the cursor is hidden");
        assert!(!screen.bracketed_paste(), "bracketed paste is on");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
    }

    /// Asserts that the terminal is ours.
    pub fn assert_taken(&self) {
        assert_ne!(modes(self.master.as_ref()), self.before, "raw mode is off");
        assert!(self.screen.lock().unwrap().screen().alternate_screen());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
