//! How much the demo may hold, so that it never harms its neighbours (design rule 16). The budget is asked before the
//! allocator is: a refusal moves no counter.

use std::fmt;

use crate::reading::Reading;
use crate::source::HostCeiling;
use crate::units::{Bytes, GIB};

/// Without `--budget`: never more than this, ...
pub const DEFAULT_LIMIT: u64 = 4 * GIB;
/// ... and never more than this share of what would be free without us.
const SHARE_OF_FREE: u64 = 4;
/// A host allocation leaves at least this share of the ceiling free (issue 2.9).
const SHARE_LEFT: u64 = 10;

/// The limit without `--budget` where `free` bytes would be free without us.
pub fn default_limit(free: u64) -> u64 {
    DEFAULT_LIMIT.min(free / SHARE_OF_FREE)
}

/// Reads what bounds this process on the host, each time it is asked.
pub type CeilingSource = Box<dyn FnMut() -> Reading<HostCeiling> + Send>;

/// The bounds of the embedded allocator and of the host blocks beside it.
pub struct Budget {
    asked: Option<Bytes>,
    ceiling: CeilingSource,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}

/// What the budget refuses, as a sentence with its next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OverBudget(pub String);

impl Budget {
    /// A budget of `asked` bytes (`--budget`), or the default: the smaller of 4 GiB and a quarter of what is free.
    pub fn new(asked: Option<Bytes>, ceiling: CeilingSource) -> Self {
        Budget { asked, ceiling }
    }

    /// True if `wanted` more bytes are too many whatever the device says: known without asking it, and so without making
    /// a context.
    pub fn device_at_once(&self, held: Bytes, wanted: Bytes) -> Result<(), OverBudget> {
        within(self.limit(u64::MAX), held, wanted, Side::Device)
    }

    /// May the allocator, which holds `held`, take `wanted` more bytes from a device with `free` bytes free?
    pub fn device(&self, held: Bytes, wanted: Bytes, free: Bytes) -> Result<(), OverBudget> {
        within(self.limit(free.0.saturating_add(held.0)), held, wanted, Side::Device)
    }

    /// What the allocator may hold in all on a device with `free` bytes free of which it holds `held` already.
    pub fn device_limit(&self, held: Bytes, free: Bytes) -> Bytes {
        self.limit(free.0.saturating_add(held.0))
    }

    /// May the host blocks, which hold `held`, take `wanted` more bytes?
    pub fn host(&mut self, held: Bytes, wanted: Bytes) -> Result<(), OverBudget> {
        let ceiling = match (self.ceiling)() {
            Reading::Is(ceiling) => ceiling,
            Reading::Missing(why) => return Err(unknown(&why.text)),
        };
        let limit = match ceiling.limit() {
            Reading::Is(limit) => limit,
            Reading::Missing(why) => return Err(unknown(&why.text)),
        };
        let free = match free_of(&ceiling) {
            Reading::Is(free) => free,
            Reading::Missing(why) => return Err(unknown(&why.text)),
        };
        within(self.limit(free.0.saturating_add(held.0)), held, wanted, Side::Host)?;
        let keep = Bytes(limit.0 / SHARE_LEFT);
        if free.0.saturating_sub(wanted.0) < keep.0 {
            return Err(OverBudget(format!(
                "{wanted} more on the host would leave less than a tenth of its {limit} free ({free} are free now): \
                 delete a block (d) or choose a smaller size ([)"
            )));
        }
        Ok(())
    }

    /// The limit where `free` bytes would be free without us.
    fn limit(&self, free: u64) -> Bytes {
        self.asked.unwrap_or(Bytes(default_limit(free)))
    }
}

/// What is free under the ceiling: in the cgroup that bounds us, and on the host.
fn free_of(ceiling: &HostCeiling) -> Reading<Bytes> {
    let in_cgroup = match (&ceiling.cgroup_limit, &ceiling.cgroup_used) {
        (Reading::Is(limit), Reading::Is(used)) => Some(Bytes(limit.0.saturating_sub(used.0))),
        _ => None,
    };
    match (in_cgroup, &ceiling.host_available) {
        (Some(c), Reading::Is(h)) => Reading::Is(c.min(*h)),
        (Some(c), Reading::Missing(_)) => Reading::Is(c),
        // A limit whose use is unknown could be full already.
        (None, _) if ceiling.cgroup_limit.value().is_some() => ceiling.cgroup_used.clone(),
        (None, host) => host.clone(),
    }
}

#[derive(Clone, Copy)]
enum Side {
    Device,
    Host,
}

fn within(limit: Bytes, held: Bytes, wanted: Bytes, side: Side) -> Result<(), OverBudget> {
    let total = held.0.saturating_add(wanted.0);
    if total <= limit.0 {
        return Ok(());
    }
    let next = match side {
        Side::Device => "delete blocks (D) and flush (f), choose a smaller size ([)",
        Side::Host => "delete a block (d), choose a smaller size ([)",
    };
    Err(OverBudget(format!(
        "{wanted} more would pass the budget of {limit}, of which {held} is held: {next}, or start with --budget \
         {}GiB",
        total.div_ceil(GIB)
    )))
}

fn unknown(why: &str) -> OverBudget {
    OverBudget(format!(
        "no host memory is taken while nobody knows how much is free ({why})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::WhyKind;
    use crate::units::MIB;

    fn host(limit: Option<u64>, used: u64, total: u64, available: u64) -> CeilingSource {
        Box::new(move || {
            Reading::Is(HostCeiling {
                cgroup_limit: limit.map_or_else(
                    || Reading::missing(WhyKind::Absent, "no limit"),
                    |l| Reading::Is(Bytes(l)),
                ),
                cgroup_used: Reading::Is(Bytes(used)),
                host_total: Reading::Is(Bytes(total)),
                host_available: Reading::Is(Bytes(available)),
            })
        })
    }

    #[test]
    fn the_default_is_the_smaller_of_4_gib_and_a_quarter_of_what_is_free() {
        let budget = Budget::new(None, host(None, 0, 64 * GIB, 64 * GIB));
        assert_eq!(budget.device_limit(Bytes(0), Bytes(140 * GIB)), Bytes(4 * GIB));
        assert_eq!(budget.device_limit(Bytes(GIB), Bytes(3 * GIB)), Bytes(GIB));
        assert!(budget.device(Bytes(3 * GIB), Bytes(GIB), Bytes(140 * GIB)).is_ok());
        assert!(budget.device(Bytes(3 * GIB), Bytes(GIB + 1), Bytes(140 * GIB)).is_err());
        assert!(budget.device_at_once(Bytes(0), Bytes(4 * GIB)).is_ok());
        assert!(budget.device_at_once(Bytes(1), Bytes(4 * GIB)).is_err());
    }

    #[test]
    fn a_refusal_names_the_next_step() {
        let budget = Budget::new(Some(Bytes(GIB)), host(None, 0, GIB, GIB));
        let text = budget
            .device(Bytes(512 * MIB), Bytes(801_112_064), Bytes(140 * GIB))
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("764 MiB more would pass the budget of 1.00 GiB, of which 512 MiB is held"),
            "{text}"
        );
        assert!(text.contains("flush (f)") && text.contains("--budget 2GiB"), "{text}");
    }

    #[test]
    fn the_host_keeps_a_tenth_of_its_ceiling_even_with_a_budget() {
        let mut budget = Budget::new(
            Some(Bytes(100 * GIB)),
            host(Some(10 * GIB), 4 * GIB, 64 * GIB, 60 * GIB),
        );
        assert!(budget.host(Bytes(0), Bytes(5 * GIB)).is_ok());
        let text = budget.host(Bytes(0), Bytes(5 * GIB + 1)).unwrap_err().to_string();
        assert!(text.contains("less than a tenth of its 10.0 GiB"), "{text}");
        let mut budget = Budget::new(None, host(None, 0, 64 * GIB, 2 * GIB));
        assert!(
            budget.host(Bytes(0), Bytes(512 * MIB)).is_err(),
            "a tenth of 64 GiB is free no more"
        );
        let mut budget = Budget::new(None, host(None, 0, 8 * GIB, 4 * GIB));
        assert!(budget.host(Bytes(0), Bytes(GIB)).is_ok());
        assert!(budget.host(Bytes(0), Bytes(GIB + 1)).is_err(), "a quarter of 4 GiB");
    }

    #[test]
    fn unknown_is_no_permission() {
        let mut budget = Budget::new(
            Some(Bytes(GIB)),
            Box::new(|| Reading::missing(WhyKind::Refused, "/proc is hidden")),
        );
        assert!(
            budget
                .host(Bytes(0), Bytes(1))
                .unwrap_err()
                .to_string()
                .contains("/proc is hidden")
        );
    }
}
