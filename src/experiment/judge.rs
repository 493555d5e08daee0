//! Does a reading agree with what PyTorch's documentation says? Counters and VRAM to the byte, RSS within 16 MiB; an
//! unknown never agrees (issue 2.8).

use super::step::{Step, StepReading};
use crate::allocator::Settings;
use crate::allocator::size::{MIN_BLOCK, ONE_EXABYTE, SMALL_LIMIT, SMALL_SEGMENT, block_size, segment_size};
use crate::units::{Bytes, MIB};

/// RSS moves by other things too: stacks, the C library's heap, kernel batches.
pub const RSS_SLACK: u64 = 16 * MIB;

/// The size of the tensor of [`Step::Context`].
pub const FIRST_TENSOR: u64 = 512;
const FIRST_SEGMENT: u64 = 2 * MIB;

/// What the documentation lets one expect of a tensor on an empty allocator. In the default configuration blocks are
/// multiples of 512 bytes, segments are 2 MiB for blocks up to 1 MiB, 20 MiB for those below 10 MiB and multiples of 2 MiB
/// above, and a rest of at most 1 MiB is not split off a large segment. `roundup_power2_divisions`,
/// `large_segment_size_mb`, `max_split_size_mb` and `expandable_segments` change that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Documented {
    /// Bytes of the tensor.
    pub bytes: u64,
    /// By how much *allocated* rises.
    pub block: u64,
    /// By how much *reserved* and the driver's figure rise.
    pub segment: u64,
}

impl Documented {
    /// What to expect of a tensor of so many bytes with these settings; `None` if no device can hold them.
    pub fn of(bytes: Option<u64>, settings: &Settings) -> Option<Self> {
        let bytes = bytes.filter(|b| *b < ONE_EXABYTE)?;
        let config = &settings.config;
        let size = block_size(bytes, config, &settings.rules);
        let small = size <= SMALL_LIMIT;
        // An expandable segment is mapped in granules, and every rest is split off.
        let segment = match (config.expandable_segments, small) {
            (true, true) => size.next_multiple_of(SMALL_SEGMENT),
            (true, false) => size.next_multiple_of(config.large_segment_size),
            (false, _) => segment_size(size, config),
        };
        let rest = segment - size;
        let split = if small || config.expandable_segments {
            rest >= MIN_BLOCK
        } else {
            rest > SMALL_LIMIT && size < config.split_limit()
        };
        let block = if split { size } else { segment };
        Some(Documented { bytes, block, segment })
    }
}

/// The verdict on one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every figure is as documented.
    Agrees,
    /// These are not.
    Disagrees(Vec<String>),
    /// No figure disagrees, but these are unknown.
    Unknown(Vec<String>),
}

impl Verdict {
    /// `agrees` in JSON: null is unknown.
    pub fn agrees(&self) -> Option<bool> {
        match self {
            Verdict::Agrees => Some(true),
            Verdict::Disagrees(_) => Some(false),
            Verdict::Unknown(_) => None,
        }
    }

    /// Why it does not agree.
    pub fn reasons(&self) -> &[String] {
        match self {
            Verdict::Agrees => &[],
            Verdict::Disagrees(reasons) | Verdict::Unknown(reasons) => reasons,
        }
    }
}

/// How a figure is to stand to that of the step before.
#[derive(Clone, Copy)]
enum Change {
    Same,
    Up(u64),
    Down(u64),
    /// Higher, by an amount that nobody documents.
    Higher,
    /// Not looked at.
    Any,
}

/// What is documented of one step: changes of RSS and VRAM, values of the counters.
struct Expected {
    rss: Change,
    vram: Change,
    allocated: u64,
    reserved: u64,
    allocated_peak: u64,
    reserved_peak: u64,
}

fn expected(step: Step, d: &Documented) -> Expected {
    let none = Expected {
        rss: Change::Same,
        vram: Change::Same,
        allocated: 0,
        reserved: 0,
        allocated_peak: 0,
        reserved_peak: 0,
    };
    let touched = Expected {
        allocated_peak: FIRST_TENSOR,
        reserved_peak: FIRST_SEGMENT,
        ..none
    };
    let used = Expected {
        allocated_peak: d.block.max(FIRST_TENSOR),
        reserved_peak: d.segment.max(FIRST_SEGMENT),
        ..none
    };
    match step {
        Step::Start => none,
        Step::CpuZeros => Expected {
            rss: Change::Up(d.bytes),
            ..none
        },
        Step::CpuDel => Expected {
            rss: Change::Down(d.bytes),
            ..none
        },
        Step::Context => Expected {
            rss: Change::Any,
            vram: Change::Higher,
            ..touched
        },
        Step::GpuZeros => Expected {
            vram: Change::Up(d.segment),
            allocated: d.block,
            reserved: d.segment,
            ..used
        },
        Step::GpuDel => Expected {
            reserved: d.segment,
            ..used
        },
        Step::Flush => Expected {
            vram: Change::Down(d.segment),
            ..used
        },
        Step::FlushAgain => used,
    }
}

/// Judges every step by its readings and those of the step before.
pub fn judge(steps: &[StepReading], documented: &Documented) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut before: Option<&StepReading> = None;
    let mut not_done = false;
    for step in steps {
        not_done |= step.failed.is_some();
        verdicts.push(verdict(before, step, documented, not_done));
        before = Some(step);
    }
    verdicts
}

fn verdict(before: Option<&StepReading>, now: &StepReading, documented: &Documented, not_done: bool) -> Verdict {
    let mut wrong = Vec::new();
    let mut unknown: Vec<String> = now.failed.iter().chain(&now.missing).cloned().collect();
    if not_done {
        if unknown.is_empty() {
            unknown.push("a step before it was not done".into());
        }
        return Verdict::Unknown(unknown);
    }
    let e = expected(now.step, documented);
    for (name, is, should) in [
        ("allocated", now.allocated, e.allocated),
        ("reserved", now.reserved, e.reserved),
        ("the peak of allocated", now.allocated_peak, e.allocated_peak),
        ("the peak of reserved", now.reserved_peak, e.reserved_peak),
    ] {
        match is {
            Some(is) if is != should => wrong.push(format!("{name} is {is} B, documented are {should} B")),
            Some(_) => {}
            None => unknown.push(format!("{name} is unknown")),
        }
    }
    let start = before.is_none().then_some(0);
    for (name, change, then, is, slack) in [
        (
            "the process's VRAM",
            e.vram,
            before.map_or(start, |b| b.process_vram),
            now.process_vram,
            0,
        ),
        ("RSS", e.rss, before.map_or(now.rss, |b| b.rss), now.rss, RSS_SLACK),
    ] {
        match (then, is) {
            (Some(then), Some(is)) => {
                wrong.extend(compare(name, change, then, is, slack));
                unknown.extend(too_small(name, change, slack));
            }
            _ => unknown.push(format!("{name} is unknown here or before")),
        }
    }
    if now.device_used.is_none() {
        unknown.push("what is used on the device is unknown".into());
    }
    match (wrong.is_empty(), unknown.is_empty()) {
        (false, _) => Verdict::Disagrees(wrong),
        (true, false) => Verdict::Unknown(unknown),
        (true, true) => Verdict::Agrees,
    }
}

/// A sentence if a change is too small to be told from none: then no reading could disagree with it.
fn too_small(name: &str, change: Change, slack: u64) -> Option<String> {
    match change {
        Change::Up(by) | Change::Down(by) if by <= slack => Some(format!(
            "{name}: {by} B are too small to tell, it is compared within {}: choose a larger --shape",
            Bytes(slack)
        )),
        _ => None,
    }
}

/// A sentence if `is` does not stand to `then` as `change` says.
fn compare(name: &str, change: Change, then: u64, is: u64, slack: u64) -> Option<String> {
    let moved = Bytes(is).minus(Bytes(then)).0;
    let should = match change {
        Change::Any => return None,
        Change::Higher if is > then => return None,
        Change::Higher => return Some(format!("{name} did not rise")),
        Change::Same => 0,
        Change::Up(by) => i128::from(by),
        Change::Down(by) => -i128::from(by),
    };
    if moved.abs_diff(should) <= u128::from(slack) {
        return None;
    }
    let within = if slack > 0 {
        format!(" within {}", Bytes(slack))
    } else {
        String::new()
    };
    Some(format!("{name} moved by {moved} B, documented are {should} B{within}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: u64 = 639_631_360;

    fn documented() -> Documented {
        Documented::of(Some(800_000_000), &Settings::default()).unwrap()
    }

    /// The readings of a device that does as documented, with RSS a little off.
    fn good() -> Vec<StepReading> {
        let d = documented();
        let rows = [
            (10 * MIB, 0, 0, 0, 0, 0),
            (10 * MIB + d.bytes + 70_000, 0, 0, 0, 0, 0),
            (11 * MIB, 0, 0, 0, 0, 0),
            (109 * MIB, CONTEXT, 0, 0, 512, FIRST_SEGMENT),
            (109 * MIB, CONTEXT + d.segment, d.block, d.segment, d.block, d.segment),
            (109 * MIB, CONTEXT + d.segment, 0, d.segment, d.block, d.segment),
            (109 * MIB, CONTEXT, 0, 0, d.block, d.segment),
            (109 * MIB, CONTEXT, 0, 0, d.block, d.segment),
        ];
        Step::ALL
            .into_iter()
            .zip(rows)
            .map(
                |(step, (rss, vram, allocated, reserved, allocated_peak, reserved_peak))| StepReading {
                    step,
                    rss: Some(rss),
                    process_vram: Some(vram),
                    device_used: Some(vram),
                    allocated: Some(allocated),
                    reserved: Some(reserved),
                    allocated_peak: Some(allocated_peak),
                    reserved_peak: Some(reserved_peak),
                    cost_us: Some(1.0),
                    failed: None,
                    missing: Vec::new(),
                },
            )
            .collect()
    }

    fn agree(steps: &[StepReading]) -> Vec<Option<bool>> {
        judge(steps, &documented()).iter().map(Verdict::agrees).collect()
    }

    #[test]
    fn sizes_are_those_of_the_documentation() {
        for (bytes, block, segment) in [
            (1, 512, 2 * MIB),
            (1 << 20, 1 << 20, 2 * MIB),
            ((1 << 20) + 1, 1_049_088, 20 * MIB),
            (10_485_248, 10_485_248, 20 * MIB),
            (10_485_249, 10_485_760, 10 * MIB),
            (12_058_624, 12_582_912, 12_582_912),
            (800_000_000, 800_000_000, 801_112_064),
            (1_000_000_000, 1_000_341_504, 1_000_341_504),
        ] {
            assert_eq!(
                Documented::of(Some(bytes), &Settings::default()),
                Some(Documented { bytes, block, segment }),
                "{bytes}"
            );
        }
        assert_eq!(Documented::of(Some(u64::MAX), &Settings::default()), None);
    }

    #[test]
    fn sizes_follow_the_configuration() {
        for (conf, bytes, block, segment) in [
            // 800 MB over 20 MiB granules: 38.1 of them, so 39; the rest is split off.
            ("expandable_segments:True", 800_000_000, 800_000_000, 39 * 20 * MIB),
            ("expandable_segments:True", 1000, 1024, 2 * MIB),
            // Quarters of 512 MiB.
            ("roundup_power2_divisions:4", 800_000_000, 805_306_368, 805_306_368),
            // From max_split_size on nothing is split off a segment.
            ("max_split_size_mb:21", 24 * MIB + 1, 26 * MIB, 26 * MIB),
            ("", 24 * MIB + 1, 24 * MIB + 512, 26 * MIB),
        ] {
            let setup = crate::worker::Setup::read(conf, None).unwrap();
            assert_eq!(
                Documented::of(Some(bytes), &setup.settings),
                Some(Documented { bytes, block, segment }),
                "{conf} {bytes}"
            );
        }
    }

    #[test]
    fn what_the_tolerance_hides_is_unknown() {
        let small = Documented::of(Some(400), &Settings::default()).unwrap();
        let mut steps = good();
        for (n, step) in steps.iter_mut().enumerate() {
            step.rss = Some(10 * MIB);
            let (allocated, reserved) = [(0, 0), (512, 2 * MIB), (0, 2 * MIB)][match n {
                4 => 1,
                5 => 2,
                _ => 0,
            }];
            step.allocated = Some(allocated);
            step.reserved = Some(reserved);
            step.process_vram = Some(if n < 3 { 0 } else { CONTEXT + reserved });
            if n > 3 {
                step.allocated_peak = Some(512);
                step.reserved_peak = Some(FIRST_SEGMENT);
            }
        }
        let verdicts = judge(&steps, &small);
        let agree: Vec<_> = verdicts.iter().map(Verdict::agrees).collect();
        let yes = Some(true);
        assert_eq!(agree, [yes, None, None, yes, yes, yes, yes, yes], "{verdicts:?}");
        assert!(verdicts[2].reasons()[0].contains("400 B are too small to tell"));
    }

    #[test]
    fn a_device_that_does_as_documented_agrees() {
        assert_eq!(agree(&good()), [Some(true); 8]);
    }

    #[test]
    fn one_byte_too_many_disagrees_where_it_moved() {
        for step in 0..8 {
            for field in 0..3 {
                let mut steps = good();
                let row = &mut steps[step];
                let value = [&mut row.allocated, &mut row.reserved, &mut row.process_vram]
                    .into_iter()
                    .nth(field)
                    .unwrap();
                *value = value.map(|v| v + 1);
                assert_eq!(
                    agree(&steps)[step] == Some(true),
                    step == 3 && field == 2,
                    "step {step} field {field}"
                );
            }
        }
        let mut steps = good();
        steps[2].rss = steps[2].rss.map(|r| r + 17 * MIB);
        assert_eq!(agree(&steps)[2], Some(false));
    }

    #[test]
    fn an_unknown_never_agrees_and_a_wrong_figure_beside_it_still_disagrees() {
        for step in 0..8 {
            let mut steps = good();
            steps[step].process_vram = None;
            assert_eq!(agree(&steps)[step], None);
            steps[step].allocated = Some(1);
            assert_eq!(agree(&steps)[step], Some(false));
        }
        let mut steps = good();
        steps[1].rss = None;
        assert_eq!(
            agree(&steps)[..4],
            [Some(true), None, None, Some(true)],
            "the change after it is unknown too"
        );
    }

    #[test]
    fn after_a_step_that_was_not_done_nothing_is_known() {
        let mut steps = good();
        steps[4].failed = Some("refused by the budget".into());
        assert_eq!(agree(&steps)[3..], [Some(true), None, None, None, None]);
    }
}
