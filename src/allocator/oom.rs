//! The out-of-memory value and its sentence, release by release (allocator-spec 2.8, 10.2; users.md section 3).

use std::fmt;

use super::rules::{OomSentence, Release};

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomKind {
    /// Every step of the ladder failed.
    Exhausted,
    /// throw_on_cudamalloc_oom refused it before the driver was asked (2.13 and later).
    Rejected,
    /// 2^60 bytes or more.
    TooLarge,
}

/// A process on the same device, for the sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// Its process id; `None` for this process.
    pub pid: Option<u32>,
    /// Bytes that it uses on the device.
    pub bytes: u64,
}

/// Everything known about a failed request. `Display` gives the sentence of the release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// How it failed.
    pub kind: OomKind,
    /// Bytes as asked for.
    pub requested: u64,
    /// Bytes of the block.
    pub size: u64,
    /// Bytes of the segment: what the sentence calls "tried to allocate".
    pub segment_size: u64,
    /// The device's number.
    pub device: u32,
    /// The driver's free bytes; `None` when the driver was not asked.
    pub device_free: Option<u64>,
    /// The driver's total bytes.
    pub device_total: Option<u64>,
    /// The ceiling by memory fraction.
    pub allowed: Option<u64>,
    /// Bytes of live blocks.
    pub allocated: u64,
    /// Bytes held from the driver.
    pub reserved: u64,
    /// Bytes of free blocks in private pools.
    pub private_free: u64,
    /// Expandable segments were on.
    pub expandable: bool,
    /// Processes on the device, as NVML lists them; fill it in before showing the sentence. May stay empty.
    pub processes: Vec<ProcessUse>,
    /// Whose sentence it is.
    pub release: Release,
    /// Its shape.
    pub sentence: OomSentence,
}

/// PyTorch's own unit writer: units change above 1024, so that 1 MiB prints as `1024.00 KiB`.
pub fn format_size(bytes: u64) -> String {
    let n = bytes as f64;
    match bytes {
        0..=1_024 => format!("{bytes} bytes"),
        1_025..=1_048_576 => format!("{:.2} KiB", n / 1024.0),
        1_048_577..=1_073_741_824 => format!("{:.2} MiB", n / 1_048_576.0),
        _ => format!("{:.2} GiB", n / 1_073_741_824.0),
    }
}

impl OutOfMemory {
    /// False if the sentence of this release was never seen for this case and the nearest older one stands in: 2.15
    /// words its advice differently while expandable segments are on.
    pub fn text_is_exact(&self) -> bool {
        !(self.kind == OomKind::Exhausted && self.expandable && self.release >= Release { major: 2, minor: 15 })
    }

    fn brackets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CUDA out of memory. Tried to allocate {} (GPU {}; {} total capacity; {} already allocated; {} free; ",
            format_size(self.segment_size),
            self.device,
            known(self.device_total),
            format_size(self.allocated),
            known(self.device_free),
        )?;
        if let Some(allowed) = self.allowed {
            write!(f, "{} allowed; ", format_size(allowed))?;
        }
        write!(
            f,
            "{} reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to \
             avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
            format_size(self.reserved)
        )
    }

    fn clauses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capacity = if self.sentence == OomSentence::Capacty {
            "capacty"
        } else {
            "capacity"
        };
        let private = match self.sentence {
            OomSentence::PytorchOrg { private } => private,
            OomSentence::DocsPytorchOrg => true,
            OomSentence::Brackets | OomSentence::Capacty => false,
        };
        write!(
            f,
            "CUDA out of memory. Tried to allocate {}. GPU {} has a total {capacity} of {} of which {} is free. ",
            format_size(self.segment_size),
            self.device,
            known(self.device_total),
            known(self.device_free),
        )?;
        for process in &self.processes {
            match process.pid {
                None => write!(
                    f,
                    "Including non-PyTorch memory, this process has {} memory in use. ",
                    format_size(process.bytes)
                )?,
                Some(pid) => write!(f, "Process {pid} has {} memory in use. ", format_size(process.bytes))?,
            }
        }
        if let Some(allowed) = self.allowed {
            write!(f, "{} allowed; ", format_size(allowed))?;
        }
        // To 2.4 private pools are not told apart: their free bytes are reserved but unallocated.
        let in_private = if private { self.private_free } else { 0 };
        write!(
            f,
            "Of the allocated memory {} is allocated by PyTorch, ",
            format_size(self.allocated + in_private)
        )?;
        if in_private > 0 {
            write!(
                f,
                "with {} allocated in private pools (e.g., CUDA Graphs), ",
                format_size(in_private)
            )?;
        }
        let rest = self.reserved.saturating_sub(self.allocated).saturating_sub(in_private);
        write!(f, "and {} is reserved by PyTorch but unallocated. ", format_size(rest))
    }
}

fn known(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "an unknown amount".to_owned(), format_size)
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            OomKind::TooLarge => return f.write_str("CUDA out of memory. Tried to allocate more than 1EB memory."),
            OomKind::Rejected => {
                return write!(
                    f,
                    "CUDA out of memory. Allocation was preemptively rejected because it would exceed \
                     per_process_memory_fraction limit. Requested size: {}",
                    format_size(self.requested)
                );
            }
            OomKind::Exhausted => {}
        }
        let (advice, link) = match self.sentence {
            OomSentence::Brackets => return self.brackets(f),
            OomSentence::Capacty => ("max_split_size_mb", " and PYTORCH_CUDA_ALLOC_CONF"),
            OomSentence::PytorchOrg { .. } => (
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                "  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
            ),
            OomSentence::DocsPytorchOrg => (
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                "  (https://docs.pytorch.org/docs/stable/notes/cuda.html\
                 #optimizing-memory-usage-with-pytorch-cuda-alloc-conf)",
            ),
        };
        self.clauses(f)?;
        write!(
            f,
            "If reserved but unallocated memory is large try setting {advice} to avoid fragmentation.  See documentation \
             for Memory Management{link}"
        )
    }
}
