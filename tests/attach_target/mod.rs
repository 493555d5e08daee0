//! Builds and drives the attach tests' target: a process that looks like PyTorch in memory. See target.rs.

// Every test program uses its own part of this.
#![allow(dead_code)]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

pub mod model;
pub use model::Plan;

use alloctop::allocator::stats::{DeviceStats, Stat, StatArray};
use alloctop::attach::{Attached, ProcRoot};
use alloctop::reading::{Reading, Why};

/// The folder with the built targets; built once for all test programs.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attach_target");
        let mut hash = DefaultHasher::new();
        for file in ["mod.rs", "model.rs", "target.rs", "loader.rs"] {
            std::fs::read(source.join(file)).unwrap().hash(&mut hash);
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("attach-{:016x}", hash.finish()));
        if !folder.exists() {
            let fresh = folder.with_extension(std::process::id().to_string());
            build(&source, &fresh);
            // Another test program may have been faster: its result is the same.
            if std::fs::rename(&fresh, &folder).is_err() {
                std::fs::remove_dir_all(&fresh).unwrap();
            }
        }
        folder
    })
}

fn build(source: &Path, folder: &Path) {
    std::fs::create_dir_all(folder.join("hidden")).unwrap();
    let library = ["--crate-type", "cdylib", "--crate-name", "c10_cuda", "--cfg", "library"];
    let hidden = [&library[..], &["--cfg", "hidden"]].concat();
    let exported = ["-C", "link-arg=-rdynamic"];
    let copied = [&exported[..], &["--cfg", "copied"]].concat();
    for (file, output, options) in [
        ("target.rs", "libc10_cuda.so", &library[..]),
        ("target.rs", "hidden/libc10_cuda.so", &hidden),
        ("target.rs", "program", &exported),
        ("loader.rs", "loader", &[]),
        ("loader.rs", "copied", &copied),
    ] {
        let status = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
            .args(["--edition", "2024", "-O"])
            .args(options)
            .arg(source.join(file))
            .arg("-o")
            .arg(folder.join(output))
            .status()
            .expect("the tests' target is compiled with rustc");
        assert!(status.success(), "{file}");
    }
}

/// A running target.
pub struct Target {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Target {
    /// libc10_cuda.so loaded by a program, its static initialiser run, no device yet.
    pub fn loaded(plan: &Plan) -> Target {
        let mut target = Target::library(plan);
        target.say("load 0");
        target
    }

    /// With its devices, after one operation.
    pub fn initialised(plan: &Plan) -> Target {
        let mut target = Target::loaded(plan);
        target.say("init");
        target
    }

    /// The library loaded, nothing run.
    pub fn library(plan: &Plan) -> Target {
        Target::start("loader", Some(&built().join("libc10_cuda.so")), plan, &[])
    }

    /// `program` of the built folder, with the library it shall load.
    pub fn start(program: &str, library: Option<&Path>, plan: &Plan, environment: &[(&str, &str)]) -> Target {
        let mut command = Command::new(built().join(program));
        command
            .args(library)
            .args(plan.to_args())
            .envs(environment.iter().copied());
        Target::run(command)
    }

    /// A process that maps `file` under its name.
    pub fn mapping(file: &Path) -> Target {
        let mut command = Command::new(built().join("loader"));
        command.arg(format!("map:{}", file.display()));
        Target::run(command)
    }

    /// Starts `command` and waits until it is ready.
    pub fn run(mut command: Command) -> Target {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Target { child, input, output }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives a command and returns the answer.
    pub fn say(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Addresses of the object and of the first device.
    pub fn places(&mut self) -> (u64, u64) {
        let text = self.say("where");
        let (object, device) = text.split_once(' ').unwrap();
        (object.parse().unwrap(), device.parse().unwrap())
    }

    /// Ends it and waits for it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Attaches to it.
    pub fn attach(&self) -> Attached {
        match Attached::find(&ProcRoot::default(), self.pid()) {
            Reading::Is(attached) => attached,
            Reading::Missing(why) => panic!("{why:?}"),
        }
    }

    /// The reason why it cannot be attached to.
    pub fn refusal(&self) -> Why {
        match Attached::find(&ProcRoot::default(), self.pid()) {
            Reading::Is(attached) => panic!("{attached:?}"),
            Reading::Missing(why) => why,
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the target's counters are at sequence `n`, decoded by the offsets of allocator-spec 7.4 and not by the reader.
pub fn expected(n: u64, plan: &Plan) -> DeviceStats {
    let mut words = vec![0; plan.stats_words()];
    model::counters(n, plan, &mut words);
    let m = if plan.map { 32 } else { 0 };
    let array = |byte: usize| stat_array(&words[byte / 8..]);
    let number = |byte: usize| words[byte / 8] as i64;
    let newer = |byte: usize, since: usize| (plan.tail >= since).then(|| number(byte));
    let pools = if n == 0 { 0 } else { plan.private_pools };
    DeviceStats {
        allocation: array(0),
        segment: array(96),
        active: array(192),
        inactive_split: array(288),
        allocated_bytes: array(384),
        reserved_bytes: array(480),
        active_bytes: array(576 + m),
        inactive_split_bytes: array(672 + m),
        requested_bytes: array(768 + m),
        num_alloc_retries: number(864 + m),
        num_ooms: number(872 + m),
        oversize_allocations: stat(&words[(880 + m) / 8..]),
        oversize_segments: stat(&words[(912 + m) / 8..]),
        num_sync_all_streams: newer(944 + m, 4),
        num_device_alloc: newer(952 + m, 4),
        num_device_free: newer(960 + m, 4),
        num_oom_rejections: newer(968 + m, 5),
        max_split_size: plan.max_split,
        reserved_bytes_by_private_pools: (0..pools)
            .map(|k| {
                let mut words = [0; 12];
                (model::private_pool(k, n, &mut words), stat_array(&words))
            })
            .collect(),
    }
}

fn stat(words: &[u64]) -> Stat {
    Stat {
        current: words[0] as i64,
        peak: words[1] as i64,
        allocated: words[2] as i64,
        freed: words[3] as i64,
    }
}

fn stat_array(words: &[u64]) -> StatArray {
    StatArray {
        all: stat(words),
        small: stat(&words[4..]),
        large: stat(&words[8..]),
    }
}

/// A small generator of numbers below `limit`.
pub fn below(state: &mut u64, limit: u64) -> u64 {
    model::garbage(state);
    (*state >> 11) % limit
}
