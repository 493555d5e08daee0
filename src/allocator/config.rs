//! The allocator's configuration: what PYTORCH_CUDA_ALLOC_CONF says (allocator-spec 1.4 to 1.7).

use super::size::LARGE_SEGMENT;

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
    /// `per_process_memory_fraction`; `None` = not given.
    pub memory_fraction: Option<f64>,
    /// `throw_on_cudamalloc_oom` (2.13 and later).
    pub throw_on_oom: bool,
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
            memory_fraction: None,
            throw_on_oom: false,
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
}
