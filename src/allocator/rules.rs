//! Whose rules hold: PyTorch's allocator changed between releases, and every change is one switch in one table
//! (allocator-spec sections 3.6, 10, 10.1, 10.2; issue 4). There are no forks of the code.

use std::fmt;

/// A PyTorch release by its first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// 2 in 2.11.
    pub major: u32,
    /// 11 in 2.11.
    pub minor: u32,
}

impl Release {
    /// Reads `2.11`, `2.11.0`, `2.11.0+cu130` or `v2.11`. `None` for anything else.
    pub fn parse(text: &str) -> Option<Release> {
        let text = text.trim().trim_start_matches('v');
        let mut parts = text.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
        Some(Release {
            major,
            minor: minor.parse().ok()?,
        })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The shape of the out-of-memory sentence (allocator-spec 2.8; users.md section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomSentence {
    /// 2.0: figures in brackets, advice to set max_split_size_mb.
    Brackets,
    /// 2.1: "total capacty", advice to set max_split_size_mb, no private pools.
    Capacty,
    /// 2.2 to 2.9: advice for expandable segments, link to pytorch.org; private pools named when `private` is set.
    PytorchOrg {
        /// Names the free bytes of private pools (2.5 and later).
        private: bool,
    },
    /// 2.10 and later: link to docs.pytorch.org.
    DocsPytorchOrg,
}

/// The switches of one release. Made by [`Rules::of`]; the default is the newest examined release.
#[derive(Clone, Debug, PartialEq)]
// A table of switches is what this is.
#[allow(clippy::struct_excessive_bools)]
pub struct Rules {
    /// The release that was asked for.
    pub asked: Release,
    /// The release whose rules these are: `asked`, or the nearest older one that was examined.
    pub release: Release,
    /// Expandable segments exist (2.1).
    pub expandable_segments: bool,
    /// gc or oversize release that meets an expandable block stops with an internal assert (2.1 to 2.3).
    pub expandable_release_asserts: bool,
    /// num_sync_all_streams, num_device_alloc and num_device_free exist (2.3; absent in 2.1).
    pub driver_counters: bool,
    /// Division 1 of roundup_power2_divisions leaves sizes above 512 bytes unrounded (2.0, 2.1).
    pub division_one_unrounded: bool,
    /// roundup_power2_divisions takes a list (2.1); before, one integer and roundup_bypass_threshold_mb.
    pub roundup_list: bool,
    /// `>` in that list fills from the entry after the last one named (2.11); before, from that entry itself.
    pub roundup_rest_from_next: bool,
    /// The key max_non_split_rounding_mb exists (2.6).
    pub non_split_rounding_key: bool,
    /// The keys large_segment_size_mb and per_process_memory_fraction exist, max_split_size_mb may equal the large
    /// segment, the generic and HIP environment names are read (2.11).
    pub generic_config: bool,
    /// A memory fraction of exactly 1 removes the limit, and the base is the device property (2.11); before, 1 sets a
    /// limit like any other value.
    pub fraction_one_removes: bool,
    /// empty_cache during a redirection counts a synchronisation and then asserts (to 2.6); later it does neither.
    pub flush_in_pool_asserts: bool,
    /// Only an announced stream capture counts as a capture (2.13); before, any redirection to a pool does.
    pub capture_is_announced: bool,
    /// Equal free blocks go by the number of their segment before the address (2.13).
    pub ties_by_segment: bool,
    /// throw_on_cudamalloc_oom, num_oom_rejections and reserved_bytes_by_private_pools exist (2.13).
    pub rejections: bool,
    /// Pools may be marked no-split or use-on-oom (2.11).
    pub pool_options: bool,
    /// The sentence of an OutOfMemoryError.
    pub oom_sentence: OomSentence,
}

/// The releases that were run and compared (allocator-spec 10.1), oldest first.
pub const EXAMINED: [Release; 10] = [
    Release { major: 2, minor: 0 },
    Release { major: 2, minor: 1 },
    Release { major: 2, minor: 3 },
    Release { major: 2, minor: 5 },
    Release { major: 2, minor: 6 },
    Release { major: 2, minor: 8 },
    Release { major: 2, minor: 9 },
    Release { major: 2, minor: 11 },
    Release { major: 2, minor: 13 },
    Release { major: 2, minor: 15 },
];

/// A release that no rules are known for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no PyTorch release whose rules are known: give 2.0 to 2.15, for example 2.11")]
pub struct UnknownRelease(pub String);

impl Rules {
    /// The rules of `text` (`2.11`, `2.11.0+cu130`). A release that was never examined gets those of the nearest older
    /// one that was; [`Rules::note`] then says so. Releases before 2.0 and other text are refused.
    pub fn of(text: &str) -> Result<Rules, UnknownRelease> {
        let asked = Release::parse(text).ok_or_else(|| UnknownRelease(clean(text)))?;
        let release = EXAMINED.into_iter().rev().find(|r| *r <= asked);
        release
            .map(|release| Rules::table(asked, release))
            .ok_or_else(|| UnknownRelease(clean(text)))
    }

    /// The whole table: one line a switch, with the first minor release that has it.
    fn table(asked: Release, release: Release) -> Rules {
        let at_least = |minor| release.major > 2 || release.minor >= minor;
        Rules {
            asked,
            release,
            expandable_segments: at_least(1),
            expandable_release_asserts: at_least(1) && !at_least(4),
            driver_counters: at_least(2),
            division_one_unrounded: !at_least(2),
            roundup_list: at_least(1),
            roundup_rest_from_next: at_least(10),
            non_split_rounding_key: at_least(6),
            generic_config: at_least(10),
            fraction_one_removes: at_least(10),
            flush_in_pool_asserts: !at_least(7),
            capture_is_announced: at_least(12),
            ties_by_segment: at_least(12),
            rejections: at_least(12),
            pool_options: at_least(10),
            oom_sentence: match release.minor {
                0 => OomSentence::Brackets,
                1 => OomSentence::Capacty,
                2..=9 => OomSentence::PytorchOrg { private: at_least(5) },
                _ => OomSentence::DocsPytorchOrg,
            },
        }
    }

    /// What a screen must say when the release asked for was never examined; `None` when it was.
    pub fn note(&self) -> Option<String> {
        (self.asked != self.release).then(|| {
            format!(
                "torch {} was never examined: the rules of {} hold here",
                self.asked, self.release
            )
        })
    }
}

impl Default for Rules {
    fn default() -> Self {
        let newest = EXAMINED[EXAMINED.len() - 1];
        Rules::table(newest, newest)
    }
}

/// Foreign text for a message: printable, at most 40 characters.
fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_releases_get_the_nearest_older_rules_and_say_so() {
        for (asked, rules) in [
            ("2.0.1", "2.0"),
            ("2.2", "2.1"),
            ("2.4.1", "2.3"),
            ("2.7", "2.6"),
            ("2.12", "2.11"),
            ("2.14.0+cu130", "2.13"),
            ("2.99", "2.15"),
            ("3.0", "2.15"),
        ] {
            let found = Rules::of(asked).unwrap();
            assert_eq!(found.release.to_string(), rules, "{asked}");
            assert_eq!(
                found.note().is_none(),
                Release::parse(asked).unwrap() == found.release,
                "{asked}"
            );
        }
        assert_eq!(Rules::default(), Rules::of("2.15").unwrap());
        for bad in ["", "1.13", "two", "2", "2.x", "\u{1b}[31m"] {
            let error = Rules::of(bad).unwrap_err();
            assert!(!error.to_string().contains('\u{1b}'), "{bad:?}");
        }
    }
}
