//! The child process: does the steps and writes what it reads, without any expectation.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::probe::Probe;
use super::step::{Device, Step};
use super::{Backend, ExperimentOptions, SOMETHING_UNKNOWN};
use crate::budget::Budget;
use crate::cli::parse;
use crate::clock::{Clock, RealClock};
use crate::driver::cuda::CudaDevice;
use crate::driver::sim::SimDevice;
use crate::reading::Reading;
use crate::source::host::HostSource;
use crate::source::{DeviceIdentity, DeviceMonitor};
use crate::worker::{BackendChoice, Command, Dtype, Outcome, Setup, Shape, Worker};

/// Opens the monitor of real devices, when the backend needs it.
pub type MonitorSource = Box<dyn FnOnce() -> Reading<Box<dyn DeviceMonitor>>>;

/// What the steps run on, and who reads the device.
pub struct Bench {
    /// The driver.
    pub backend: BackendChoice,
    /// Who reads the device.
    pub monitor: Box<dyn DeviceMonitor>,
    /// Which of the monitor's devices.
    pub device: DeviceIdentity,
}

/// The child process's whole work: `text` is what the parent gave as its argument. Returns the exit code.
pub fn child(text: &str, monitor: MonitorSource, out: &mut dyn Write) -> std::io::Result<u8> {
    let ready = serde_json::from_str::<ExperimentOptions>(text)
        .map_err(|e| format!("the options cannot be read: {e}"))
        .and_then(|options| Ok((bench(&options, monitor)?, options)));
    let ready = ready.and_then(|(bench, options)| {
        let setup = Setup::read(&options.conf, options.torch.as_deref()).map_err(|e| e.to_string())?;
        Ok((bench, options, setup))
    });
    match ready {
        Ok((bench, options, setup)) => {
            steps_on(bench, setup, &options, out)?;
            Ok(0)
        }
        Err(why) => {
            eprintln!("{why}");
            Ok(SOMETHING_UNKNOWN)
        }
    }
}

fn bench(options: &ExperimentOptions, monitor: MonitorSource) -> Result<Bench, String> {
    let uuid = match &options.backend {
        Backend::Sim => {
            let sim = SimDevice::new(parse::sim_spec(&options.sim)?);
            let mut monitor: Box<dyn DeviceMonitor> = Box::new(sim.monitor());
            let device = first(monitor.as_mut(), |_| true)?;
            return Ok(Bench {
                backend: BackendChoice::Sim(sim),
                monitor,
                device,
            });
        }
        Backend::Cuda(uuid) => uuid,
    };
    let mut monitor = match monitor() {
        Reading::Is(monitor) => monitor,
        Reading::Missing(why) => return Err(why.text.into_owned()),
    };
    let device = first(monitor.as_mut(), |d| d.uuid.eq_ignore_ascii_case(uuid))?;
    let backend = BackendChoice::Cuda(CudaDevice::Uuid(device.uuid.clone()));
    Ok(Bench {
        backend,
        monitor,
        device,
    })
}

fn first(monitor: &mut dyn DeviceMonitor, is: impl Fn(&DeviceIdentity) -> bool) -> Result<DeviceIdentity, String> {
    match monitor.devices() {
        Reading::Is(devices) => devices
            .into_iter()
            .find(is)
            .ok_or_else(|| "the monitor does not list this device; see its list with nvidia-smi -L".into()),
        Reading::Missing(why) => Err(why.text.into_owned()),
    }
}

/// Does the steps on `bench` and writes the device and each step's reading as a line of JSON.
pub fn steps_on(bench: Bench, setup: Setup, options: &ExperimentOptions, out: &mut dyn Write) -> std::io::Result<()> {
    let device = Device {
        name: bench.device.name.clone(),
        simulated: bench.device.simulated,
        torch: setup.torch(),
        conf: setup.conf.clone(),
        notes: setup.notes.clone(),
    };
    writeln!(out, "{}", serde_json::to_string(&device)?)?;
    let me = std::process::id();
    let budget = Budget::new(options.budget, Box::new(move || HostSource::new("/proc").ceiling(me)));
    let clock: Arc<dyn Clock> = Arc::new(RealClock::start());
    let mut worker = Worker::start(bench.backend, setup, budget, clock, Box::new(|| {}));
    let mut probe = Probe::new(bench.monitor, bench.device.index);
    for step in Step::ALL {
        let (cost_us, failed) = act(&mut worker, step, options);
        let reading = probe.read(&worker.latest(), step, cost_us, failed);
        writeln!(out, "{}", serde_json::to_string(&reading)?)?;
        out.flush()?;
    }
    Ok(())
}

/// Does the actions of a step: what they took in microseconds, and why one was refused.
fn act(worker: &mut Worker, step: Step, options: &ExperimentOptions) -> (Option<f64>, Option<String>) {
    let (shape, dtype) = (options.shape.clone(), options.dtype);
    let commands = match step {
        Step::Start => vec![],
        Step::CpuZeros => vec![Command::AllocCpu { shape, dtype }],
        Step::CpuDel | Step::GpuDel => vec![Command::DeleteAll],
        Step::Context => {
            let Ok(first) = Shape::new(vec![super::judge::FIRST_TENSOR]) else {
                return (None, Some("no shape for the first tensor".into()));
            };
            let first = Command::AllocGpu {
                shape: first,
                dtype: Dtype::UInt8,
            };
            vec![first, Command::DeleteAll, Command::Flush]
        }
        Step::GpuZeros => vec![Command::AllocGpu { shape, dtype }],
        Step::Flush | Step::FlushAgain => vec![Command::Flush],
    };
    let mut took = Duration::ZERO;
    for command in commands {
        let Some(outcome) = run(worker, command) else {
            let why = worker
                .latest()
                .ended
                .as_deref()
                .unwrap_or("the allocator's thread has ended")
                .to_owned();
            return (None, Some(why));
        };
        took += outcome.took + outcome.first_use.map_or(Duration::ZERO, |c| c.took);
        if let Err(refusal) = outcome.result {
            return (None, Some(refusal.to_string()));
        }
    }
    (Some(took.as_nanos() as f64 / 1000.0), None)
}

fn run(worker: &mut Worker, command: Command) -> Option<Outcome> {
    worker.send(command);
    worker.outcomes.blocking_recv()
}
