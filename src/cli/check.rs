//! Which flag means something where: one that would be accepted and ignored is refused with a sentence, before anything
//! is started. Values that only a look at the machine can judge (folders, users, processes) are judged here too.

use super::{Backend, Options, Task};
use crate::source::printable::printable;

/// What the program is asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Dashboard,
    Once,
    Experiment,
    Parity,
    Doctor,
    Keys,
}

impl Mode {
    fn of(command: Option<&Task>, options: &Options) -> Option<Self> {
        Some(match command {
            None if options.once || options.json => Mode::Once,
            None => Mode::Dashboard,
            Some(Task::Experiment { .. }) => Mode::Experiment,
            Some(Task::Parity { .. }) => Mode::Parity,
            Some(Task::Doctor { .. }) => Mode::Doctor,
            Some(Task::Keys) => Mode::Keys,
            // Started by ourselves.
            Some(Task::ExperimentChild { .. }) => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Mode::Dashboard => "in the dashboard",
            Mode::Once => "with --once and --json",
            Mode::Experiment => "for experiment",
            Mode::Parity => "for parity",
            Mode::Doctor => "for doctor",
            Mode::Keys => "for keys",
        }
    }
}

/// Where each flag means something. Flags that are not here (no colours, seven-bit characters, no mouse, reading only)
/// hold everywhere: plain output keeps to them anyway.
const MEANINGS: [(&str, &[Mode]); 17] = [
    ("pid", &[Mode::Dashboard, Mode::Once]),
    ("backend", &[Mode::Dashboard, Mode::Once, Mode::Experiment]),
    ("interval", &[Mode::Dashboard]),
    ("delay", &[Mode::Dashboard]),
    ("gpu", &[Mode::Dashboard, Mode::Once, Mode::Experiment]),
    ("shape", &[Mode::Dashboard, Mode::Experiment]),
    ("dtype", &[Mode::Dashboard, Mode::Experiment]),
    ("budget", &[Mode::Dashboard, Mode::Experiment]),
    ("torch", &[Mode::Dashboard, Mode::Experiment, Mode::Parity]),
    ("alloc_conf", &[Mode::Dashboard, Mode::Experiment]),
    ("nvml", &[Mode::Dashboard, Mode::Once, Mode::Experiment, Mode::Doctor]),
    ("sim", &[Mode::Dashboard, Mode::Once, Mode::Experiment]),
    ("theme", &[Mode::Dashboard]),
    ("glyphs", &[Mode::Dashboard]),
    ("user", &[Mode::Once]),
    ("folder", &[Mode::Dashboard]),
    ("once", &[Mode::Once]),
];

/// Flags of our own allocator: it is off while another process is watched.
const OF_OUR_ALLOCATOR: [&str; 4] = ["budget", "torch", "alloc_conf", "sim"];

/// Refuses what was typed and would mean nothing, and values that cannot be.
///
/// # Errors
/// One sentence that names the flag and the next step.
pub fn check(command: Option<&Task>, options: &Options) -> Result<(), String> {
    let Some(mode) = Mode::of(command, options) else {
        return Ok(());
    };
    let typed = |flag: &str| options.typed.iter().any(|t| t == flag);
    for (flag, modes) in MEANINGS {
        if typed(flag) && !modes.contains(&mode) {
            return Err(format!(
                "{} has no meaning {}: {}",
                spelled(flag),
                mode.name(),
                next_step(flag, mode)
            ));
        }
    }
    if mode == Mode::Dashboard && options.pid.len() > 1 {
        return Err("the dashboard watches one process: several PIDs need --once or --json".into());
    }
    if let Some(flag) = OF_OUR_ALLOCATOR
        .into_iter()
        .find(|f| typed(f) && !options.pid.is_empty())
    {
        return Err(format!(
            "{} has no meaning with --pid: our own allocator and the simulated device are off while another process is \
             watched; leave one of them out",
            spelled(flag)
        ));
    }
    if typed("sim") && (options.backend == Backend::Cuda || (mode == Mode::Once && options.backend != Backend::Sim)) {
        return Err("--sim describes the simulated device, which is not shown here: pass --backend sim with it".into());
    }
    if let Some(folder) = options.folder.as_ref().filter(|f| !f.is_dir()) {
        return Err(format!(
            "--folder {}: there is no such folder, make it first",
            printable(folder.as_os_str().as_encoded_bytes(), 200)
        ));
    }
    options.user.as_deref().map_or(Ok(()), user)
}

/// A user's name or number that the system may know.
fn user(name: &str) -> Result<(), String> {
    let known = || nix::unistd::User::from_name(name).is_ok_and(|user| user.is_some());
    if name.parse::<u32>().is_ok() || known() {
        return Ok(());
    }
    Err(format!(
        "--user {}: there is no user of this name here; a number (uid) is taken as it is",
        printable(name.as_bytes(), 60)
    ))
}

/// The flag as it is typed.
fn spelled(flag: &str) -> String {
    match flag {
        "delay" => "-d".into(),
        flag => format!("--{}", flag.replace('_', "-")),
    }
}

fn next_step(flag: &str, mode: Mode) -> &'static str {
    match (flag, mode) {
        ("alloc_conf", Mode::Parity) => "a recording names its own configuration; leave it out",
        ("user", Mode::Dashboard) => "use --once or --json, or filter the process table",
        ("once", _) => "this command prints and leaves anyway",
        ("pid", _) => "it looks at no process of yours; leave it out",
        ("interval" | "delay", Mode::Once) => "it looks once; leave it out",
        _ => "leave it out",
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;

    fn said(args: &[&str]) -> Result<(), String> {
        let cli = Cli::read(std::iter::once("alloctop").chain(args.iter().copied()).map(Into::into)).unwrap();
        check(cli.command.as_ref(), &cli.options)
    }

    #[test]
    fn a_flag_without_a_meaning_is_refused() {
        for (args, words) in [
            (
                &["--once", "--torch", "9"][..],
                "--torch has no meaning with --once and --json",
            ),
            (
                &["--json", "--alloc-conf", "foo:bar"],
                "--alloc-conf has no meaning with",
            ),
            (&["-1", "-d", "5"], "-d has no meaning"),
            (&["--json", "--folder", "/tmp"], "--folder has no meaning"),
            (&["--json", "--user", "nobodyx"], "there is no user of this name"),
            (&["--json", "--sim", "total=1GiB"], "pass --backend sim"),
            (&["--user", "root"], "use --once or --json"),
            (&["--folder", "/nonexistent"], "there is no such folder"),
            (&["-p", "1,2"], "several PIDs need --once or --json"),
            (&["-p", "1", "--torch", "2.5"], "--torch has no meaning with --pid"),
            (&["parity", "--alloc-conf", "x", "f"], "a recording names its own"),
            (&["--pid", "1", "doctor"], "--pid has no meaning for doctor"),
            (&["doctor", "--backend", "sim"], "--backend has no meaning for doctor"),
            (
                &["experiment", "--backend", "cuda", "--sim", "total=1GiB"],
                "pass --backend sim",
            ),
        ] {
            let error = said(args).expect_err(words);
            assert!(error.contains(words), "{args:?}: {error}");
        }
    }

    #[test]
    fn flags_with_a_meaning_and_habits_pass() {
        for args in [
            &["-p", "1", "--backend", "sim", "-d", "5", "-C", "-U"][..],
            &["-1", "-p", "1,2", "-u", "0", "-C", "-M", "--gpu", "0"],
            &["--json", "--backend", "sim", "--sim", "total=1GiB"],
            &[
                "experiment",
                "--json",
                "--torch",
                "2.5",
                "--alloc-conf",
                "x",
                "--sim",
                "total=1GiB",
            ],
            &["parity", "--torch", "2.5", "--json", "f"],
            &["doctor", "--nvml", "x", "--format", "json"],
            &["--theme", "light", "--folder", "/", "--torch", "2.5"],
        ] {
            assert_eq!(said(args), Ok(()), "{args:?}");
        }
    }

    #[test]
    fn each_flag_of_the_table_exists() {
        use clap::CommandFactory;
        let command = Cli::command();
        for (flag, _) in MEANINGS {
            assert!(command.get_arguments().any(|a| a.get_id() == flag), "{flag}");
        }
    }
}
