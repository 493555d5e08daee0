//! Values of flags: intervals, sizes, the simulated device.

use std::time::Duration;

use crate::driver::sim::SimSpec;
use crate::source::printable::printable;
use crate::units::{Bytes, GIB, KIB, MIB, TIB};

/// `500ms`, `1s`, `0.5` (seconds); 10 ms to 10 s.
pub fn interval(text: &str) -> Result<Duration, String> {
    let (figure, unit) = if let Some(ms) = text.strip_suffix("ms") {
        (ms, 1e-3)
    } else {
        (text.strip_suffix('s').unwrap_or(text), 1.0)
    };
    let seconds = figure
        .trim()
        .parse::<f64>()
        .map_err(|_| "write 500ms, 1s or 0.5".to_string())?
        * unit;
    if (0.01..=10.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("the interval is 10ms to 10s".into())
    }
}

/// A process id.
pub fn pid(text: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err("write the number of a process, e.g. -p 4242".into()),
    }
}

/// `800000000`, `512KiB`, `4GiB`: binary units with their i, since a bare GB means two things.
pub fn size(text: &str) -> Result<Bytes, String> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (figure, unit) = text.split_at(end);
    let wrong = || format!("{:?} is no size: write 512MiB or 4GiB", printable(text.as_bytes(), 40));
    if figure.trim().is_empty() {
        return Err(wrong());
    }
    let factor = match unit {
        "" | "B" => 1,
        "KiB" | "K" => KIB,
        "MiB" | "M" => MIB,
        "GiB" | "G" => GIB,
        "TiB" | "T" => TIB,
        other => {
            let other = printable(other.as_bytes(), 20);
            return Err(format!("{other} is no unit here: write B, KiB, MiB, GiB or TiB"));
        }
    };
    let value = figure.trim().parse::<f64>().map_err(|_| wrong())?;
    let bytes = value * factor as f64;
    if !bytes.is_finite() || bytes < 0.0 || bytes >= u64::MAX as f64 {
        return Err(wrong());
    }
    Ok(Bytes(bytes.round() as u64))
}

/// The simulated device with the figures of `--sim` put in.
pub fn sim_spec(settings: &[String]) -> Result<SimSpec, String> {
    let mut spec = SimSpec::default();
    for setting in settings {
        let shown = printable(setting.as_bytes(), 80);
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| format!("--sim {shown}: write KEY=SIZE, e.g. total=24GiB"))?;
        if key == "name" {
            spec.name = printable(value.as_bytes(), 60);
            continue;
        }
        let bytes = size(value).map_err(|e| format!("--sim {shown}: {e}"))?.0;
        match key {
            "total" => spec.total = bytes,
            "reserved" => spec.driver_reserved = bytes,
            "context" => spec.context = bytes,
            "kernel" => spec.first_kernel = bytes,
            "unattributed" => spec.unattributed = bytes,
            _ => {
                return Err(format!(
                    "--sim {shown}: the keys are total, reserved, context, kernel, unattributed, name"
                ));
            }
        }
    }
    if spec.driver_reserved > spec.total {
        return Err("--sim: reserved is more than total".into());
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "5ms", "11", "nan", "-1s", "1m", "inf"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_say_which_unit() {
        assert_eq!(size("4GiB"), Ok(Bytes(4 * GIB)));
        assert_eq!(size("1.5 MiB"), Ok(Bytes(MIB * 3 / 2)));
        assert_eq!(size("800000000"), Ok(Bytes(800_000_000)));
        for wrong in ["nan", "", "inf", "GiB"] {
            assert!(size(wrong).unwrap_err().contains("is no size"), "{wrong}");
        }
        assert!(!size("\u{1b}[2Jx").unwrap_err().contains('\u{1b}'));
        for wrong in ["1GB", "x", "-1", "1e30", "nan", "1 PiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_simulated_device_can_be_any_card() {
        let spec = sim_spec(&["total=24GiB".into(), "context=400MiB".into(), "name=My card".into()]).unwrap();
        assert_eq!(
            (spec.total, spec.context, spec.name.as_str()),
            (24 * GIB, 400 * MIB, "My card")
        );
        assert!(
            sim_spec(&["total=1MiB".into()]).is_err(),
            "the driver's part does not fit"
        );
        for hostile in ["\u{1b}[2J", "\u{1b}[2J=1", "total=\u{1b}[2J", "total=1\u{1b}[2J"] {
            assert!(
                !sim_spec(&[hostile.into()]).unwrap_err().contains('\u{1b}'),
                "{hostile:?}"
            );
        }
        assert!(sim_spec(&["colour=1".into()]).unwrap_err().contains("keys are"));
    }
}
