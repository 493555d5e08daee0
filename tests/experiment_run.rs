//! `alloctop experiment` as a whole: parent, child process and verdict. This file is its own main program, because the
//! parent starts its program once more as the child, and because RSS belongs to a whole process.

use std::io::Write;

use alloctop::allocator::Settings;
use alloctop::driver::adapt::Keeping;
use alloctop::driver::sim::{SimDevice, SimSpec};
use alloctop::experiment::judge::{Documented, Verdict, judge};
use alloctop::experiment::{self, Backend, Bench, ExperimentOptions, Format, StepReading};
use alloctop::reading::{Reading, WhyKind};
use alloctop::source::DeviceMonitor;
use alloctop::units::Bytes;
use alloctop::worker::{BackendChoice, Dtype, Setup};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) == Some(experiment::CHILD) {
        let no_monitor = Box::new(|| Reading::missing(WhyKind::Absent, "no NVML in this test"));
        let code = experiment::child(&args[2], no_monitor, &mut std::io::stdout()).unwrap();
        std::process::exit(code.into());
    }
    if args.iter().any(|a| a == "--list") {
        return;
    }
    for (name, test) in [
        ("the simulated device agrees in every step", agrees as fn()),
        ("the table says the same to people", table),
        ("without a monitor nothing can be said", no_monitor),
        ("a refused step is unknown, and so is what follows", refused),
        (
            "rules, configuration and device are those that were asked for",
            asked_for,
        ),
        ("what does not fit the device does not agree", too_large),
        ("a driver that keeps memory on free is found out", keeps_memory),
    ] {
        test();
        println!("test {name} ... ok");
    }
}

fn options(format: Format) -> ExperimentOptions {
    ExperimentOptions {
        backend: Backend::Sim,
        shape: "2500x4000".parse().unwrap(),
        dtype: Dtype::Float32,
        format,
        budget: None,
        torch: None,
        conf: String::new(),
        sim: Vec::new(),
    }
}

/// Runs the parent; exit code, standard output, standard error.
fn run(options: &ExperimentOptions) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let program = std::env::current_exe().unwrap();
    let code = experiment::run(options, &program, &mut out, &mut err).unwrap();
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn agrees() {
    let (code, out, err) = run(&options(Format::Json));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (json["schema"].as_u64(), json["backend"].as_str()),
        (Some(1), Some("sim"))
    );
    let steps = json["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().filter_map(|s| s["step"].as_str()).collect();
    assert_eq!(
        names,
        [
            "start",
            "cpu_zeros",
            "cpu_del",
            "context",
            "gpu_zeros",
            "gpu_del",
            "flush",
            "flush_again"
        ]
    );
    let column = |key: &str| steps.iter().map(|s| s[key].as_u64()).collect::<Vec<_>>();
    let (block, segment, context) = (40_000_000, 41_943_040, 543_162_368 + 96_468_992);
    assert_eq!(
        column("allocated_bytes")[3..7],
        [Some(0), Some(block), Some(0), Some(0)]
    );
    assert_eq!(
        column("reserved_bytes")[3..7],
        [Some(0), Some(segment), Some(segment), Some(0)]
    );
    assert_eq!(
        column("process_vram_bytes"),
        [0, 0, 0, context, context + segment, context + segment, context, context].map(Some)
    );
    assert_eq!(column("device_used_bytes")[7], Some(context + 9_240_576));
    assert_eq!(column("allocated_peak_bytes")[6..], [Some(block); 2]);
    assert_eq!(column("reserved_peak_bytes")[3], Some(2 << 20));
    for step in steps {
        assert_eq!(step.as_object().unwrap().len(), 10);
        assert!(step["cost_us"].is_number());
        assert_eq!(step["agrees"], true);
    }
}

fn table() {
    let (code, out, _) = run(&options(Format::Table));
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("2500x4000 float32 = 40000000 B on NVIDIA H200 (SIMULATED)"),
        "{out}"
    );
    assert!(out.contains("all 8 steps agree with the documentation"), "{out}");
    assert!(out.contains("40.0 MiB +40.0 MiB"), "{out}");
    std::io::stdout().write_all(out.as_bytes()).unwrap();
}

fn no_monitor() {
    let (code, out, err) = run(&ExperimentOptions {
        backend: Backend::Cuda("GPU-0".into()),
        ..options(Format::Json)
    });
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("could not be run"), "{err}");
}

fn refused() {
    let (code, out, err) = run(&ExperimentOptions {
        budget: Some(Bytes(50_000_000)),
        shape: "60000000".parse().unwrap(),
        dtype: Dtype::UInt8,
        ..options(Format::Json)
    });
    assert_eq!(code, 2, "{out}");
    assert!(
        err.contains("cpu_zeros: 57.2 MiB more would pass the budget of 47.7 MiB"),
        "{err}"
    );
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&json["steps"][0]["agrees"], &json["steps"][1]["agrees"]),
        (&true.into(), &serde_json::Value::Null)
    );
    assert!(json["steps"][4]["agrees"].is_null());
}

fn asked_for() {
    for (torch, conf) in [
        (None, "expandable_segments:True"),
        (Some("2.5"), "expandable_segments:True"),
        (Some("2.2"), ""),
        (None, "roundup_power2_divisions:4"),
        (Some("2.0"), "max_split_size_mb:21,roundup_power2_divisions:8"),
        (None, "large_segment_size_mb:64,expandable_segments:True"),
        (None, "garbage_collection_threshold:0.6"),
    ] {
        let (code, out, err) = run(&ExperimentOptions {
            torch: torch.map(str::to_owned),
            conf: conf.into(),
            sim: vec!["total=24GiB".into(), "name=My card".into()],
            ..options(Format::Table)
        });
        assert_eq!((code, err.as_str()), (0, ""), "{torch:?} {conf}: {out}");
        let release = torch.map_or("2.15", |t| t);
        assert!(
            out.contains(&format!("on My card (SIMULATED), rules of torch {release}")),
            "{out}"
        );
        assert!(conf.is_empty() || out.contains(conf), "{out}");
    }
    let (code, _, err) = run(&ExperimentOptions {
        conf: "foo:bar".into(),
        ..options(Format::Table)
    });
    assert!(code == 2 && err.contains("could not be run"), "{err}");
}

fn too_large() {
    for sim in ["total=1MiB", "total=560MiB"] {
        let (code, out, _) = run(&ExperimentOptions {
            sim: vec![sim.into(), "reserved=0".into(), "kernel=0".into()],
            ..options(Format::Json)
        });
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(code, 2, "{out}");
        assert!(json["steps"][4]["agrees"].is_null(), "{out}");
    }
}

fn keeps_memory() {
    let options = options(Format::Json);
    let device = SimDevice::new(SimSpec::default());
    let mut monitor = device.monitor();
    let identity = monitor.devices().value().unwrap()[0].clone();
    let backend = BackendChoice::Other(Box::new(move || {
        Box::new(Keeping::new(device.driver(std::process::id())))
    }));
    let mut out = Vec::new();
    let bench = Bench {
        backend,
        monitor: Box::new(monitor),
        device: identity,
    };
    experiment::steps_on(bench, Setup::default(), &options, &mut out).unwrap();
    let lines = String::from_utf8(out).unwrap();
    let steps: Vec<StepReading> = lines
        .lines()
        .skip(1)
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let documented = Documented::of(options.shape.bytes(options.dtype), &Settings::default()).unwrap();
    let verdicts = judge(&steps, &documented);
    let disagree: Vec<&str> = steps
        .iter()
        .zip(&verdicts)
        .filter(|(_, v)| matches!(v, Verdict::Disagrees(_)))
        .map(|(s, _)| s.step.name())
        .collect();
    // The driver's figure does not fall with the flush, although every counter says 0.
    assert_eq!(disagree, ["flush"], "{verdicts:?}");
    assert_eq!(experiment::exit_code(&verdicts), 1);
}
