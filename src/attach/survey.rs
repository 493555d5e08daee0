//! What is worth a slower look about once a second: which card a device is, its memory limit, its largest free block,
//! expandable segments, and the settings and version as the process's files tell them. Each has its own check; what fails
//! it is left out with the reason (allocator-spec 7.7b).

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::card;
use super::counters::{broken_invariant, decode};
use super::free;
use super::layout::{Layout, WINDOW};
use super::process::{Process, printable};
use super::remote::Remote;
use crate::reading::{Reading, Why, WhyKind};
use crate::source::DeviceIdentity;

/// Tries of one walk over the free blocks.
const WALKS: usize = 6;
/// Sizes of the runtime's device property (`cudaDeviceProp`) in bytes, by major version of CUDA: the limit follows it.
const PROPERTY_SIZES: [(u32, usize); 2] = [(12, 1032), (13, 1008)];
/// The uuid and the total memory inside the device property, in bytes.
const UUID_AT: usize = 0x100;
const TOTAL_AT: usize = 0x120;

/// The results for one device.
#[derive(Clone, Debug)]
pub struct Survey {
    pub uuid: Reading<String>,
    pub memory_limit: Reading<Option<u64>>,
    pub largest_free: Reading<u64>,
    pub expandable: Reading<bool>,
    reserved: TotalReserved,
}

impl Default for Survey {
    fn default() -> Self {
        Survey {
            uuid: Reading::not_yet(),
            memory_limit: Reading::not_yet(),
            largest_free: Reading::not_yet(),
            expandable: Reading::not_yet(),
            reserved: TotalReserved::default(),
        }
    }
}

/// A result, unless its survey is too old.
pub fn recent<T: Clone>(reading: &Reading<T>, aged: bool) -> Reading<T> {
    if aged {
        Reading::missing(WhyKind::Late, "not looked at again for a while")
    } else {
        reading.clone()
    }
}

/// The search for the member that repeats the reserved bytes: the memory limit follows it from 2.1 to 2.9. A word is it
/// when it alone followed the counter through two different values.
#[derive(Clone, Debug, Default)]
struct TotalReserved {
    values: u32,
    last: u64,
    words: Option<Vec<usize>>,
}

impl TotalReserved {
    /// Compares the words `from ..` with the reserved bytes of the same moment; the place once it is proven.
    fn follow(&mut self, words: &[u64], from: usize, reserved: u64) -> Option<usize> {
        if reserved > 0 {
            let hits = (from..(from + 0x60).min(words.len())).filter(|w| words[*w] == reserved);
            let left: Vec<usize> = match &self.words {
                None => hits.collect(),
                Some(before) => hits.filter(|w| before.contains(w)).collect(),
            };
            self.values += u32::from(reserved != self.last);
            self.last = reserved;
            self.words = Some(left);
        }
        match self.words.as_deref() {
            Some([only]) if self.values >= 2 => Some(*only),
            _ => None,
        }
    }
}

/// The device to look at.
pub struct Subject<'a> {
    pub remote: &'a Remote,
    pub process: &'a Process,
    pub layout: &'a Layout,
    /// Address of its allocator.
    pub address: u64,
    pub ordinal: usize,
    /// How many devices the process has.
    pub devices: usize,
    /// Major version of the CUDA runtime that it loaded, where known.
    pub cuda: Option<u32>,
    /// The cards of the machine, in the order of the bus; empty if not known.
    pub gpus: &'a [DeviceIdentity],
}

/// Looks at one device and updates `survey`. `nodes` is what is left of the survey's budget of tree nodes.
pub fn look(subject: &Subject<'_>, survey: &mut Survey, nodes: &mut u64) {
    let Some(window) = steady_window(subject) else {
        let busy = Why::new(WhyKind::Late, "the allocator was busy in every try");
        survey.memory_limit = Reading::Missing(busy.clone());
        survey.largest_free = Reading::Missing(busy.clone());
        survey.expandable = Reading::Missing(busy);
        return;
    };
    let found = card::by_uuid(&window, subject.gpus);
    match &found {
        Some((_, gpu)) => survey.uuid = Reading::Is(gpu.uuid.clone()),
        // A process keeps its cards: once known, they are.
        None if survey.uuid.value().is_some() => {}
        None => survey.uuid = card::by_number(subject),
    }
    let Some(pools) = free::pools(&window, subject.address, subject.layout, subject.remote) else {
        let unknown = Why::new(
            WhyKind::Unknown,
            "the free blocks' trees have a form that was never examined, or were changing",
        );
        survey.largest_free = Reading::Missing(unknown.clone());
        survey.expandable = Reading::Missing(unknown);
        survey.memory_limit = limit_after_property(&window, found.map(|(at, _)| at), subject.cuda);
        return;
    };
    survey.expandable = Reading::Is(pools.iter().any(|p| p.unmapped(&window) > 0));
    survey.largest_free = largest_free(subject, nodes);
    survey.memory_limit = if let Some((at, _)) = found {
        limit_after_property(&window, Some(at), subject.cuda)
    } else {
        let reserved = window[subject.layout.start + 60];
        limit_after_reserved(&window, survey.reserved.follow(&window, pools[1].end(), reserved))
    };
}

/// The first words of the allocator, read while nobody held its lock and the counters stood still; `None` if it was busy.
fn steady_window(subject: &Subject<'_>) -> Option<Vec<u64>> {
    let (start, end) = (subject.layout.start, subject.layout.end());
    for _ in 0..WALKS {
        let window = subject.remote.words_some(subject.address, WINDOW).ok()?;
        let mut again = vec![0; end];
        subject.remote.words(subject.address, &mut again).ok()?;
        let free = again[0] as u32 == 0;
        if window.len() > end && free && window[start..end] == again[start..end] {
            return Some(window);
        }
    }
    None
}

/// The largest free block: a walk over both pools that passed all its checks.
fn largest_free(subject: &Subject<'_>, nodes: &mut u64) -> Reading<u64> {
    for _ in 0..WALKS {
        let Some(window) = steady_window(subject) else { break };
        let Some(pools) = free::pools(&window, subject.address, subject.layout, subject.remote) else {
            continue;
        };
        let [large, small] = pools.map(|pool| free::walk(subject.remote, &window, subject.address, pool, nodes));
        let stats = decode(&window[subject.layout.start..], subject.layout.shape);
        if let (Some(large), Some(small), Some(stats)) = (large, small, stats)
            && broken_invariant(&stats).is_none()
        {
            // Active memory is part of the reserved memory: an invariant. Private pools hold free memory too.
            let bound = stats.reserved_bytes.all.current - stats.active_bytes.all.current;
            if large.total.saturating_add(small.total) <= bound as u64 {
                return Reading::Is(large.largest.max(small.largest));
            }
        }
    }
    Reading::missing(
        WhyKind::Late,
        "the free blocks changed during every look (a busy process)",
    )
}

/// The limit where the word after the total of reserved bytes is it, with its "set" byte 0x38 bytes later (2.1 to 2.9).
fn limit_after_reserved(window: &[u64], total_reserved: Option<usize>) -> Reading<Option<u64>> {
    let Some(at) = total_reserved else {
        return Reading::missing(
            WhyKind::NotYet,
            "the place of the limit is not proven yet: the reserved bytes must change first",
        );
    };
    match (window.get(at + 1), window.get(at + 8).map(|w| w & 0xff)) {
        (_, Some(0)) => Reading::Is(None),
        (Some(limit), Some(1)) if (1..1 << 45).contains(limit) => Reading::Is(Some(*limit)),
        _ => Reading::missing(
            WhyKind::Unknown,
            "no memory limit stands where examined releases have it",
        ),
    }
}

/// The limit behind the device property (2.11 and later), whose place the uuid tells (byte `uuid`), with its "set" byte 8
/// bytes later. Without a known version of CUDA every size of the property that gives a sound answer must give the same.
fn limit_after_property(window: &[u64], uuid: Option<usize>, cuda: Option<u32>) -> Reading<Option<u64>> {
    let unknown = || {
        Reading::missing(
            WhyKind::Unknown,
            "no memory limit stands where examined releases have it",
        )
    };
    let Some(property) = uuid
        .and_then(|at| at.checked_sub(UUID_AT))
        .filter(|at| at.is_multiple_of(8))
    else {
        return unknown();
    };
    let Some(total) = window
        .get((property + TOTAL_AT) / 8)
        .copied()
        .filter(|t| *t > 0 && *t < 1 << 50)
    else {
        return unknown();
    };
    let answer = |size: usize| {
        let at = (property + size) / 8;
        match (window.get(at)?, window.get(at + 1)? & 0xff) {
            (_, 0) => Some(None),
            (limit, 1) if (1..=total).contains(limit) => Some(Some(*limit)),
            _ => None,
        }
    };
    let fits = |major: u32| cuda.is_none_or(|cuda| cuda == major);
    let mut answers = PROPERTY_SIZES
        .into_iter()
        .filter(|(major, _)| fits(*major))
        .filter_map(|(_, size)| answer(size));
    match (answers.next(), answers.next()) {
        (Some(limit), None) => Reading::Is(limit),
        (Some(one), Some(other)) if one == other => Reading::Is(one),
        _ => unknown(),
    }
}

/// The settings of the allocator in the environment, under the names that releases read, the newest first.
pub fn configuration(process: &Process) -> Reading<Option<String>> {
    for name in [
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
    ] {
        match process.variable(name) {
            Ok(Some(value)) => return Reading::Is(Some(value)),
            Ok(None) => {}
            Err(_) => return Reading::missing(WhyKind::Refused, "the environment of the process cannot be read"),
        }
    }
    Reading::Is(None)
}

/// `__version__` in the package's version.py, opened below the root directory that the process sees.
pub fn torch_version(process: &Process, library: &Path) -> Reading<String> {
    let absent = || Reading::missing(WhyKind::Absent, "no torch/version.py beside the library");
    let Some(package) = library.parent().and_then(Path::parent) else {
        return absent();
    };
    let Ok(inside) = package.strip_prefix("/") else {
        return absent();
    };
    let path = process.dir().join("root").join(inside).join("version.py");
    // The path is the target's choice: never wait for it, and take nothing but a plain file.
    let mut text = Vec::new();
    let read = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(&path)
        .and_then(|file| {
            if file.metadata()?.is_file() {
                file.take(8192).read_to_end(&mut text)
            } else {
                Ok(0)
            }
        });
    if read.is_err() {
        return absent();
    }
    let text = printable_lines(&text);
    text.iter()
        .find_map(|line| {
            line.strip_prefix("__version__")?
                .trim_start_matches([' ', '='])
                .split(['\'', '"'])
                .nth(1)
        })
        .filter(|version| !version.is_empty() && version.len() <= 64)
        .map_or_else(absent, |version| Reading::Is(version.to_owned()))
}

fn printable_lines(text: &[u8]) -> Vec<String> {
    text.split(|b| *b == b'\n').map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_taken_only_from_a_sound_place() {
        let mut window = vec![0x4242_4242_4242_4242u64; 300];
        window[36] = 80 << 30;
        let limit = |window: &[u64], cuda| limit_after_property(window, Some(UUID_AT), cuda).value().copied();
        assert_eq!(limit(&window, Some(13)), None, "garbage");
        (window[126], window[127]) = (6 << 30, 1);
        assert_eq!(limit(&window, Some(13)), Some(Some(6 << 30)));
        assert_eq!(limit(&window, Some(12)), None);
        assert_eq!(
            limit(&window, None),
            Some(Some(6 << 30)),
            "one size of the property fits"
        );
        (window[129], window[130]) = (0, 0);
        assert_eq!(limit(&window, None), None, "two that disagree");
        window[126] = 81 << 30;
        assert_eq!(limit(&window, Some(13)), None, "more than the card has");
        assert!(limit_after_property(&window, None, Some(13)).value().is_none());
    }

    #[test]
    fn the_total_of_reserved_bytes_proves_itself_by_following() {
        let mut total = TotalReserved::default();
        assert_eq!(total.follow(&[0, 5, 5, 0], 0, 5), None);
        assert_eq!(
            total.follow(&[0, 5, 5, 0], 0, 5),
            None,
            "the same value again proves nothing"
        );
        assert_eq!(total.follow(&[0, 5, 7, 0], 0, 7), Some(2));
        assert_eq!(total.follow(&[0, 7, 0, 7], 0, 7), None, "and can be refuted");
    }
}
