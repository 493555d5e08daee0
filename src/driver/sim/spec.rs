//! The figures of a simulated device. The defaults were measured on one NVIDIA H200 (driver 580.159.04, CUDA 13).

use std::time::Duration;

use crate::units::{GIB, MIB};

/// How long a driver call takes by its size: measured points, read as a curve that never falls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostCurve(Vec<(u64, Duration)>);

impl CostCurve {
    /// A curve through these (bytes, time) points. Points are put in order of size, and a time that is below that of a
    /// smaller size is lifted to it: noise in a measurement must not make a larger call cheaper.
    pub fn new(mut points: Vec<(u64, Duration)>) -> Self {
        points.sort_by_key(|(size, _)| *size);
        points.dedup_by_key(|(size, _)| *size);
        let mut floor = Duration::ZERO;
        for (_, time) in &mut points {
            floor = floor.max(*time);
            *time = floor;
        }
        CostCurve(points)
    }

    /// A curve that costs nothing.
    pub fn free() -> Self {
        CostCurve(Vec::new())
    }

    /// The time of a call of `size` bytes: straight lines between the points, level below the first, and on along the
    /// last line above the last.
    pub fn at(&self, size: u64) -> Duration {
        let points = &self.0;
        let above = points.partition_point(|(s, _)| *s < size);
        match (points.len(), above) {
            (0, _) => Duration::ZERO,
            (1, _) | (_, 0) => points[0].1,
            (n, i) => {
                let (s0, t0) = points[i.min(n - 1) - 1];
                let (s1, t1) = points[i.min(n - 1)];
                let share = (size - s0) as f64 / (s1 - s0) as f64;
                Duration::try_from_secs_f64(t0.as_secs_f64() + t1.saturating_sub(t0).as_secs_f64() * share)
                    .unwrap_or(Duration::MAX)
            }
        }
    }
}

/// What a simulated device is like. Everything can be set; [`SimSpec::default`] is an H200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimSpec {
    /// The product's name, as a monitor shows it.
    pub name: String,
    /// "GPU-..." with a UUID.
    pub uuid: String,
    /// Everything on the board (NVML v2 total), in bytes.
    pub total: u64,
    /// What the driver keeps for itself (NVML v2 reserved); CUDA's own total leaves it out.
    pub driver_reserved: u64,
    /// What a context costs the process that makes it.
    pub context: u64,
    /// What the driver charges to the device for each context, but to no process.
    pub unattributed: u64,
    /// What the process's first kernel costs: its module is loaded then.
    pub first_kernel: u64,
    /// Physical memory is given in pages of this size (2 MiB on CUDA: cuMemGetAllocationGranularity).
    pub page: u64,
    /// Making the context.
    pub context_time: Duration,
    /// cuMemAlloc by size, first use of fresh memory.
    pub alloc_time: CostCurve,
    /// cuMemFree by size.
    pub free_time: CostCurve,
    /// cuMemGetInfo.
    pub info_time: Duration,
    /// Really sleep for the modelled times, so that a demo feels like a card.
    pub sleep: bool,
}

impl Default for SimSpec {
    /// Issue 2, "figures for the simulated device"; cuMemGetInfo's 5 us from the same card.
    fn default() -> Self {
        let us = Duration::from_micros;
        SimSpec {
            name: "NVIDIA H200".into(),
            uuid: "GPU-00000000-0000-0000-0000-000000000200".into(),
            total: 150_754_820_096,
            driver_reserved: 644_939_776,
            context: 543_162_368,
            unattributed: 9_240_576,
            first_kernel: 96_468_992,
            page: 2 * MIB,
            context_time: Duration::from_millis(128),
            alloc_time: CostCurve::new(vec![
                (2 * MIB, us(59)),
                (20 * MIB, us(51)),
                (764 * MIB, us(224)),
                (8 * GIB, us(958)),
            ]),
            free_time: CostCurve::new(vec![
                (2 * MIB, us(58)),
                (20 * MIB, us(59)),
                (764 * MIB, us(524)),
                (8 * GIB, us(5_209)),
            ]),
            info_time: us(5),
            sleep: false,
        }
    }
}

impl SimSpec {
    /// A bare device for arithmetic: `capacity` bytes for CUDA, no context, no kernels, no costs. Worked examples of the
    /// allocator run on it.
    pub fn bare(capacity: u64) -> Self {
        SimSpec {
            total: capacity,
            driver_reserved: 0,
            context: 0,
            unattributed: 0,
            first_kernel: 0,
            context_time: Duration::ZERO,
            alloc_time: CostCurve::free(),
            free_time: CostCurve::free(),
            info_time: Duration::ZERO,
            ..SimSpec::default()
        }
    }

    /// The device as CUDA counts it: without the driver's own part.
    pub fn cuda_total(&self) -> u64 {
        self.total.saturating_sub(self.driver_reserved)
    }

    /// Bytes of physical memory that `size` takes: whole pages.
    pub fn physical(&self, size: u64) -> Option<u64> {
        size.checked_next_multiple_of(self.page.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_through_its_points_and_never_falls() {
        let spec = SimSpec::default();
        let us = |d: Duration| d.as_micros();
        assert_eq!(us(spec.alloc_time.at(1)), 59);
        assert_eq!(us(spec.alloc_time.at(2 * MIB)), 59);
        assert_eq!(us(spec.alloc_time.at(20 * MIB)), 59, "the measured 51 is lifted");
        assert_eq!(us(spec.alloc_time.at(764 * MIB)), 224);
        assert_eq!(us(spec.free_time.at(764 * MIB)), 524);
        assert_eq!(us(spec.free_time.at(8 * GIB)), 5_209);
        let mut last = Duration::ZERO;
        for mib in (0..20_000).step_by(7) {
            let time = spec.free_time.at(mib * MIB);
            assert!(time >= last, "{mib} MiB");
            last = time;
        }
        assert!(last > Duration::from_micros(5_209), "it goes on above the last point");
        assert_eq!(CostCurve::free().at(GIB), Duration::ZERO);
        assert_eq!(CostCurve::new(vec![(5, us_of(3))]).at(u64::MAX), us_of(3));
    }

    fn us_of(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn the_defaults_are_the_measured_card() {
        assert_eq!(SimSpec::default().cuda_total(), 150_109_880_320);
    }
}
