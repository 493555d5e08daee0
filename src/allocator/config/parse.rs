//! Key by key: values, their limits and PyTorch's own error texts (allocator-spec 1.5 to 1.7).

use super::super::rules::Rules;
use super::tokens::{float, split, unsigned};
use super::{Config, Reserve};

/// Where settings come from: an unknown key is reported in other words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An environment variable or `--alloc-conf`.
    Environment,
    /// A call at run time.
    RunTime,
}

/// Settings that PyTorch would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}{}", if meant.is_empty() { String::new() } else { format!(" ({meant})") })]
pub struct ConfigError {
    /// PyTorch's own text.
    pub text: String,
    /// What was probably meant, or what is allowed; may be empty.
    pub meant: String,
}

pub(super) fn error(text: impl Into<String>, meant: impl Into<String>) -> ConfigError {
    let printable = |s: String| s.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    ConfigError {
        text: printable(text.into()),
        meant: printable(meant.into()),
    }
}

const MIB: u64 = 1 << 20;

/// Keys that concern other parts, with the first minor release that takes them.
pub(super) const ELSEWHERE: [(&str, u32); 12] = [
    ("backend", 0),
    ("release_lock_on_cudamalloc", 2),
    ("release_lock_on_hipmalloc", 10),
    ("pinned_use_cuda_host_register", 2),
    ("pinned_use_hip_host_register", 10),
    ("pinned_num_register_threads", 2),
    ("pinned_use_background_threads", 6),
    ("graph_capture_record_stream_reuse", 10),
    ("pinned_reserve_segment_size_mb", 10),
    ("pinned_free_catch_all", 12),
    ("pinned_max_round_threshold_mb", 12),
    ("pinned_max_cached_size_mb", 12),
];

/// Keys that have an effect here, likewise.
pub(super) const HERE: [(&str, u32); 11] = [
    ("max_split_size_mb", 0),
    ("garbage_collection_threshold", 0),
    ("roundup_power2_divisions", 0),
    ("roundup_bypass_threshold_mb", 0),
    ("expandable_segments", 1),
    ("max_non_split_rounding_mb", 6),
    ("large_segment_size_mb", 10),
    ("per_process_memory_fraction", 10),
    ("throw_on_cudamalloc_oom", 12),
    ("expandable_segments_reserve", 14),
    ("expandable_segments_reserve_by_class", 14),
];

/// A walk over the tokens; `at` is the token being read.
pub(super) struct Parser<'a> {
    pub tokens: Vec<String>,
    pub at: usize,
    pub rules: &'a Rules,
    pub origin: Origin,
}

pub(super) fn apply(config: &mut Config, text: &str, rules: &Rules, origin: Origin) -> Result<(), ConfigError> {
    let mut parser = Parser {
        tokens: split(text),
        at: 0,
        rules,
        origin,
    };
    if rules.generic_config {
        parser.large_segment_first(config)?;
    }
    while parser.at < parser.tokens.len() {
        let key = parser.tokens[parser.at].clone();
        parser.key(config, &key)?;
        parser.at += 1;
        parser.separator(config, &key)?;
    }
    Ok(())
}

impl Parser<'_> {
    /// large_segment_size_mb counts before all other keys, wherever it stands: limits of others depend on it.
    fn large_segment_first(&mut self, config: &mut Config) -> Result<(), ConfigError> {
        for at in 0..self.tokens.len() {
            if self.tokens[at] == "large_segment_size_mb" {
                self.at = at;
                let mb = self.number(config)?;
                if mb <= 10 {
                    return Err(error(
                        "CachingAllocator option large_segment_size_mb must be > 10 MB",
                        "the default is 20",
                    ));
                }
                config.large_segment_size = mb.min(u64::MAX / MIB / 1024) * MIB;
            }
        }
        self.at = 0;
        Ok(())
    }

    fn known(&self, keys: &[(&'static str, u32)], key: &str) -> bool {
        let minor = if self.rules.release.major > 2 {
            u32::MAX
        } else {
            self.rules.release.minor
        };
        let found = keys.iter().any(|(name, since)| *name == key && *since <= minor);
        found && (key != "roundup_bypass_threshold_mb" || !self.rules.roundup_list)
    }

    fn key(&mut self, config: &mut Config, key: &str) -> Result<(), ConfigError> {
        if self.known(&ELSEWHERE, key) {
            return self.elsewhere(config, key);
        }
        if !self.known(&HERE, key) {
            return Err(self.unknown(key));
        }
        match key {
            "max_split_size_mb" => config.max_split_size = Some(self.at_least_large(config, key)?),
            "max_non_split_rounding_mb" => config.max_non_split_rounding = Some(self.at_least_large(config, key)?),
            "large_segment_size_mb" => drop(self.number(config)?),
            "garbage_collection_threshold" => config.gc_threshold = self.gc_threshold(config)?,
            "roundup_power2_divisions" => self.roundup(config)?,
            "roundup_bypass_threshold_mb" => {
                config.roundup_bypass = Some(self.number(config)?.min(u64::MAX / MIB) * MIB);
            }
            "expandable_segments" => config.expandable_segments = self.boolean(config, key)?,
            "per_process_memory_fraction" => {
                let fraction = self.float(config)?;
                if !(0.0..=1.0).contains(&fraction) {
                    return Err(error(
                        "per_process_memory_fraction is invalid, set it in [0.0, 1.0]",
                        "",
                    ));
                }
                config.memory_fraction = Some(fraction);
            }
            "throw_on_cudamalloc_oom" => config.throw_on_oom = self.boolean(config, key)?,
            "expandable_segments_reserve" => self.reserve(config)?,
            _ => {
                self.skip_value(config)?;
                config
                    .notes
                    .push(format!("{key} has no effect on the embedded allocator"));
            }
        }
        Ok(())
    }

    /// Keys of other parts: their own limits hold, and the screen names them.
    fn elsewhere(&mut self, config: &mut Config, key: &str) -> Result<(), ConfigError> {
        match key {
            "backend" => {
                let name = self.value(config)?;
                if name != "native" && name != "cudaMallocAsync" {
                    return Err(error(
                        "Unknown allocator backend, options are native and cudaMallocAsync",
                        "the embedded allocator is the native one",
                    ));
                }
                if name == "native" {
                    return Ok(());
                }
                if self.origin == Origin::RunTime {
                    return Err(error(
                        "Allocator backend parsed at runtime != allocator backend parsed at load time, \
                         cudaMallocAsync != native",
                        "",
                    ));
                }
            }
            "pinned_num_register_threads" => config.echo.pinned_num_register_threads = self.register_threads(config)?,
            "pinned_reserve_segment_size_mb" => {
                if self.number(config)? == 0 {
                    return Err(error("Pinned reserve segment size has to be greater than 0", ""));
                }
            }
            "pinned_max_round_threshold_mb" | "pinned_max_cached_size_mb" => drop(self.number(config)?),
            _ => {
                let on = self.boolean(config, key)?;
                match key {
                    "graph_capture_record_stream_reuse" => config.echo.graph_capture_record_stream_reuse = on,
                    "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => {
                        config.echo.release_lock_on_cudamalloc = on;
                    }
                    "pinned_use_cuda_host_register" | "pinned_use_hip_host_register" => {
                        config.echo.pinned_use_cuda_host_register = on;
                    }
                    _ => {}
                }
            }
        }
        config
            .notes
            .push(format!("{key} has no effect on the embedded allocator"));
        Ok(())
    }

    fn register_threads(&mut self, config: &mut Config) -> Result<u64, ConfigError> {
        let threads = self.number(config)?;
        if !threads.is_power_of_two() {
            return Err(error(
                format!("Number of register threads has to be power of 2, got {threads}"),
                "",
            ));
        }
        if threads > 128 {
            return Err(error(
                format!("Number of register threads should be less than or equal to 128, got {threads}"),
                "",
            ));
        }
        Ok(threads)
    }

    /// The next token as a value.
    pub(super) fn value(&mut self, config: &mut Config) -> Result<String, ConfigError> {
        let key = self.tokens[self.at].clone();
        self.at += 1;
        match self.tokens.get(self.at) {
            Some(token) if token == ":" => {}
            Some(_) if self.rules.generic_config => {
                config
                    .notes
                    .push(format!("{key}: PyTorch does not look at the colon; write {key}:value"));
            }
            Some(_) => return Err(error("Error parsing CachingAllocator settings, expected :", "")),
            None => return Err(self.missing(&key)),
        }
        self.at += 1;
        self.tokens.get(self.at).cloned().ok_or_else(|| self.missing(&key))
    }

    fn missing(&self, key: &str) -> ConfigError {
        let text = if self.rules.generic_config {
            "Index out of bounds in ConfigTokenizer".to_owned()
        } else {
            format!("Error, expecting {key} value")
        };
        error(text, format!("{key} has no value; write {key}:value"))
    }

    fn separator(&mut self, config: &mut Config, key: &str) -> Result<(), ConfigError> {
        match self.tokens.get(self.at) {
            None => {}
            Some(token) if token == "," => self.at += 1,
            Some(_) if self.rules.generic_config => {
                config.notes.push(format!(
                    "after {key} PyTorch skips one token without looking; write a comma"
                ));
                self.at += 1;
            }
            Some(_) => return Err(error("Error parsing CachingAllocator settings, expected ,", "")),
        }
        Ok(())
    }

    fn number(&mut self, config: &mut Config) -> Result<u64, ConfigError> {
        let word = self.value(config)?;
        unsigned(&word).map_err(|text| error(text, format!("{word:?} is not a whole number")))
    }

    fn float(&mut self, config: &mut Config) -> Result<f64, ConfigError> {
        let word = self.value(config)?;
        float(&word).map_err(|text| error(text, format!("{word:?} is not a number")))
    }

    fn boolean(&mut self, config: &mut Config, key: &str) -> Result<bool, ConfigError> {
        let word = self.value(config)?;
        match word.as_str() {
            "True" => Ok(true),
            "False" => Ok(false),
            _ if self.rules.generic_config => Err(error(
                format!(
                    "Expected 'True' or 'False' at index {} in ConfigTokenizer but got '{word}'",
                    self.at
                ),
                format!("write {key}:True or {key}:False"),
            )),
            _ => Err(error(format!("Expected a single True/False argument for {key}"), "")),
        }
    }

    /// A size in MB that must not be smaller than the large segment (to 2.9: must be larger than 20).
    fn at_least_large(&mut self, config: &mut Config, key: &str) -> Result<u64, ConfigError> {
        let mb = self.number(config)?;
        let least = config.large_segment_size / MIB;
        if self.rules.generic_config && mb < least {
            return Err(error(
                format!("CachingAllocator option {key} too small, must be >= {least}"),
                format!("the unit is MB, at least {least} of them"),
            ));
        }
        if !self.rules.generic_config && mb <= 20 {
            return Err(error(
                format!("CachingAllocator option {key} too small, must be > 20"),
                "the unit is MB",
            ));
        }
        Ok(mb.min(u64::MAX / MIB) * MIB)
    }

    fn gc_threshold(&mut self, config: &mut Config) -> Result<f64, ConfigError> {
        let threshold = self.float(config)?;
        let text = if threshold > 0.0 && threshold < 1.0 {
            return Ok(threshold);
        } else if self.rules.generic_config {
            "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"
        } else if threshold < 1.0 {
            "garbage_collect_threshold too small, set it 0.0~1.0"
        } else {
            "garbage_collect_threshold too big, set it 0.0~1.0"
        };
        Err(error(text, "a share of the memory fraction's limit, between 0 and 1"))
    }

    /// `0.5` (of the device) or `40G` (2.15). PyTorch logs a malformed value and keeps the one before.
    fn reserve(&mut self, config: &mut Config) -> Result<(), ConfigError> {
        let word = self.value(config)?;
        let (number, gib) = word
            .strip_suffix(['G', 'g'])
            .map_or((word.as_str(), false), |n| (n, true));
        match number.parse::<f64>() {
            Ok(n) if n > 0.0 && n.is_finite() => {
                config.expandable_reserve = Some(if gib {
                    Reserve::Bytes((n * (1u64 << 30) as f64) as u64)
                } else {
                    Reserve::Fraction(n)
                });
            }
            _ => config.notes.push(format!(
                "expandable_segments_reserve: {word:?} is neither a fraction nor a size such as 40G; PyTorch ignores it"
            )),
        }
        Ok(())
    }

    /// A value of a form that does not matter here: up to the next comma outside brackets.
    fn skip_value(&mut self, config: &mut Config) -> Result<(), ConfigError> {
        if self.value(config)? == "[" {
            while self.list_token()? != "]" {
                self.at += 1;
            }
        }
        Ok(())
    }
}
