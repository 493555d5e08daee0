//! Bytes and their one formatter. Every figure on the screen goes through here, so that units are always binary,
//! always carry their `i`, and never show less than the true value by more than half a displayed unit (AC-3, AC-31).

use std::fmt;

/// An amount of memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// One kibibyte, in bytes.
pub const KIB: u64 = 1 << 10;
/// One mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;
/// One gibibyte, in bytes.
pub const GIB: u64 = 1 << 30;
/// One tebibyte, in bytes.
pub const TIB: u64 = 1 << 40;

impl Bytes {
    /// `self - other` as a signed number of bytes.
    pub fn minus(self, other: Bytes) -> SignedBytes {
        SignedBytes(i128::from(self.0) - i128::from(other.0))
    }
}

/// A signed amount of memory: a change, or a remainder such as the bill's *unexplained*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SignedBytes(pub i128);

/// Writes `n` bytes with three significant figures (or all digits below 1 KiB): `8.00 GiB`, `763 MiB`, `512 B`.
fn write(f: &mut fmt::Formatter<'_>, n: u128, sign: &str) -> fmt::Result {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut text = format!("{sign}{n} B");
    if n >= 1024 {
        let mut unit = 0;
        let mut value = n as f64 / 1024.0;
        // 1023.5 would print as "1024": it belongs to the next unit.
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let decimals = if value < 9.995 {
            2
        } else if value < 99.95 {
            1
        } else {
            0
        };
        text = format!("{sign}{value:.decimals$} {}", UNITS[unit]);
    }
    f.pad(&text)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, u128::from(self.0), "")
    }
}

impl fmt::Display for SignedBytes {
    /// A change always shows its sign; no change is `±0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.pad("±0"),
            n => write(f, n.unsigned_abs(), if n < 0 { "-" } else { "+" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_binary_units_with_three_figures() {
        for (bytes, text) in [
            (0, "0 B"),
            (512, "512 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (8 * GIB, "8.00 GiB"),
            (801_112_064, "764 MiB"),
            (800_000_000, "763 MiB"),
            (1_073_741_823, "1.00 GiB"),
            (150_754_820_096, "140 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_change_shows_its_sign() {
        assert_eq!(Bytes(5).minus(Bytes(5)).to_string(), "±0");
        assert_eq!(Bytes(0).minus(Bytes(MIB)).to_string(), "-1.00 MiB");
        assert_eq!(Bytes(MIB).minus(Bytes(0)).to_string(), "+1.00 MiB");
    }

    #[test]
    fn never_shows_less_than_the_truth_by_more_than_half_a_unit() {
        // AC-3: walk sizes over every unit and compare the text, read back, with the value.
        let mut n: u64 = 1;
        while n < u64::MAX / 3 {
            let text = Bytes(n).to_string();
            let (figure, unit) = text.split_once(' ').unwrap();
            let factor = match unit {
                "B" => 1.0,
                "KiB" => KIB as f64,
                "MiB" => MIB as f64,
                "GiB" => GIB as f64,
                "TiB" => TIB as f64,
                "PiB" => TIB as f64 * 1024.0,
                _ => TIB as f64 * 1024.0 * 1024.0,
            };
            let decimals = figure.split_once('.').map_or(0, |(_, d)| d.len() as i32);
            let half = factor * 10f64.powi(-decimals) / 2.0;
            assert!(
                (figure.parse::<f64>().unwrap() * factor - n as f64).abs() <= half * 1.000_001,
                "{n} {text}"
            );
            n = n * 3 + 1;
        }
    }
}
