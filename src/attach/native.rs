//! The native allocator's devices: its vector of pointers, found by shape, and the layout on which all of them agree
//! (allocator-spec 7.2, 7.3, 7.6).

use super::class::Failure;
use super::layout::{self, Candidate, Layout, Pointers, Verdict, WINDOW};
use super::maps::Maps;
use super::process::Process;
use super::refusal;
use super::remote::{Fault, Remote};

/// The object is searched this far: it has 0x58c0 bytes at most in the releases examined.
const OBJECT_BYTES: usize = 0x8000;
/// More devices than any process has.
const MAX_DEVICES: u64 = 128;
/// A busy process changes while it is looked at; one whole look costs about 100 us.
const TRIES: usize = 30;
/// What one search may cost in all, in remote reads of one pointer: a hostile object may look like thousands of vectors.
/// Eight devices cost 140 a try.
const BUDGET: usize = 1 << 15;
/// Looks in a row that must give the same unusual layout.
const STEADY: u32 = 5;
/// What the look at one device's allocator costs.
const LOOK_COST: usize = 16;

/// The devices of a native allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// Address of the vector (begin, end, capacity).
    pub vector: u64,
    /// Begin, end and capacity as they were.
    pub bounds: [u64; 3],
    /// Address of each device's allocator, by ordinal.
    pub elements: Vec<u64>,
    /// Where things lie inside each.
    pub layout: Layout,
}

/// Finds the devices of the native allocator at `object`.
pub fn find(remote: &Remote, process: &Process, object: u64) -> Result<Devices, Failure> {
    let mut last = None;
    let mut budget = BUDGET;
    let (mut shifted, mut steady) = (None, 0);
    for _ in 0..TRIES {
        // Read anew for each try: the heap grows, and a pointer into new heap would look wild.
        let maps = Maps::read(process.dir()).map_err(|_| Fault::Refused)?;
        match look(remote, &maps, object, &mut budget)? {
            Look::Usual(devices) => return Ok(devices),
            // In a busy process the first tree may be half updated, and the one behind it be taken for it: what is not of
            // the usual form must stay the same over several looks.
            Look::Shifted(devices) => {
                steady = if shifted.as_ref() == Some(&devices) {
                    steady + 1
                } else {
                    1
                };
                if steady == STEADY {
                    return Ok(devices);
                }
                shifted = Some(devices);
            }
            // No device yet: waiting here would not help.
            Look::Empty => {
                return Err(Failure::Why(refusal::not_initialised(process.pid, maps.holds_gpu())));
            }
            Look::Undecided => last = Some("its counters have not moved enough to prove where they lie"),
            Look::Unknown => last = Some("no examined layout of the counters fits"),
            Look::TooMuch => {
                last = Some("too much in it looks like devices");
                break;
            }
        }
    }
    let detail = last.unwrap_or("it kept changing");
    Err(Failure::Why(refusal::unknown_layout(process.pid, detail)))
}

/// What one look gave.
enum Look {
    Usual(Devices),
    Shifted(Devices),
    Empty,
    Undecided,
    Unknown,
    TooMuch,
}

fn look(remote: &Remote, maps: &Maps, object: u64, budget: &mut usize) -> Result<Look, Fault> {
    let words = remote.words_some(object, OBJECT_BYTES / 8)?;
    let mut outcome = Look::Empty;
    for (i, triple) in words.windows(3).enumerate() {
        let bounds = [triple[0], triple[1], triple[2]];
        let Some(count) = element_count(maps, bounds) else {
            continue;
        };
        let Some(left) = budget.checked_sub(count) else {
            return Ok(Look::TooMuch);
        };
        *budget = left;
        let Some(elements) = elements(remote, maps, bounds[0], count) else {
            continue;
        };
        let Some(left) = budget.checked_sub(count * LOOK_COST) else {
            return Ok(Look::TooMuch);
        };
        *budget = left;
        let devices: Vec<Vec<Candidate>> = elements
            .iter()
            .enumerate()
            .map(|(ordinal, at)| candidates(remote, maps, *at, ordinal))
            .collect();
        let found = |layout| Devices {
            vector: object + 8 * i as u64,
            bounds,
            elements: elements.clone(),
            layout,
        };
        match layout::agree(&devices) {
            Verdict::Usual(layout) => return Ok(Look::Usual(found(layout))),
            Verdict::Shifted(layout) => return Ok(Look::Shifted(found(layout))),
            Verdict::Undecided => outcome = Look::Undecided,
            Verdict::Unknown if matches!(outcome, Look::Empty) => outcome = Look::Unknown,
            Verdict::Unknown => {}
        }
    }
    Ok(outcome)
}

/// How many pointers a vector with these three words holds, if they can be one's.
fn element_count(maps: &Maps, [begin, end, capacity]: [u64; 3]) -> Option<usize> {
    let bytes = end.checked_sub(begin)?;
    let count = bytes / 8;
    let sound = begin.is_multiple_of(8)
        && bytes.is_multiple_of(8)
        && capacity >= end
        && capacity.is_multiple_of(8)
        && (1..=MAX_DEVICES).contains(&count)
        && maps.writable(begin);
    sound.then_some(count as usize)
}

/// The pointers of a vector of device allocators, if it is one: distinct, aligned, writable, each at a recursive mutex
/// (kind 1 at +16; ordinary ones have 0).
fn elements(remote: &Remote, maps: &Maps, begin: u64, count: usize) -> Option<Vec<u64>> {
    let mut pointers = vec![0; count];
    remote.words(begin, &mut pointers).ok()?;
    let mut sorted = pointers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let sound = |p: &u64| {
        let mut mutex = [0; 3];
        p.is_multiple_of(16) && maps.writable(*p) && remote.words(*p, &mut mutex).is_ok() && mutex[2] as u32 == 1
    };
    (sorted.len() == pointers.len() && pointers.iter().all(sound)).then_some(pointers)
}

/// The layouts that fit the device's allocator at `address`.
fn candidates(remote: &Remote, maps: &Maps, address: u64, ordinal: usize) -> Vec<Candidate> {
    let Ok(words) = remote.words_some(address, WINDOW) else {
        return Vec::new();
    };
    let pointers = Pointers {
        sound: &|address| maps.writable(address),
        parent: &|node| remote.word(node.wrapping_add(8)).ok(),
    };
    layout::candidates(&words, address, ordinal, &pointers)
}
