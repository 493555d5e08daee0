//! The sampler: asks every source once a tick, each on a thread of its own and with its own deadline, and puts what came
//! together as one [`Sample`]. A source that stalls delays one tick by its deadline and no other: from then on the last
//! answer stands with its age until the source comes back (AC-17).
//!
//! Ticks that came too late, and samples that nobody took, are counted in [`Sample::lost`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};

use crate::clock::{Clock, Moment};
use crate::reading::{Reading, WhyKind};
use crate::sample::{DeviceSample, OwnCost, Sample};
use crate::source::host::HostSource;
use crate::source::processes::container::in_nested_namespace;
use crate::source::processes::{DeviceSurvey, ProcessTable, TableReader};
use crate::source::{DeviceIdentity, DeviceMonitor};

mod counters;
mod device;
mod host;
mod pacer;
mod station;

use counters::{CounterAnswer, CounterQuestion, counter_reader};
pub use counters::{CounterSource, CounterSources, CountersRead};
use device::{DeviceAnswer, DeviceQuestion, DeviceReader};
use host::{HostAnswer, HostQuestion, HostReader};
pub use pacer::{LONGEST, SHORTEST};
use pacer::{Pacer, Tick};
use station::Station;

/// The default interval.
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(100);
/// Samples that may wait for the application before new ones are dropped and counted.
const QUEUE: usize = 64;
/// Longest time that a tick waits for a source.
const DEADLINE: Duration = Duration::from_millis(50);
/// A source's last answer stands for this long; then its figures are missing (the device's keep their age instead).
const KEPT_FOR: Duration = Duration::from_secs(2);
/// The process table is renewed this often.
const TABLE_EVERY: Duration = Duration::from_secs(1);

/// Which process is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This program, with its embedded allocator.
    Own,
    /// Another process.
    Process(u32),
}

impl Target {
    /// The PID whose memory is read.
    pub fn pid(self) -> u32 {
        match self {
            Target::Own => std::process::id(),
            Target::Process(pid) => pid,
        }
    }
}

/// What a sampler is made of.
pub struct Plan {
    /// Time between ticks, within [`SHORTEST`] and [`LONGEST`].
    pub interval: Duration,
    /// The process to watch first.
    pub target: Target,
    /// The device to show first, by the monitor's index.
    pub device: u32,
    /// The devices' monitor.
    pub monitor: Box<dyn DeviceMonitor>,
    /// Makes counter sources.
    pub counters: CounterSources,
    /// Where /proc is.
    pub proc_root: PathBuf,
}

/// What may be changed while the sampler runs.
#[derive(Clone, Copy, Debug)]
enum Order {
    Interval(Duration),
    Target(Target),
    Device(u32),
    Table(bool),
    Now,
}

/// Changes a running sampler. May be cloned; orders to a sampler that ended do nothing.
#[derive(Clone, Debug)]
pub struct SamplerControl(mpsc::UnboundedSender<Order>);

impl SamplerControl {
    /// Another interval, clamped to [`SHORTEST`] and [`LONGEST`].
    pub fn set_interval(&self, interval: Duration) {
        self.send(Order::Interval(interval));
    }

    /// Another process.
    pub fn set_target(&self, target: Target) {
        self.send(Order::Target(target));
    }

    /// Another device, by the monitor's index.
    pub fn set_device(&self, index: u32) {
        self.send(Order::Device(index));
    }

    /// Whether the process table is collected (once a second) at all.
    pub fn set_table(&self, on: bool) {
        self.send(Order::Table(on));
    }

    /// One sample more, at once: after an action, its effect is on the screen before the next tick.
    pub fn sample_now(&self) {
        self.send(Order::Now);
    }

    fn send(&self, order: Order) {
        // A sampler that has ended has nothing to change.
        let _ = self.0.send(order);
    }
}

/// The running sampler: dropping `samples` ends it.
#[derive(Debug)]
pub struct SamplerHandle {
    /// Every sample, oldest first.
    pub samples: mpsc::Receiver<Sample>,
    /// The newest process table; `None` until the first one.
    pub table: watch::Receiver<Option<Arc<ProcessTable>>>,
    /// Changes it.
    pub control: SamplerControl,
}

/// The sampler's task.
pub struct Sampler {
    clock: Arc<dyn Clock>,
    pacer: Pacer,
    target: Target,
    choice: u64,
    device: u32,
    table_on: bool,
    table_at: Option<Moment>,
    done: Arc<Notify>,
    host: Station<HostQuestion, HostAnswer>,
    monitor: Station<DeviceQuestion, DeviceAnswer>,
    counters: Station<CounterQuestion, CounterAnswer>,
    tables: Station<(Moment, Vec<DeviceSurvey>, u32), ProcessTable>,
    last: Last,
    lost: u32,
    nested: bool,
}

/// The newest answer of each source.
#[derive(Debug, Default)]
struct Last {
    host: Option<HostAnswer>,
    device: Option<DeviceAnswer>,
    counters: Option<CounterAnswer>,
}

impl Sampler {
    /// Starts the sources' threads and the sampling task on the current tokio runtime. Fails if a thread cannot be made.
    pub fn spawn(plan: Plan, clock: Arc<dyn Clock>) -> std::io::Result<SamplerHandle> {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (out, samples) = mpsc::channel(QUEUE);
        let (tables, table) = watch::channel(None);
        let task = Sampler::new(plan, clock)?;
        tokio::spawn(task.run(inbox, out, tables));
        Ok(SamplerHandle {
            samples,
            table,
            control: SamplerControl(orders),
        })
    }

    fn new(plan: Plan, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let done = Arc::new(Notify::new());
        let mut host = HostReader::new(HostSource::new(&plan.proc_root), clock.clone());
        let mut reader = DeviceReader::new(plan.monitor, clock.clone());
        let mut table = TableReader::new(HostSource::new(&plan.proc_root));
        let counters = counter_reader(plan.counters, clock.clone());
        Ok(Sampler {
            pacer: Pacer::new(plan.interval, clock.now()),
            target: plan.target,
            choice: 0,
            device: plan.device,
            table_on: false,
            table_at: None,
            host: Station::start("host", done.clone(), move |question| host.read(question))?,
            monitor: Station::start("device", done.clone(), move |question| reader.read(question))?,
            counters: Station::start("counters", done.clone(), counters)?,
            tables: Station::start(
                "processes",
                done.clone(),
                move |(at, surveys, watched): (Moment, Vec<_>, u32)| {
                    table.read(at, &surveys, &[watched, std::process::id()])
                },
            )?,
            done,
            clock,
            last: Last::default(),
            lost: 0,
            nested: in_nested_namespace(&plan.proc_root),
        })
    }

    async fn run(
        mut self,
        mut inbox: mpsc::UnboundedReceiver<Order>,
        out: mpsc::Sender<Sample>,
        tables: watch::Sender<Option<Arc<ProcessTable>>>,
    ) {
        let mut controlled = true;
        loop {
            tokio::select! {
                biased;
                () = out.closed() => return,
                order = inbox.recv(), if controlled => match order {
                    Some(Order::Now) => {
                        let none = Tick { late_by: Duration::ZERO, lost: 0 };
                        let sample = self.sample(self.clock.now(), none).await;
                        self.hand_over(sample, &out);
                    }
                    Some(order) => self.obey(order),
                    // All controls are gone; the samples go on.
                    None => controlled = false,
                },
                () = tokio::time::sleep(self.pacer.wait(self.clock.now())) => {
                    let now = self.clock.now();
                    let tick = self.pacer.tick(now);
                    let sample = self.sample(now, tick).await;
                    self.hand_over(sample, &out);
                    if let Some(table) = self.tables.take() {
                        tables.send_replace(Some(Arc::new(table)));
                    }
                }
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Interval(interval) => self.pacer.set_interval(interval, self.clock.now()),
            Order::Target(target) => {
                self.target = target;
                self.choice += 1;
            }
            Order::Device(index) => self.device = index,
            Order::Table(on) => self.table_on = on,
            Order::Now => {}
        }
    }

    /// Asks all sources, waits for those that were free, and puts the sample of this moment together.
    async fn sample(&mut self, at: Moment, tick: Tick) -> Sample {
        let survey = self.table_on && self.table_at.is_none_or(|last| at.since(last) >= TABLE_EVERY);
        if survey {
            self.table_at = Some(at);
        }
        let free = [
            self.host.ask(self.host_question()),
            self.monitor.ask(DeviceQuestion {
                index: self.device,
                survey,
            }),
            self.counters.ask(CounterQuestion {
                target: self.target,
                choice: self.choice,
                shown: self.shown(),
            }),
        ];
        self.wait_for(free).await;
        self.collect(at);
        Sample {
            at,
            late_by: tick.late_by,
            lost: tick.lost.saturating_add(std::mem::take(&mut self.lost)),
            interval: self.pacer.interval(),
            pid: self.target.pid(),
            host: self.host_memory(at),
            ceiling: self.of_host(|h| h.ceiling.clone()),
            device: self.device_sample(),
            counters: self.counters_read(at).counters,
            counters_stale: self.counters_read(at).stale,
            cuda_index: self.counters_read(at).cuda_index,
            nested: self.nested,
            own: self.last.host.as_ref().map_or_else(OwnCost::default, |h| h.own),
        }
    }

    /// Waits until the sources that took their question have answered, no longer than the deadline. A source that was
    /// still busy with an older question is not waited for.
    async fn wait_for(&self, [host, monitor, counters]: [bool; 3]) {
        let deadline = tokio::time::sleep(DEADLINE.min(self.pacer.interval() / 2));
        tokio::pin!(deadline);
        loop {
            let open = (host && !self.host.is_free())
                || (monitor && !self.monitor.is_free())
                || (counters && !self.counters.is_free());
            if !open {
                return;
            }
            tokio::select! {
                () = self.done.notified() => {}
                () = &mut deadline => return,
            }
        }
    }

    /// Takes the answers that are there; those to questions about another process or device are left out.
    fn collect(&mut self, now: Moment) {
        if let Some(answer) = self.host.take() {
            self.last.host = Some(answer);
        }
        if let Some(mut answer) = self.monitor.take() {
            if let Some(survey) = answer.survey.take() {
                self.tables.ask((now, survey, self.target.pid()));
            }
            self.last.device = Some(answer);
        }
        if let Some(answer) = self.counters.take() {
            self.last.counters = Some(answer);
        }
        let (question, target, device) = (self.host_question(), self.target, self.device);
        self.last.host.take_if(|a| a.question != question);
        self.last.device.take_if(|a| a.index != device);
        let choice = self.choice;
        self.last.counters.take_if(|a| (a.target, a.choice) != (target, choice));
    }

    fn host_question(&self) -> HostQuestion {
        HostQuestion {
            pid: self.target.pid(),
            choice: self.choice,
        }
    }

    /// Who the shown device is, as far as that was read.
    fn shown(&self) -> Option<DeviceIdentity> {
        self.last.device.as_ref()?.sample.identity.value().cloned()
    }

    fn of_host<T>(&self, part: impl FnOnce(&HostAnswer) -> Reading<T>) -> Reading<T> {
        self.last.host.as_ref().map_or_else(Reading::not_yet, part)
    }

    fn host_memory(&self, now: Moment) -> Reading<crate::source::HostMemory> {
        self.of_host(|h| {
            if now.since(h.at) > KEPT_FOR {
                late("/proc", now.since(h.at))
            } else {
                h.memory.clone()
            }
        })
    }

    fn device_sample(&self) -> Arc<DeviceSample> {
        self.last
            .device
            .as_ref()
            .map_or_else(|| Arc::new(DeviceSample::not_yet()), |a| a.sample.clone())
    }

    /// The counters, marked stale when they are of an earlier tick.
    fn counters_read(&self, now: Moment) -> CountersRead {
        let Some(answer) = &self.last.counters else {
            return CountersRead {
                counters: Reading::not_yet(),
                stale: false,
                cuda_index: None,
            };
        };
        if now.since(answer.at) > KEPT_FOR {
            return CountersRead {
                counters: late("the allocator's counters", now.since(answer.at)),
                stale: true,
                cuda_index: None,
            };
        }
        CountersRead {
            counters: answer.read.counters.clone(),
            stale: answer.read.stale || answer.at < now,
            cuda_index: answer.read.cuda_index,
        }
    }

    /// Gives the sample away; if nobody takes it, the next one says so.
    fn hand_over(&mut self, sample: Sample, out: &mpsc::Sender<Sample>) {
        if let Err(mpsc::error::TrySendError::Full(sample)) = out.try_send(sample) {
            self.lost = sample.lost.saturating_add(1);
        }
    }
}

/// A source that has not answered for too long.
fn late<T>(what: &str, age: Duration) -> Reading<T> {
    Reading::missing(WhyKind::Late, format!("{what} did not answer for {} s", age.as_secs()))
}
