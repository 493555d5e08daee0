//! A tape of one minute: the experiment of every new user on the simulated device, with injected time. The allocator, the
//! device's books and the monitor are the real ones; host figures are made up.

use std::sync::Arc;
use std::time::Duration;

use alloctop::allocator::{Allocator, Settings};
use alloctop::app::{App, Event, Setup};
use alloctop::clock::Moment;
use alloctop::driver::StreamId;
use alloctop::driver::sim::{SimDevice, SimDriver, SimSpec};
use alloctop::reading::{Reading, WhyKind};
use alloctop::sample::history::History;
use alloctop::sample::{DeviceSample, OwnCost, Sample};
use alloctop::source::{DeviceMonitor, HostCeiling, HostMemory};
use alloctop::ui::Look;
use alloctop::units::{Bytes, GIB, MIB};
use alloctop::worker::{
    BlockKey, Command, ContextCost, Done, DriverCall, Dtype, LiveBlock, Outcome, Place, Refusal, Shape, State,
};

pub const PID: u32 = 4242;

/// The world of the tape.
pub struct Tape {
    pub app: App,
    device: SimDevice,
    allocator: Allocator<SimDriver>,
    blocks: Vec<LiveBlock>,
    host: u64,
    next: u64,
    now: Duration,
}

impl Tape {
    pub fn new(look: Look) -> Tape {
        let device = SimDevice::new(SimSpec::default());
        let setup = Setup {
            look,
            simulated: true,
            readonly: false,
            own_pid: PID,
            budget: Some(Bytes(4 * GIB)),
            folder: ".".into(),
        };
        Tape {
            app: App::new(setup, History::new(), None, &Shape::default(), Dtype::Float32),
            allocator: Allocator::new(device.driver(PID), Settings::default()),
            device,
            blocks: Vec::new(),
            host: 0,
            next: 1,
            now: Duration::ZERO,
        }
    }

    /// Samples every 100 ms for so many seconds.
    pub fn run(&mut self, seconds: f64) {
        for _ in 0..(seconds * 10.0).round() as u32 {
            self.now += Duration::from_millis(100);
            let sample = self.sample();
            self.app.update(Event::Sample(Box::new(sample)), Moment(self.now));
        }
    }

    fn sample(&mut self) -> Sample {
        let mut monitor = self.device.monitor();
        let rss = 9_600_000 + self.host;
        let at = Moment(self.now);
        Sample {
            at,
            late_by: Duration::ZERO,
            lost: 0,
            interval: Duration::from_millis(100),
            pid: PID,
            host: Reading::Is(HostMemory {
                rss: Bytes(rss),
                anon: Reading::Is(Bytes(rss - 5 * MIB)),
                file: Reading::Is(Bytes(5 * MIB)),
                shmem: Reading::Is(Bytes(0)),
                high_water: Reading::Is(Bytes(rss.max(809_600_000))),
                swap: Reading::Is(Bytes(0)),
            }),
            ceiling: Reading::Is(HostCeiling {
                cgroup_limit: Reading::missing(WhyKind::Absent, "no cgroup limits it"),
                cgroup_used: Reading::missing(WhyKind::Absent, "no cgroup limits it"),
                host_total: Reading::Is(Bytes(64 * GIB)),
                host_available: Reading::Is(Bytes(50 * GIB)),
            }),
            device: Arc::new(DeviceSample {
                at,
                took: Duration::from_micros(20),
                identity: monitor.devices().map(|d| d[0].clone()),
                memory: monitor.memory(0),
                processes: monitor.processes(0),
                moving: false,
                activity: monitor.activity(0),
                fleet: Reading::not_yet(),
            }),
            counters: Reading::Is(Arc::new(self.allocator.stats().clone())),
            counters_stale: false,
            cuda_index: None,
            nested: false,
            own: OwnCost {
                cpu_percent: Some(0.3),
                rss: Some(Bytes(9_600_000)),
            },
        }
    }

    fn answer(
        &mut self,
        command: Command,
        act: impl FnOnce(&mut Self) -> Result<Done, Refusal>,
        calls: Vec<DriverCall>,
    ) {
        let before = self.allocator.stats().clone();
        let first = self.device.ledger().of(PID).is_none();
        self.app.baseline = self.app.sample.as_ref().map_or([None; 4], |s| App::figures(s));
        let result = act(self);
        let made = first && self.device.ledger().of(PID).is_some();
        let outcome = Outcome {
            at: Moment(self.now),
            command,
            result,
            before,
            after: self.allocator.stats().clone(),
            took: calls.iter().map(|c| c.took).sum::<Duration>() + Duration::from_nanos(140),
            calls,
            events: Vec::new(),
            first_use: made.then_some(ContextCost {
                process: Some(Bytes(543_162_368)),
                took: Duration::from_millis(128),
            }),
        };
        let state = State {
            blocks: self.blocks.clone(),
            stats: self.allocator.stats().clone(),
            torch: "2.15".into(),
            ..State::default()
        };
        self.app
            .update(Event::Outcome(Box::new(outcome), Arc::new(state)), Moment(self.now));
    }

    fn block(&mut self, place: Place, block_bytes: u64, address: u64) -> Done {
        let key = BlockKey(self.next);
        self.next += 1;
        self.blocks.push(LiveBlock {
            key,
            place,
            shape: Shape::default(),
            dtype: Dtype::Float32,
            bytes: Bytes(800_000_000),
            block_bytes: Bytes(block_bytes),
            made: Moment(self.now),
            stream: StreamId(0),
            pending: false,
            address,
        });
        Done::Made {
            key,
            bytes: Bytes(800_000_000),
            block_bytes: Bytes(block_bytes),
            cached: false,
        }
    }

    pub fn gpu(&mut self) {
        let reserved = self.allocator.stats().reserved_bytes.all.current;
        let cached = reserved > self.allocator.stats().active_bytes.all.current;
        let calls = if cached {
            vec![]
        } else {
            vec![call("cuMemAlloc", 801_112_064, 224)]
        };
        let command = Command::AllocGpu {
            shape: Shape::default(),
            dtype: Dtype::Float32,
        };
        self.answer(
            command,
            |tape| {
                let address = tape.allocator.malloc(800_000_000, StreamId(0)).unwrap();
                let Done::Made {
                    key,
                    bytes,
                    block_bytes,
                    ..
                } = tape.block(Place::Gpu, 800_000_000, address)
                else {
                    unreachable!()
                };
                Ok(Done::Made {
                    key,
                    bytes,
                    block_bytes,
                    cached,
                })
            },
            calls,
        );
    }

    pub fn cpu(&mut self) {
        let command = Command::AllocCpu {
            shape: Shape::default(),
            dtype: Dtype::Float32,
        };
        self.answer(
            command,
            |tape| {
                tape.host += 800_000_000;
                Ok(tape.block(Place::Cpu, 800_000_000, 0))
            },
            vec![],
        );
    }

    pub fn delete(&mut self) {
        let block = self.blocks.pop().unwrap();
        self.answer(
            Command::Delete(block.key),
            |tape| {
                let gpu = block.place == Place::Gpu;
                if gpu {
                    tape.allocator.free(block.address).unwrap();
                } else {
                    tape.host -= 800_000_000;
                }
                let bytes = |yes| Bytes(if yes { 800_000_000 } else { 0 });
                Ok(Done::Deleted {
                    blocks: 1,
                    gpu: bytes(gpu),
                    cpu: bytes(!gpu),
                    pending: 0,
                })
            },
            vec![],
        );
    }

    pub fn flush(&mut self) {
        self.answer(
            Command::Flush,
            |tape| {
                let before = tape.allocator.stats().reserved_bytes.all.current;
                tape.allocator.empty_cache().unwrap();
                let after = tape.allocator.stats().reserved_bytes.all.current;
                Ok(Done::Flushed {
                    returned: Bytes((before - after) as u64),
                    kept: Bytes(after as u64),
                })
            },
            vec![call("cuMemFree", 801_112_064, 524)],
        );
    }

    /// The experiment, one minute long.
    pub fn experiment(&mut self) {
        self.run(8.0);
        self.cpu();
        self.run(8.0);
        self.delete();
        self.run(8.0);
        self.gpu();
        self.run(10.0);
        self.delete();
        self.run(12.0);
        self.flush();
        self.run(8.0);
        self.gpu();
        self.run(6.0);
    }
}

fn call(name: &'static str, size: u64, us: u64) -> DriverCall {
    DriverCall {
        name,
        size,
        took: Duration::from_micros(us),
        failed: false,
    }
}
