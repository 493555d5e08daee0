//! What is found at the start: the monitor library, the devices to show, the driver of the embedded allocator. Nothing of
//! CUDA is loaded here (AC-18).

use std::path::Path;

use crate::attach::{ProcRoot, Process};
use crate::cli::{Backend, Options};
use crate::driver::cuda::CudaDevice;
use crate::driver::sim::{SimDevice, SimSpec};
use crate::reading::{Reading, Why};
use crate::source::nvml::Nvml;
use crate::source::{DeviceActivity, DeviceIdentity, DeviceMemory, DeviceMonitor, DeviceProcess};
use crate::worker::BackendChoice;

/// What was found.
pub struct Found {
    /// Where the device's figures come from.
    pub monitor: Box<dyn DeviceMonitor>,
    /// Where the allocator gets its memory; none while another process is watched from the start.
    pub backend: Option<BackendChoice>,
    /// The devices to show, in order, by the monitor's index.
    pub devices: Vec<DeviceIdentity>,
    /// A sentence for the user: why the device is simulated, or why there is none.
    pub note: Option<String>,
}

/// A monitor where there is none: every answer is the reason.
struct NoMonitor(Why);

impl DeviceMonitor for NoMonitor {
    fn devices(&mut self) -> Reading<Vec<DeviceIdentity>> {
        Reading::Missing(self.0.clone())
    }
    fn memory(&mut self, _: u32) -> Reading<DeviceMemory> {
        Reading::Missing(self.0.clone())
    }
    fn processes(&mut self, _: u32) -> Reading<Vec<DeviceProcess>> {
        Reading::Missing(self.0.clone())
    }
    fn activity(&mut self, _: u32) -> Reading<DeviceActivity> {
        Reading::Missing(self.0.clone())
    }
    fn driver_version(&mut self) -> Reading<String> {
        Reading::Missing(self.0.clone())
    }
}

/// The monitor alone: what `-p`, `--once` and `--json` look through. `--backend sim` never touches a real card.
pub fn monitor(options: &Options, spec: &SimSpec) -> Box<dyn DeviceMonitor> {
    if options.backend == Backend::Sim && options.pid.is_empty() {
        return Box::new(SimDevice::new(spec.clone()).monitor());
    }
    match open_nvml(options.nvml.as_deref()) {
        Ok((nvml, _)) => Box::new(nvml),
        Err(why) => Box::new(NoMonitor(why)),
    }
}

/// NVML with at least one device, or the reason.
fn open_nvml(path: Option<&Path>) -> Result<(Nvml, Vec<DeviceIdentity>), Why> {
    match Nvml::open(path) {
        Reading::Missing(why) => Err(why),
        Reading::Is(mut nvml) => match nvml.devices() {
            Reading::Is(devices) => Ok((nvml, devices)),
            Reading::Missing(why) => Err(why),
        },
    }
}

/// Looks for everything. May take tens of milliseconds: not for the drawing thread.
///
/// # Errors
/// A device that was asked for is not there, or `--backend cuda` without a device; the sentence names the next step.
pub fn find(options: &Options, spec: &SimSpec, visible: Option<&str>) -> Result<Found, String> {
    let watching = !options.pid.is_empty();
    let simulated = |note: Option<String>| -> Result<Found, String> {
        // Its streams' work ends with real time.
        let device = SimDevice::with_clock(spec.clone(), std::sync::Arc::new(crate::clock::RealClock::start()));
        let mut monitor = device.monitor();
        let devices = monitor.devices().value().cloned().unwrap_or_default();
        let devices = select(&devices, &options.gpu, None).map_err(|error| match &note {
            Some(note) => format!("{error}. {note}"),
            None => error,
        })?;
        Ok::<_, String>(Found {
            monitor: Box::new(monitor),
            backend: Some(BackendChoice::Sim(device)),
            devices,
            note,
        })
    };
    if options.backend == Backend::Sim && !watching {
        return simulated(None);
    }
    match open_nvml(options.nvml.as_deref()) {
        Ok((nvml, devices)) => {
            let devices = select(&devices, &options.gpu, visible)?;
            let backend = match (watching, devices.first()) {
                (true, _) => None,
                (false, Some(first)) => Some(BackendChoice::Cuda(CudaDevice::Uuid(first.uuid.clone()))),
                (false, None) => return Err("no device to show: CUDA_VISIBLE_DEVICES hides all; pass --gpu".into()),
            };
            Ok(Found {
                monitor: Box::new(nvml),
                backend,
                devices,
                note: None,
            })
        }
        Err(why) if watching => Ok(Found {
            note: Some(why.text.to_string()),
            monitor: Box::new(NoMonitor(why)),
            backend: None,
            devices: Vec::new(),
        }),
        Err(why) if options.backend == Backend::Cuda => Err(no_card(&why)),
        Err(why) => simulated(Some(format!("This GPU is simulated: {why}"))),
    }
}

/// What `--backend cuda` says where there is no card.
pub fn no_card(why: &Why) -> String {
    format!("{why}; without a card, pass --backend sim")
}

/// Checks that process `pid` exists and may be seen, before a screen is opened for it.
///
/// # Errors
/// One sentence: it does not exist, has ended, or /proc hides it.
pub fn check_process(root: &ProcRoot, pid: u32) -> Result<(), String> {
    match Process::open(root, pid) {
        Ok(_) => Ok(()),
        Err(_) if !root.dir(pid).exists() => Err(format!(
            "process {pid} does not exist, or is not visible here: look it up with ps (inside a container, processes of \
             the host are visible only with --pid=host)"
        )),
        Err(why) => Err(why.text.into_owned()),
    }
}

/// The devices that `wanted` names (index, UUID or its beginning, PCI bus id), in that order. Without a wish, those that
/// CUDA_VISIBLE_DEVICES names by UUID; its plain numbers count in CUDA's own order, which a monitor does not know, and so
/// hide nothing.
pub fn select(
    devices: &[DeviceIdentity],
    wanted: &[String],
    visible: Option<&str>,
) -> Result<Vec<DeviceIdentity>, String> {
    let matches = |device: &DeviceIdentity, name: &str| {
        let name = name.trim();
        device.index.to_string() == name
            || (name.len() >= 8 && device.uuid.starts_with(name))
            || device.pci.value().is_some_and(|pci| {
                pci.eq_ignore_ascii_case(name)
                    || pci
                        .to_ascii_lowercase()
                        .ends_with(&format!(":{}", name.to_ascii_lowercase()))
            })
    };
    if wanted.is_empty() {
        let named: Vec<DeviceIdentity> = visible
            .unwrap_or_default()
            .split(',')
            .filter(|name| name.trim().starts_with("GPU-"))
            .filter_map(|name| devices.iter().find(|d| matches(d, name)).cloned())
            .collect();
        return Ok(if named.is_empty() { devices.to_vec() } else { named });
    }
    wanted
        .iter()
        .map(|name| {
            devices.iter().find(|d| matches(d, name)).cloned().ok_or_else(|| {
                let known: Vec<String> = devices.iter().map(|d| format!("{} ({})", d.index, d.uuid)).collect();
                format!(
                    "--gpu {}: no such GPU here; there is {}",
                    crate::source::printable::printable(name.as_bytes(), 60),
                    known.join(", ")
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, uuid: &str, pci: &str) -> DeviceIdentity {
        DeviceIdentity {
            index,
            uuid: uuid.into(),
            name: "card".into(),
            pci: Reading::Is(pci.into()),
            simulated: false,
            unified: false,
        }
    }

    #[test]
    fn devices_are_chosen_by_index_uuid_or_bus() {
        let all = [
            device(0, "GPU-aaaaaaaa-1", "00000000:17:00.0"),
            device(1, "GPU-bbbbbbbb-2", "00000000:65:00.0"),
        ];
        let chosen = |wanted: &[&str], visible: Option<&str>| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            select(&all, &wanted, visible).map(|d| d.iter().map(|d| d.index).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[], None), Ok(vec![0, 1]));
        assert_eq!(chosen(&["1", "0"], None), Ok(vec![1, 0]));
        assert_eq!(chosen(&["GPU-bbbbbbbb"], None), Ok(vec![1]));
        assert_eq!(chosen(&["65:00.0"], None), Ok(vec![1]));
        assert_eq!(chosen(&[], Some("GPU-bbbbbbbb-2")), Ok(vec![1]));
        assert_eq!(
            chosen(&[], Some("1")),
            Ok(vec![0, 1]),
            "CUDA's numbers are not the monitor's"
        );
        assert!(
            chosen(&["7"], None)
                .unwrap_err()
                .contains("there is 0 (GPU-aaaaaaaa-1), 1")
        );
        assert!(!chosen(&["\x1b[2J"], None).unwrap_err().contains('\x1b'));
    }

    #[test]
    fn a_process_is_looked_for_before_the_screen_is_taken() {
        let root = ProcRoot::default();
        assert_eq!(check_process(&root, std::process::id()), Ok(()));
        let said = check_process(&root, 4_000_000).unwrap_err();
        assert!(said.starts_with("process 4000000 does not exist"), "{said}");
    }

    #[test]
    fn the_simulated_device_is_the_only_one_beside_it() {
        use clap::Parser;
        let options = |args: &[&str]| crate::cli::Cli::parse_from(args).options;
        let find = |args: &[&str]| find(&options(args), &SimSpec::default(), None);
        assert!(find(&["alloctop", "--backend", "sim", "--gpu", "0"]).is_ok());
        let said = find(&["alloctop", "--backend", "sim", "--gpu", "7"]).err().unwrap();
        assert!(said.contains("--gpu 7: no such GPU here; there is 0"), "{said}");
        let nowhere = ["alloctop", "--nvml", "/nowhere", "--gpu", "foo"];
        let said = find(&nowhere).err().unwrap();
        assert!(
            said.contains("This GPU is simulated") && !said.contains("--backend sim"),
            "{said}"
        );
        let said = find(&["alloctop", "--nvml", "/nowhere", "--backend", "cuda"])
            .err()
            .unwrap();
        assert_eq!(said.matches("--backend sim").count(), 1, "{said}");
    }
}
