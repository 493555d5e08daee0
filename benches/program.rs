//! The whole program as a user meets it: time to the first frame (median of 20 starts), then own CPU and RSS over a minute
//! at the default interval with nothing happening (issue 2). Run with `cargo bench --bench program`; arguments after `--`
//! go to the program, e.g. `-- --backend auto` on a machine with a card.

use std::io::Read;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

struct Running {
    child: Box<dyn Child + Send + Sync>,
    /// Closes the terminal when it goes.
    _master: Box<dyn MasterPty + Send>,
    output: Receiver<Vec<u8>>,
}

fn start(args: &[String]) -> Running {
    let pair = native_pty_system()
        .openpty(PtySize {
            rows: 36,
            cols: 120,
            pixel_width: 0,
            pixel_height: 0,
        })
        .unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_alloctop"));
    command.args(args);
    command.env("TERM", "xterm-256color");
    command.env("LANG", "C.UTF-8");
    command.env("XDG_STATE_HOME", std::env::temp_dir());
    let child = pair.slave.spawn_command(command).unwrap();
    let mut reader = pair.master.try_clone_reader().unwrap();
    let (send, output) = channel();
    std::thread::spawn(move || {
        let mut chunk = vec![0; 65_536];
        while let Ok(n) = reader.read(&mut chunk)
            && n > 0
            && send.send(chunk[..n].to_vec()).is_ok()
        {}
    });
    Running {
        child,
        _master: pair.master,
        output,
    }
}

impl Running {
    /// Waits for a frame: the footer's last word is written last.
    fn first_frame(&self) {
        let mut seen = Vec::new();
        while !seen.windows(4).any(|w| w == b"quit") {
            seen.extend(self.output.recv_timeout(Duration::from_secs(10)).expect("no frame"));
        }
    }

    fn stat(&self, field: usize) -> u64 {
        let pid = self.child.process_id().unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let rest = stat.rsplit(") ").next().unwrap();
        rest.split_whitespace().nth(field).unwrap().parse().unwrap()
    }

    /// Clock ticks of CPU time so far (user and system).
    fn ticks(&self) -> u64 {
        self.stat(11) + self.stat(12)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let args = if given.is_empty() {
        vec!["--backend".into(), "sim".into()]
    } else {
        given
    };
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let begin = Instant::now();
            let running = start(&args);
            running.first_frame();
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!(
        "first frame after start, median of 20: {:.1} ms (bound 50)",
        times[10].as_secs_f64() * 1e3
    );

    let running = start(&args);
    running.first_frame();
    std::thread::sleep(Duration::from_secs(5));
    let (before, begin) = (running.ticks(), Instant::now());
    let bytes_before: usize = running.output.try_iter().map(|c| c.len()).sum();
    std::thread::sleep(Duration::from_mins(1));
    let seconds = begin.elapsed().as_secs_f64();
    // The kernel counts in 100ths of a second on every Linux that we run on (USER_HZ).
    let percent = (running.ticks() - before) as f64 / 100.0 / seconds * 100.0;
    let page = 4096.0;
    let rss = running.stat(21) as f64 * page / f64::from(1 << 20);
    let bytes: usize = running.output.try_iter().map(|c| c.len()).sum();
    println!(
        "60 s idle at 100 ms, 120x36: own CPU {percent:.2} % of a core (bound 1), RSS {rss:.1} MiB (bound 12 simulated, 28 \
         with NVML), {:.0} bytes/s to the terminal (after {bytes_before} at the start)",
        bytes as f64 / seconds
    );
}
