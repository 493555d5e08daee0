//! The allocator's configuration: what PYTORCH_CUDA_ALLOC_CONF says (allocator-spec 1.4 to 1.7).

mod parse;
mod roundup;
mod tokens;
mod unknown;

use super::rules::Rules;
use super::size::LARGE_SEGMENT;
pub use parse::{ConfigError, Origin};

/// Every setting that the embedded allocator obeys, and the ones it only echoes.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `max_split_size_mb` in bytes; `None` = unlimited.
    pub max_split_size: Option<u64>,
    /// `max_non_split_rounding_mb` in bytes; `None` = the large segment size.
    pub max_non_split_rounding: Option<u64>,
    /// `large_segment_size_mb` in bytes.
    pub large_segment_size: u64,
    /// `garbage_collection_threshold`; 0 = off.
    pub gc_threshold: f64,
    /// `roundup_power2_divisions`: entry k holds for sizes in [2^k MiB, 2^(k+1) MiB), the first also below, the last
    /// also above; 0 = plain rounding.
    pub roundup: [u64; 16],
    /// `roundup_bypass_threshold_mb` in bytes (2.0 only).
    pub roundup_bypass: Option<u64>,
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// `expandable_segments_reserve` (2.15): addresses to reserve; `None` = 9/8 of the device.
    pub expandable_reserve: Option<Reserve>,
    /// `per_process_memory_fraction`; `None` = not given.
    pub memory_fraction: Option<f64>,
    /// `throw_on_cudamalloc_oom` (2.13 and later).
    pub throw_on_oom: bool,
    /// Settings of other parts that a snapshot repeats.
    pub echo: Echo,
    /// The settings as they were last given.
    pub text: String,
    /// What was accepted without effect here, or only because PyTorch does not look: for the screen.
    pub notes: Vec<String>,
}

/// How many addresses an expandable segment reserves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reserve {
    /// A fraction of the device's memory.
    Fraction(f64),
    /// Bytes.
    Bytes(u64),
}

/// Settings that have no effect on a single-threaded allocator of device memory, but are part of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// `pinned_num_register_threads`.
    pub pinned_num_register_threads: u64,
    /// `release_lock_on_cudamalloc`.
    pub release_lock_on_cudamalloc: bool,
    /// `pinned_use_cuda_host_register`.
    pub pinned_use_cuda_host_register: bool,
    /// `graph_capture_record_stream_reuse`.
    pub graph_capture_record_stream_reuse: bool,
}

impl Default for Echo {
    fn default() -> Self {
        Echo {
            pinned_num_register_threads: 1,
            release_lock_on_cudamalloc: false,
            pinned_use_cuda_host_register: false,
            graph_capture_record_stream_reuse: false,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_split_size: None,
            max_non_split_rounding: None,
            large_segment_size: LARGE_SEGMENT,
            gc_threshold: 0.0,
            roundup: [0; 16],
            roundup_bypass: None,
            expandable_segments: false,
            expandable_reserve: None,
            memory_fraction: None,
            throw_on_oom: false,
            echo: Echo::default(),
            text: String::new(),
            notes: Vec::new(),
        }
    }
}

impl Config {
    /// The split limit as the comparisons use it: unlimited is the largest size.
    pub fn split_limit(&self) -> u64 {
        self.max_split_size.unwrap_or(u64::MAX)
    }

    /// By how much a block of at least the split limit may exceed a request (allocator-spec 2.2, rule 5).
    pub fn non_split_rounding(&self) -> u64 {
        self.max_non_split_rounding.unwrap_or(self.large_segment_size)
    }

    /// Reads the settings of a starting process.
    ///
    /// # Errors
    /// PyTorch's own text for that release, and what was probably meant.
    pub fn parse(text: &str, rules: &Rules) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        config.apply(text, rules, Origin::Environment).map(|()| config)
    }

    /// The configuration that the environment gives, and the variable it came from. `lookup` answers for one variable.
    /// The first variable that is set wins, even if it is empty; to 2.9 only the CUDA name is read (spec 1.4).
    pub fn from_environment(
        lookup: impl Fn(&str) -> Option<String>,
        rules: &Rules,
    ) -> Result<(Config, Option<&'static str>), ConfigError> {
        const NAMES: [&str; 3] = [
            "PYTORCH_CUDA_ALLOC_CONF",
            "PYTORCH_HIP_ALLOC_CONF",
            "PYTORCH_ALLOC_CONF",
        ];
        let names = if rules.generic_config { &NAMES[..] } else { &NAMES[..1] };
        let Some((name, text)) = names.iter().find_map(|n| lookup(n).map(|text| (*n, text))) else {
            return Ok((Config::default(), None));
        };
        let mut config = Config::parse(&text, rules)?;
        for other in NAMES
            .iter()
            .filter(|n| **n != name && lookup(n).is_some_and(|t| !t.is_empty()))
        {
            config.notes.push(format!("{other} is ignored: {name} is set"));
        }
        Ok((config, Some(name)))
    }

    /// Applies settings at run time or start. First split limits, round-up table and gc threshold fall back to their
    /// defaults, as PyTorch does it; the others stay. On an error what came before it is applied.
    pub fn apply(&mut self, text: &str, rules: &Rules, origin: Origin) -> Result<(), ConfigError> {
        text.clone_into(&mut self.text);
        self.notes.clear();
        self.max_split_size = None;
        self.max_non_split_rounding = None;
        self.roundup = [0; 16];
        self.roundup_bypass = None;
        self.gc_threshold = 0.0;
        parse::apply(self, text, rules, origin)
    }
}

#[cfg(test)]
mod tests;
