//! Every generation of PyTorch's layout is found by discovery and read exactly, shifted layouts too (issue 3; AC-46).

mod attach_target;

use alloctop::attach::{Attached, Backend, Read, Route};
use alloctop::reading::{Reading, WhyKind};
use alloctop::source::DeviceIdentity;
use attach_target::model::{self, FREE_LARGE, FREE_SMALL};
use attach_target::{Plan, Target, below, expected};

const RELEASES: [u32; 9] = [20, 21, 23, 25, 29, 211, 212, 213, 215];

fn read(attached: &mut Attached) -> Read {
    match attached.read() {
        Reading::Is(read) => read,
        Reading::Missing(why) => panic!("{why:?}"),
    }
}

#[test]
fn every_release_is_read_exactly() {
    for release in RELEASES {
        let plan = Plan {
            devices: 2,
            private_pools: if release >= 213 { 2 } else { 0 },
            ..Plan::release(release)
        };
        let mut target = Target::initialised(&plan);
        let mut attached = target.attach();
        assert_eq!(attached.backend(), &Backend::Native);
        assert_eq!(attached.route(), Route::Library);
        assert!(attached.library().ends_with("libc10_cuda.so"));
        for n in [1, 2, 3, 17, 1000, 123_456_789, 0] {
            target.say(&format!("seq {n}"));
            let read = read(&mut attached);
            assert_eq!(read.devices.len(), 2);
            for (ordinal, device) in read.devices.iter().enumerate() {
                assert_eq!(device.ordinal as usize, ordinal);
                assert!(device.fresh);
                if n != 0 || plan.private_pools == 0 {
                    assert_eq!(
                        device.stats,
                        expected(n, &plan),
                        "{release} {n}: {}",
                        attached.describe_layout()
                    );
                }
            }
        }
    }
}

#[test]
fn untouched_devices_and_settings_do_not_hide_a_layout() {
    for release in RELEASES {
        for (devices, max_split) in [(8, -1), (1, 128 << 20)] {
            let plan = Plan {
                devices,
                max_split,
                idle_rest: true,
                ..Plan::release(release)
            };
            let mut target = Target::initialised(&plan);
            target.say("seq 0");
            let mut attached = target.attach();
            assert_eq!(read(&mut attached).devices[0].stats, expected(0, &plan), "{release}");
            target.say("seq 77");
            let read = read(&mut attached);
            assert_eq!(read.devices[0].stats, expected(77, &plan), "{release}");
            for device in &read.devices[1..] {
                assert_eq!(device.stats, expected(0, &plan), "{release}");
            }
        }
    }
}

#[test]
fn shifted_layouts_are_found_too() {
    let mut state = 0x1234_5678_9abc_def1;
    for round in 0..40 {
        let release = RELEASES[round % RELEASES.len()];
        let plan = Plan {
            devices: 1 + below(&mut state, 4) as usize,
            vector: 8 + below(&mut state, 0xc00) as usize,
            before_stats: below(&mut state, 20) as usize,
            gap: below(&mut state, 20) as usize,
            between_pools: 1 + below(&mut state, 10) as usize,
            before_reserved: below(&mut state, 40) as usize,
            pool_member: 6 + below(&mut state, 6) as usize,
            max_split: [-1, 64 << 20][below(&mut state, 2) as usize],
            seed: state,
            ..Plan::release(release)
        };
        let mut target = Target::initialised(&plan);
        target.say("seq 12345");
        let mut attached = target.attach();
        let first = read(&mut attached);
        assert_eq!(first.devices[0].stats, expected(12345, &plan), "{plan:?}");
        target.say("seq 12348");
        attached.survey();
        let second = read(&mut attached);
        assert_eq!(second.devices[0].stats, expected(12348, &plan), "{plan:?}");
        assert_eq!(second.devices[0].largest_free, Reading::Is(FREE_LARGE[4]), "{plan:?}");
    }
}

#[test]
fn a_shifted_layout_without_proof_is_unknown_and_no_guess() {
    let plan = Plan {
        before_stats: 6,
        gap: 3,
        ..Plan::release(25)
    };
    let mut target = Target::initialised(&plan);
    target.say("seq 0");
    let why = target.refusal();
    assert_eq!(why.kind, WhyKind::Unknown);
    assert!(why.text.contains("unknown layout"), "{why}");
    // Counters that contradict one another are no layout either.
    target.say("seq 500");
    target.say("poke 0 11 1");
    assert_eq!(target.refusal().kind, WhyKind::Unknown);
    target.say("seq 501");
    assert_eq!(read(&mut target.attach()).devices[0].stats, expected(501, &plan));
}

#[test]
fn other_routes_lead_to_the_same_allocator() {
    let plan = Plan::release(211);
    let hidden = attach_target::built().join("hidden/libc10_cuda.so");
    let library = attach_target::built().join("libc10_cuda.so");
    let cases = [
        (Target::start("program", None, &plan, &[]), "load 0", Route::Program),
        (
            Target::start("loader", Some(&hidden), &plan, &[]),
            "load 0",
            Route::TypeInfo,
        ),
        (
            Target::start("copied", Some(&library), &plan, &[]),
            "load_program",
            Route::Program,
        ),
    ];
    for (mut target, load, route) in cases {
        let library_loaded = load == "load_program";
        target.say(load);
        assert_eq!(target.refusal().kind, WhyKind::NotYet, "{route:?}");
        target.say("init");
        target.say("seq 42");
        let mut attached = target.attach();
        assert_eq!(attached.route(), route);
        let file = if route == Route::Program && !library_loaded {
            "program"
        } else {
            "libc10_cuda.so"
        };
        assert!(attached.library().ends_with(file), "{}", attached.library().display());
        assert_eq!(read(&mut attached).devices[0].stats, expected(42, &plan), "{route:?}");
    }
}

#[test]
fn a_deleted_library_makes_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("libc10_cuda.so");
    std::fs::copy(attach_target::built().join("libc10_cuda.so"), &copy).unwrap();
    let plan = Plan::release(215);
    let mut target = Target::start("loader", Some(&copy), &plan, &[]);
    target.say("load 0");
    target.say("init");
    // Upgraded in place: another file under the old name.
    std::fs::remove_file(&copy).unwrap();
    std::fs::write(&copy, b"\x7fELF something else").unwrap();
    target.say("seq 9");
    let mut attached = target.attach();
    assert_eq!(read(&mut attached).devices[0].stats, expected(9, &plan));
    assert!(attached.library().ends_with("libc10_cuda.so"));
}

#[test]
fn other_back_ends_are_named() {
    for (class, backend) in [
        (1, Backend::CudaMallocAsync),
        (2, Backend::Pluggable),
        (3, Backend::Other("N4acme9?[2JAllocatorE".into())),
    ] {
        let mut target = Target::library(&Plan::release(211));
        target.say(&format!("load {class}"));
        let mut attached = target.attach();
        assert_eq!(attached.backend(), &backend);
        let why = attached.read().why().cloned().unwrap();
        assert_eq!(why.kind, WhyKind::Absent);
        assert!(why.text.contains(&backend.describe()), "{why}");
        assert!(!why.text.chars().any(char::is_control));
    }
}

fn card(n: usize) -> DeviceIdentity {
    let hex = format!("{:032x}", u128::from_be_bytes(model::uuid(n)));
    let uuid = format!(
        "GPU-{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    );
    DeviceIdentity {
        index: n as u32,
        uuid,
        name: "NVIDIA H200".into(),
        pci: Reading::not_yet(),
        simulated: false,
        unified: false,
    }
}

#[test]
fn cards_limits_and_free_blocks_are_read_where_they_prove_themselves() {
    let cards: Vec<DeviceIdentity> = (0..4).map(card).collect();
    let uuids = |attached: &mut Attached| -> Vec<Reading<String>> {
        read(attached).devices.iter().map(|d| d.uuid.clone()).collect()
    };
    for release in RELEASES {
        for limit in [0, 6 << 30] {
            let plan = Plan {
                devices: 2,
                limit,
                expandable: limit != 0 && release >= 21,
                ..Plan::release(release)
            };
            let library = attach_target::built().join("libc10_cuda.so");
            let mut target = Target::start("loader", Some(&library), &plan, &[("CUDA_VISIBLE_DEVICES", "3,1")]);
            target.say("load 0");
            target.say("init");
            let mut attached = target.attach();
            attached.identify(&cards);
            for n in 2..5 {
                target.say(&format!("seq {n}"));
                attached.survey();
            }
            let device = read(&mut attached).devices[0].clone();
            let largest = *FREE_LARGE.iter().chain(&FREE_SMALL).max().unwrap();
            assert_eq!(device.largest_free, Reading::Is(largest), "{release}");
            assert_eq!(device.expandable, Reading::Is(plan.expandable), "{release}");
            // The target keeps 2.1's layout of the limit in 2.0 too, where it was never examined in the real library.
            let wanted = (limit != 0).then_some(limit);
            assert_eq!(device.memory_limit, Reading::Is(wanted), "{release}");
            let wanted = if plan.property { [0, 1] } else { [3, 1] };
            assert_eq!(
                uuids(&mut attached),
                wanted.map(|n| Reading::Is(cards[n].uuid.clone())),
                "{release}"
            );
        }
    }
}
