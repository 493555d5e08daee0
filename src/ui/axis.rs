//! The y axis: scale, range and ticks in binary units (AC-31, AC-34).

use crate::units::{GIB, KIB, MIB, TIB};

/// How values become heights; always written on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// From 0 to a little above the highest value shown.
    #[default]
    Auto,
    /// From 0 to the capacity or limit.
    Total,
    /// Logarithmic from 1 MiB to the capacity.
    Log,
}

impl Scale {
    /// The next one (key `y`).
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Scale::Auto => Scale::Total,
            Scale::Total => Scale::Log,
            Scale::Log => Scale::Auto,
        }
    }

    /// Its word on the screen.
    pub fn word(self) -> &'static str {
        match self {
            Scale::Auto => "auto",
            Scale::Total => "total",
            Scale::Log => "log",
        }
    }
}

/// Where a logarithmic axis begins.
const LOG_FLOOR: u64 = MIB;

/// A y axis: a scale with its upper end in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// The scale.
    pub scale: Scale,
    /// The value at the top.
    pub top: u64,
}

impl Axis {
    /// The axis for values up to `highest` with `limit` known or not. `before` is the top of the frame before: an
    /// automatic range grows at once and shrinks only by a good step, so that it does not jump each tick (AC-34).
    pub fn choose(scale: Scale, highest: u64, limit: Option<u64>, before: Option<u64>) -> Axis {
        let top = match (scale, limit) {
            (Scale::Total, Some(limit)) => nice_above(limit.max(highest)),
            (Scale::Log, limit) => limit
                .map_or(highest, |l| l.max(highest))
                .max(2 * LOG_FLOOR)
                .next_power_of_two(),
            _ => {
                let wanted = nice_above(highest.saturating_add(highest / 16).max(MIB));
                match before {
                    Some(b) if b >= wanted && wanted > b / 2 => b,
                    _ => wanted,
                }
            }
        };
        Axis { scale, top }
    }

    /// How high `value` stands, from 0.0 to 1.0.
    pub fn height(&self, value: u64) -> f64 {
        let fraction = match self.scale {
            Scale::Log if value <= LOG_FLOOR => 0.0,
            Scale::Log => (value as f64 / LOG_FLOOR as f64).ln() / (self.top as f64 / LOG_FLOOR as f64).ln(),
            _ => value as f64 / self.top as f64,
        };
        fraction.clamp(0.0, 1.0)
    }

    /// The unit in which the ticks are written.
    pub fn unit(&self) -> &'static str {
        if self.scale == Scale::Log {
            return "log";
        }
        unit_of(self.top).0
    }

    /// Up to `count` ticks from the bottom to the top: height and text.
    pub fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        let steps = match count {
            0 | 1 => return vec![(1.0, self.text(self.top))],
            2 => 1,
            3 | 4 => 2,
            _ => 4,
        };
        if self.scale == Scale::Log {
            return self.log_ticks(steps);
        }
        (0..=steps)
            .map(|i| {
                let height = f64::from(i) / f64::from(steps);
                (height, self.text((self.top as f64 * height).round() as u64))
            })
            .collect()
    }

    /// Powers of two at equal distances: every tick is a round number.
    fn log_ticks(&self, steps: u32) -> Vec<(f64, String)> {
        let doublings = (self.top / LOG_FLOOR).max(2).ilog2();
        let each = doublings.div_ceil(steps).max(1);
        (0..=doublings / each)
            .map(|i| {
                let value = LOG_FLOOR << (i * each);
                let (unit, size) = unit_of(value);
                (self.height(value), format!("{}{}", value / size, &unit[..1]))
            })
            .collect()
    }

    fn text(&self, value: u64) -> String {
        let figure = value as f64 / unit_of(self.top).1 as f64;
        let text = format!("{figure:.2}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        text.chars()
            .take(4)
            .collect::<String>()
            .trim_end_matches('.')
            .to_string()
    }
}

fn unit_of(value: u64) -> (&'static str, u64) {
    if value >= TIB << 20 {
        ("EiB", TIB << 20)
    } else if value >= TIB << 10 {
        ("PiB", TIB << 10)
    } else if value >= TIB {
        ("TiB", TIB)
    } else if value >= GIB {
        ("GiB", GIB)
    } else if value >= MIB {
        ("MiB", MIB)
    } else {
        ("KiB", KIB)
    }
}

/// The smallest round number of binary units at or above `value`.
fn nice_above(value: u64) -> u64 {
    let (_, unit) = unit_of(value);
    let mut decade = 1.0;
    loop {
        for step in [1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0] {
            let candidate = step * decade * unit as f64;
            if candidate >= value as f64 {
                return candidate as u64;
            }
        }
        decade *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_round_and_hold_their_values() {
        for value in [
            0,
            1,
            700 * MIB,
            800_000_000,
            GIB,
            150_754_820_096,
            3 * TIB,
            u64::MAX / 32,
        ] {
            let axis = Axis::choose(Scale::Auto, value, None, None);
            assert!(axis.top >= value, "{value} {axis:?}");
            assert!(axis.top <= value.max(MIB).saturating_mul(2), "{value} {axis:?}");
        }
        let axis = Axis::choose(Scale::Auto, 763 * MIB, None, None);
        assert_eq!(
            (axis.unit(), axis.ticks(3)),
            (
                "MiB",
                vec![(0.0, "0".into()), (0.5, "500".into()), (1.0, "1000".into())]
            )
        );
    }

    #[test]
    fn the_automatic_range_does_not_follow_every_tick() {
        let first = Axis::choose(Scale::Auto, 790 * MIB, None, None);
        let second = Axis::choose(Scale::Auto, 640 * MIB, None, Some(first.top));
        assert_eq!(first.top, second.top);
        let third = Axis::choose(Scale::Auto, 64 * MIB, None, Some(first.top));
        assert!(third.top < first.top);
    }

    #[test]
    fn log_and_total_reach_the_limit() {
        let axis = Axis::choose(Scale::Log, 0, Some(140 * GIB), None);
        assert_eq!(axis.top, 256 * GIB);
        assert!(axis.height(MIB) < 0.001 && (axis.height(256 * GIB) - 1.0).abs() < 1e-9);
        assert_eq!(Axis::choose(Scale::Total, 5, Some(GIB), None).top, GIB);
    }
}
