//! From what was typed to what is done, and the exit code.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use super::{Backend, Cli, Format, Options, Task, parse};
use crate::allocator::Rules;
use crate::attach::ProcRoot;
use crate::once;
use crate::reading::Reading;
use crate::source::DeviceMonitor;
use crate::source::printable::printable;

/// Something was typed or asked for that cannot be done.
const USAGE: u8 = 2;
/// Longest error that is printed, in characters.
const LONGEST_ERROR: usize = 4_000;

/// What the parser has to say: help and version as they are, an error without what acts on a terminal, because it repeats
/// what was typed, and names of files may be that.
pub fn say(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    for line in error.render().to_string().lines() {
        let line = printable(line.as_bytes(), LONGEST_ERROR);
        let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    }
    ExitCode::from(USAGE)
}

/// Runs the program and returns its exit code.
pub fn run(cli: Cli) -> ExitCode {
    crate::log::start();
    let Cli { command, options } = cli;
    let result = super::check::check(command.as_ref(), &options)
        .map_err(anyhow::Error::msg)
        .and_then(|()| obey(command, &options));
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Names of files and words of others may be part of it.
            let text = printable(format!("alloctop: {error:#}").as_bytes(), LONGEST_ERROR);
            let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
            ExitCode::from(USAGE)
        }
    }
}

fn obey(command: Option<Task>, options: &Options) -> anyhow::Result<u8> {
    match command {
        Some(Task::Keys) => print(crate::app::action::markdown().as_bytes()),
        Some(Task::Experiment { format }) => experiment(options, format),
        Some(Task::ExperimentChild { options: text }) => experiment_child(options, &text),
        Some(Task::Parity { files, format }) => parity(options, &files, format),
        Some(Task::Doctor { format }) => doctor(options, format),
        None if options.once || options.json => look(options),
        None => dashboard(options),
    }
}

/// `--format json` and `--json` are the same.
fn is_json(options: &Options, format: Format) -> bool {
    options.json || format == Format::Json
}

/// Writes to standard output; a closed pipe is a quiet end, as for every filter.
fn print(bytes: &[u8]) -> anyhow::Result<u8> {
    match io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(0),
    }
}

fn spec(options: &Options) -> anyhow::Result<crate::driver::sim::SimSpec> {
    parse::sim_spec(&options.sim).map_err(anyhow::Error::msg)
}

fn dashboard(options: &Options) -> anyhow::Result<u8> {
    if !io::stdout().is_terminal() {
        anyhow::bail!("standard output is no terminal: use --once for text or --json for one document");
    }
    let spec = spec(options)?;
    if let Some(pid) = options.pid.first() {
        crate::boot::check_process(&ProcRoot::default(), *pid).map_err(anyhow::Error::msg)?;
    }
    // Bad settings are said before the screen is taken.
    let rules = options
        .torch
        .as_deref()
        .map_or_else(|| Ok(Rules::default()), Rules::of)?;
    let conf = options.alloc_conf.clone().unwrap_or_else(|| environment_conf(&rules));
    let setup = crate::worker::Setup::read(&conf, options.torch.as_deref())?;
    crate::app::run::run(options, spec, setup)
}

fn look(options: &Options) -> anyhow::Result<u8> {
    let mut monitor = crate::boot::monitor(options, &spec(options)?);
    let request = once::Request {
        pids: options.pid.clone(),
        user: options.user.clone(),
        devices: wanted_devices(monitor.as_mut(), options)?,
    };
    let document = once::look(monitor.as_mut(), &ProcRoot::default(), &request);
    let mut out = Vec::new();
    if options.json {
        once::write_json(&document, &mut out)?;
    } else {
        once::text::write(&document, &mut out)?;
    }
    print(&out)?;
    Ok(once::status(&document, &request))
}

fn wanted_devices(monitor: &mut dyn DeviceMonitor, options: &Options) -> anyhow::Result<Option<Vec<u32>>> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    match monitor.devices() {
        Reading::Is(devices) => {
            let chosen = crate::boot::select(&devices, &options.gpu, visible.as_deref()).map_err(anyhow::Error::msg)?;
            Ok(Some(chosen.iter().map(|d| d.index).collect()))
        }
        Reading::Missing(why) if options.backend == Backend::Cuda => anyhow::bail!("{}", crate::boot::no_card(&why)),
        Reading::Missing(why) => match options.gpu.first() {
            Some(gpu) => anyhow::bail!("--gpu {gpu}: there is no GPU here: {why}"),
            None => Ok(None),
        },
    }
}

fn experiment(options: &Options, format: Format) -> anyhow::Result<u8> {
    use crate::driver::cuda::CudaDevice;
    use crate::experiment::{Backend, ExperimentOptions};
    // Bad settings are said before anything is started.
    let conf = options.alloc_conf.clone().unwrap_or_default();
    crate::worker::Setup::read(&conf, options.torch.as_deref())?;
    let found = crate::boot::find(
        options,
        &spec(options)?,
        std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(),
    )
    .map_err(anyhow::Error::msg)?;
    if let Some(note) = &found.note {
        eprintln!("{note}");
    }
    let backend = match found.backend {
        Some(crate::worker::BackendChoice::Cuda(CudaDevice::Uuid(uuid))) => Backend::Cuda(uuid),
        _ => Backend::Sim,
    };
    let asked = ExperimentOptions {
        backend,
        shape: options.shape.clone(),
        dtype: options.dtype,
        format: if is_json(options, format) {
            crate::experiment::Format::Json
        } else {
            crate::experiment::Format::Table
        },
        budget: options.budget,
        torch: options.torch.clone(),
        conf,
        sim: options.sim.clone(),
    };
    let program = std::env::current_exe()?;
    let mut out = Vec::new();
    let code = crate::experiment::run(&asked, &program, &mut out, &mut io::stderr())?;
    print(&out)?;
    Ok(code)
}

fn experiment_child(options: &Options, text: &str) -> anyhow::Result<u8> {
    let path = options.nvml.clone();
    let monitor: crate::experiment::MonitorSource = Box::new(move || {
        crate::source::nvml::Nvml::open(path.as_deref()).map(|nvml| Box::new(nvml) as Box<dyn DeviceMonitor>)
    });
    Ok(crate::experiment::child(text, monitor, &mut io::stdout())?)
}

fn parity(options: &Options, files: &[std::path::PathBuf], format: Format) -> anyhow::Result<u8> {
    let rules = options.torch.as_deref().map(crate::allocator::Rules::of).transpose()?;
    let format = if is_json(options, format) {
        crate::parity::Format::Json
    } else {
        crate::parity::Format::Table
    };
    let mut out = Vec::new();
    let equal = crate::parity::run(files, format, rules, &mut out);
    print(&out)?;
    Ok(u8::from(!equal?))
}

fn doctor(options: &Options, format: Format) -> anyhow::Result<u8> {
    let root = ProcRoot::default();
    let torch = |pid: u32| {
        crate::attach::Attached::find(&root, pid).map(|attached| {
            let library = printable(attached.library().as_os_str().as_encoded_bytes(), 200);
            format!(
                "{} by {} ({})",
                library,
                attached.route().describe(),
                attached.describe_layout()
            )
        })
    };
    let report = crate::doctor::examine(&crate::doctor::Scene::here(options.nvml.clone(), &torch));
    let text = if is_json(options, format) {
        format!("{:#}\n", report.json())
    } else {
        report.text()
    };
    print(text.as_bytes())?;
    Ok(report.exit_code())
}

/// The configuration that the environment gives: PyTorch takes the first of its variables that is set, even if it is empty;
/// to 2.9 only the CUDA name (allocator-spec 1.4).
fn environment_conf(rules: &Rules) -> String {
    let names = [
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
    ];
    let read = if rules.generic_config { &names[..] } else { &names[..1] };
    read.iter()
        .find_map(|name| std::env::var(name).ok())
        .unwrap_or_default()
}
