//! The eight steps and what is read after each.

use serde::{Deserialize, Serialize};

/// A step of the experiment, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Nothing has been done.
    Start,
    /// `torch.zeros(shape)` on the host.
    CpuZeros,
    /// `del`.
    CpuDel,
    /// One 512-byte tensor on the device, written, deleted and flushed: context and kernels are loaded here.
    Context,
    /// `torch.zeros(shape, device="cuda")`.
    GpuZeros,
    /// `del`.
    GpuDel,
    /// `torch.cuda.empty_cache()`.
    Flush,
    /// Once more: no byte moves.
    FlushAgain,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Step; 8] = [
        Step::Start,
        Step::CpuZeros,
        Step::CpuDel,
        Step::Context,
        Step::GpuZeros,
        Step::GpuDel,
        Step::Flush,
        Step::FlushAgain,
    ];

    /// Its name in JSON and in the table.
    pub fn name(self) -> &'static str {
        match self {
            Step::Start => "start",
            Step::CpuZeros => "cpu_zeros",
            Step::CpuDel => "cpu_del",
            Step::Context => "context",
            Step::GpuZeros => "gpu_zeros",
            Step::GpuDel => "gpu_del",
            Step::Flush => "flush",
            Step::FlushAgain => "flush_again",
        }
    }

    /// What PyTorch's documentation says of it (notes on CUDA semantics, "Memory management").
    pub fn documented(self) -> &'static str {
        match self {
            Step::Start => "importing allocates nothing on the device",
            Step::CpuZeros => "a CPU tensor raises the process's memory by its size and touches no device",
            Step::CpuDel => "a large CPU tensor goes back to the system at once",
            Step::Context => "the first use loads a context and kernels: memory outside the allocator",
            Step::GpuZeros => {
                "a new tensor raises allocated by its block, reserved and the driver's figure by its segment"
            }
            Step::GpuDel => {
                "deleting lowers allocated; the segment stays cached: reserved and the driver's figure stay"
            }
            Step::Flush => "empty_cache() gives unused cached segments back: reserved and the driver's figure fall",
            Step::FlushAgain => "with nothing cached, empty_cache() moves nothing",
        }
    }
}

/// What the steps ran on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The product's name.
    pub name: String,
    /// It is a simulated one.
    pub simulated: bool,
    /// The PyTorch release whose rules held.
    pub torch: String,
    /// The allocator's configuration; empty is the default.
    pub conf: String,
    /// What is to be said of both: a release that was never examined, settings without effect.
    pub notes: Vec<String>,
}

/// What was read after a step, all in bytes; `None` is unknown, with its reason in `missing`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReading {
    /// Which step.
    pub step: Step,
    /// Resident set of the process.
    pub rss: Option<u64>,
    /// What the driver charges to the process.
    pub process_vram: Option<u64>,
    /// Used on the whole device, without the driver's own part.
    pub device_used: Option<u64>,
    /// The allocator's counters.
    pub allocated: Option<u64>,
    /// Bytes held from the driver.
    pub reserved: Option<u64>,
    /// The highest `allocated` so far.
    pub allocated_peak: Option<u64>,
    /// The highest `reserved` so far.
    pub reserved_peak: Option<u64>,
    /// What the step's actions took, in microseconds, the making of the context included.
    pub cost_us: Option<f64>,
    /// Why the step was not done.
    pub failed: Option<String>,
    /// Why figures are unknown.
    pub missing: Vec<String>,
}
