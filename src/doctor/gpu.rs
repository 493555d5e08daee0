//! Checks of the GPU's side: library, driver, devices, device files, what the driver tells.

use std::fs::OpenOptions;
use std::path::Path;

use super::{Check, Scene, Verdict};
use crate::reading::Reading;
use crate::source::nvml::{Nvml, candidates};
use crate::source::printable::printable;
use crate::source::{DeviceIdentity, DeviceMonitor, MemoryInfoVersion};

pub(super) fn checks(scene: &Scene<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    // AC-15: a static program cannot load a shared library.
    if cfg!(all(target_env = "musl", target_feature = "crt-static")) {
        checks.push(
            Check::new(
                "build",
                Verdict::Warn,
                "this build is static: it cannot load NVIDIA's libraries",
            )
            .step("use the build for glibc to see a GPU"),
        );
    }
    match Nvml::open(scene.nvml.as_deref()) {
        Reading::Is(mut nvml) => {
            let path = printable(nvml.path().as_os_str().as_encoded_bytes(), 200);
            checks.push(Check::new("NVML", Verdict::Pass, format!("loaded {path}")));
            checks.extend(with_library(&mut nvml));
        }
        Reading::Missing(why) => checks.push(Check::missing("NVML", &why)),
    }
    checks.push(cuda_library());
    checks.extend(device_files(&scene.dev_root));
    checks
}

/// Driver, devices, and what each device tells.
fn with_library(nvml: &mut Nvml) -> Vec<Check> {
    let mut checks = vec![match nvml.driver_version() {
        Reading::Is(version) => Check::new("driver", Verdict::Pass, version),
        Reading::Missing(why) => Check::missing("driver", &why),
    }];
    match nvml.devices() {
        Reading::Is(devices) => {
            for device in &devices {
                checks.extend(of_device(nvml, device));
            }
        }
        Reading::Missing(why) => checks.push(Check::missing("devices", &why)),
    }
    for (index, why) in nvml.refused() {
        checks.push(Check::missing(format!("GPU {index}"), &why));
    }
    checks
}

/// Memory and processes of one device.
fn of_device(nvml: &mut Nvml, device: &DeviceIdentity) -> Vec<Check> {
    let name = format!("GPU {}", device.index);
    let mut text = format!("{} {}", device.name, device.uuid);
    if device.unified {
        text += ", uses the host's memory";
    }
    let mut checks = vec![Check::new(name.clone(), Verdict::Pass, text)];
    checks.push(match nvml.memory(device.index) {
        Reading::Missing(why) => Check::missing(format!("{name} memory"), &why),
        Reading::Is(m) if m.version == MemoryInfoVersion::V1 => Check::new(
            format!("{name} memory"),
            Verdict::Warn,
            format!(
                "{} in all; this driver counts its own part as used (\"incl. driver\")",
                m.total
            ),
        )
        .step("a driver from 510 on gives the two apart"),
        Reading::Is(m) => Check::new(
            format!("{name} memory"),
            Verdict::Pass,
            format!("{} in all, {} free", m.total, m.free),
        ),
    });
    checks.push(match nvml.processes(device.index) {
        Reading::Missing(why) => Check::missing(format!("{name} processes"), &why),
        Reading::Is(list) => match list.iter().find_map(|p| p.vram.why()) {
            Some(why) => Check::missing(format!("{name} processes"), why),
            None => Check::new(
                format!("{name} processes"),
                Verdict::Pass,
                format!("{} listed with their bytes", list.len()),
            ),
        },
    });
    checks
}

/// Whether libcuda is installed, without loading it: by the loader's cache and the folders where drivers put it.
fn cuda_library() -> Check {
    const NAME: &str = "libcuda.so.1";
    let in_folder = candidates(None)
        .into_iter()
        .map(|nvml| nvml.with_file_name(NAME))
        .find(|path| path.is_absolute() && path.exists());
    let cached =
        || std::fs::read("/etc/ld.so.cache").is_ok_and(|cache| cache.windows(NAME.len()).any(|w| w == NAME.as_bytes()));
    match in_folder {
        Some(path) => Check::new("CUDA driver", Verdict::Pass, format!("{} is installed", path.display())),
        None if cached() => Check::new("CUDA driver", Verdict::Pass, format!("{NAME} is known to the loader")),
        None => Check::new(
            "CUDA driver",
            Verdict::Warn,
            format!("{NAME} was not found: the embedded allocator uses a simulated GPU"),
        )
        .step("install NVIDIA's driver to allocate on a real one; watching other processes does not need it"),
    }
}

/// The device files: that they exist and may be opened.
fn device_files(dev: &Path) -> Vec<Check> {
    let mut names: Vec<String> = std::fs::read_dir(dev)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            name.strip_prefix("nvidia")
                .is_some_and(|rest| rest == "ctl" || (!rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())))
        })
        .collect();
    names.sort();
    if names.is_empty() {
        return vec![
            Check::new("device files", Verdict::Warn, "there is no /dev/nvidia0")
                .step("load the driver's kernel module; in a container, start it with --gpus"),
        ];
    }
    let refused: Vec<&str> = names
        .iter()
        .filter(|name| OpenOptions::new().read(true).write(true).open(dev.join(name)).is_err())
        .map(String::as_str)
        .collect();
    if refused.is_empty() {
        return vec![Check::new(
            "device files",
            Verdict::Pass,
            format!("{} may be opened", names.join(", ")),
        )];
    }
    vec![
        Check::new(
            "device files",
            Verdict::Fail,
            format!("{} may not be opened", refused.join(", ")),
        )
        .step("check their rights (ls -l /dev/nvidia*) and your groups (video, render)"),
    ]
}
