//! `alloctop experiment`: the table of every new user, run by itself in a fresh process (issue 2.8). The parent starts a
//! child process of the same program; the child does the steps and writes one line of JSON for each; the parent compares
//! them with what PyTorch's documentation says and prints.
//!
//! Architecture invariant: the verdict is computed from readings alone ([`judge`]). The child knows no expectation.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::units::Bytes;
use crate::worker::{Dtype, Setup, Shape};

mod child;
pub mod judge;
pub mod print;
mod probe;
pub mod step;

pub use child::{Bench, MonitorSource, child, steps_on};
pub use step::{Device, Step, StepReading};

use judge::{Documented, Verdict, judge};

/// The hidden subcommand that the parent starts its own program with, followed by one argument: the options as text.
pub const CHILD: &str = "experiment-child";

/// What the experiment runs on. `auto` is resolved by the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The simulated device.
    Sim,
    /// The CUDA device with this UUID ("GPU-..."), as the monitor names it.
    Cuda(String),
}

impl Backend {
    /// The word of `--backend`.
    pub fn name(&self) -> &'static str {
        match self {
            Backend::Sim => "sim",
            Backend::Cuda(_) => "cuda",
        }
    }
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs; the schema is in [`print::json`].
    Json,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentOptions {
    /// On what.
    pub backend: Backend,
    /// The tensor's shape.
    pub shape: Shape,
    /// Its element type.
    pub dtype: Dtype,
    /// How to print.
    pub format: Format,
    /// `--budget`, if it was given.
    pub budget: Option<Bytes>,
    /// `--torch`, if it was given.
    pub torch: Option<String>,
    /// `--alloc-conf`; empty is PyTorch's default.
    pub conf: String,
    /// The figures of the simulated device, in the words of `--sim`.
    pub sim: Vec<String>,
}

/// Exit code: every step agrees with the documentation.
pub const ALL_AGREE: u8 = 0;
/// Exit code: a step disagrees.
pub const ONE_DISAGREES: u8 = 1;
/// Exit code: no step disagrees, but something is unknown.
pub const SOMETHING_UNKNOWN: u8 = 2;

/// Runs the experiment in a child process of `program` (this program's own path), prints the result to `out` and
/// reasons to `err`. Returns the exit code.
pub fn run(
    options: &ExperimentOptions,
    program: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> std::io::Result<u8> {
    let setup = match Setup::read(&options.conf, options.torch.as_deref()) {
        Ok(setup) => setup,
        Err(why) => {
            writeln!(err, "the experiment could not be run: {why}")?;
            return Ok(SOMETHING_UNKNOWN);
        }
    };
    let Some(documented) = Documented::of(options.shape.bytes(options.dtype), &setup.settings) else {
        writeln!(
            err,
            "{} {} is more than a device can hold: choose a smaller --shape",
            options.shape, options.dtype
        )?;
        return Ok(SOMETHING_UNKNOWN);
    };
    let (device, steps) = match readings(options, program) {
        Ok(readings) => readings,
        Err(why) => {
            writeln!(err, "the experiment could not be run: {why}")?;
            return Ok(SOMETHING_UNKNOWN);
        }
    };
    let verdicts = judge(&steps, &documented);
    match options.format {
        Format::Json => writeln!(out, "{}", print::json(options, &device, &steps, &verdicts))?,
        Format::Table => print::table(options, &device, &steps, &verdicts, out)?,
    }
    if options.format == Format::Json {
        for (step, verdict) in steps.iter().zip(&verdicts) {
            for reason in verdict.reasons() {
                writeln!(err, "{}: {reason}", step.step.name())?;
            }
        }
    }
    Ok(exit_code(&verdicts))
}

/// 0 if all agree, 1 if one disagrees, 2 if none does but one is unknown.
pub fn exit_code(verdicts: &[Verdict]) -> u8 {
    if verdicts.iter().any(|v| matches!(v, Verdict::Disagrees(_))) {
        ONE_DISAGREES
    } else if verdicts.iter().any(|v| matches!(v, Verdict::Unknown(_))) {
        SOMETHING_UNKNOWN
    } else {
        ALL_AGREE
    }
}

/// Starts the child and reads what it writes: the device, then one line for each step.
fn readings(options: &ExperimentOptions, program: &Path) -> Result<(Device, Vec<StepReading>), String> {
    let text = serde_json::to_string(options).map_err(|e| e.to_string())?;
    let mut child = Command::new(program)
        .arg(CHILD)
        .arg(text)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{} cannot be started: {e}", program.display()))?;
    let lines = child.stdout.take().map(|s| BufReader::new(s).lines());
    let mut device = None;
    let mut steps = Vec::new();
    let mut fault = None;
    for line in lines.into_iter().flatten() {
        let read = line.map_err(|e| e.to_string()).and_then(|line| {
            if device.is_none() {
                device = Some(serde_json::from_str::<Device>(&line).map_err(|e| e.to_string())?);
            } else {
                steps.push(serde_json::from_str::<StepReading>(&line).map_err(|e| e.to_string())?);
            }
            Ok(())
        });
        if let Err(error) = read {
            fault.get_or_insert(format!("its child process wrote what cannot be read: {error}"));
        }
    }
    let status = child.wait().map_err(|e| format!("its child process is lost: {e}"))?;
    if let Some(fault) = fault {
        return Err(fault);
    }
    match device {
        Some(device) if steps.len() == Step::ALL.len() => Ok((device, steps)),
        _ => Err(format!(
            "its child process ended early ({status}); its own message is above"
        )),
    }
}
