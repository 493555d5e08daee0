//! Targets that lie, are damaged or change under our hands never hurt us: no panic, no unbounded work, nothing raw on the
//! screen (issue 3).

mod attach_target;

use std::time::{Duration, Instant};

use alloctop::attach::{Attached, ProcRoot, Search};
use alloctop::reading::{Reading, WhyKind};
use attach_target::{Plan, Target, below, expected};

/// No single call may take longer, whatever the target does. (Usual: a few milliseconds; a slow CI machine: more.)
const PATIENCE: Duration = Duration::from_secs(10);

/// Attaches, reads and surveys, and checks what comes out of it.
fn endure(target: &Target) -> Option<Attached> {
    let start = Instant::now();
    let outcome = Attached::find(&ProcRoot::default(), target.pid());
    assert!(start.elapsed() < PATIENCE, "find took {:?}", start.elapsed());
    match outcome {
        Reading::Missing(why) => {
            assert!(!why.text.chars().any(char::is_control), "{why:?}");
            None
        }
        Reading::Is(mut attached) => {
            exercise(&mut attached);
            Some(attached)
        }
    }
}

fn exercise(attached: &mut Attached) {
    let start = Instant::now();
    if let Reading::Missing(why) = attached.read() {
        assert!(!why.text.chars().any(char::is_control), "{why:?}");
    }
    attached.survey();
    let _ = attached.read();
    let told = format!(
        "{} {} {:?} {:?}",
        attached.library().display(),
        attached.describe_layout(),
        attached.torch_version(),
        attached.configuration()
    );
    assert!(!told.chars().any(char::is_control), "{told:?}");
    assert!(start.elapsed() < PATIENCE, "a read took {:?}", start.elapsed());
}

#[test]
fn wild_words_in_a_device() {
    let mut state = 0x5eed_5eed_5eed_5eed;
    for release in [21, 211, 215] {
        let plan = Plan {
            devices: 2,
            private_pools: usize::from(release == 215),
            ..Plan::release(release)
        };
        let mut target = Target::initialised(&plan);
        target.say("seq 1000");
        let (object, device) = target.places();
        let mut attached = target.attach();
        for _ in 0..60 {
            let word = below(&mut state, plan.tree_at() as u64 + 40);
            let value = interesting(&mut state, object, device);
            target.say(&format!("poke 0 {word} {value}"));
            exercise(&mut attached);
            endure(&target);
        }
        // The counters themselves are written again: an intact lock and layout would be read again.
        target.say("seq 1001");
        endure(&target);
    }
}

/// Values that a careless reader follows or adds up.
fn interesting(state: &mut u64, object: u64, device: u64) -> u64 {
    let wild = [
        0,
        1,
        u64::MAX,
        i64::MAX as u64,
        i64::MIN as u64,
        1 << 50,
        0x3f00_0000_0000_ffff,
        object,
        object + 8,
        device,
        device + 8 * below(state, 300),
        0x7fff_ffff_f000,
        0xffff_8000_0000_0000,
        1 << 20,
    ];
    wild[below(state, wild.len() as u64) as usize]
}

#[test]
fn wild_words_in_the_object() {
    let mut state = 0x0bad_c0de_0bad_c0de;
    let plan = Plan::release(211);
    let mut target = Target::initialised(&plan);
    let (object, device) = target.places();
    for _ in 0..60 {
        let word = [
            0,
            1,
            4,
            5,
            6,
            plan.vector as u64,
            plan.vector as u64 + 1,
            plan.vector as u64 + 2,
        ];
        let word = word[below(&mut state, 8) as usize];
        let value = interesting(&mut state, object, device);
        target.say(&format!("poke_object {word} {value}"));
        endure(&target);
        let value = [0, 8, object + 8, device, u64::MAX][below(&mut state, 5) as usize];
        target.say(&format!("poke_symbol {value}"));
        endure(&target);
        target.say("load 0");
    }
}

#[test]
fn an_object_full_of_vectors_costs_a_bounded_search() {
    // Every three words look like a vector of 128 devices; every "device" is a recursive mutex, and no more.
    let plan = Plan::release(211);
    let mut target = Target::initialised(&plan);
    let (object, device) = target.places();
    for word in 1..0x1000 {
        let value = if word < 0xe00 {
            object + 8 * word
        } else {
            (device & !15) + 16 * (word & 0xff)
        };
        target.say(&format!("poke_object {word} {value}"));
    }
    for word in 0..0xfff {
        target.say(&format!("poke 0 {word} 1"));
    }
    assert!(endure(&target).is_none());
}

#[test]
fn trees_that_bite_their_tails() {
    let plan = Plan::release(211);
    let mut target = Target::initialised(&plan);
    target.say("seq 10");
    let (_, device) = target.places();
    let mut attached = target.attach();
    let tree = plan.tree_at() as u64;
    // The root is the header itself; then a count that no walk should believe.
    target.say(&format!("poke 0 {} {}", tree + 2, device + 8 * (tree + 1)));
    attached.survey();
    let device_read = attached.read().value().unwrap().devices[0].clone();
    assert!(device_read.largest_free.value().is_none());
    assert_eq!(device_read.stats, expected(10, &plan), "the counters do not suffer");
    target.say(&format!("poke 0 {} {}", tree + 5, 1 << 26));
    exercise(&mut attached);
}

#[test]
fn a_map_of_pools_that_lies_leaves_the_counters_alone() {
    let plan = Plan {
        private_pools: 2,
        ..Plan::release(215)
    };
    let mut target = Target::initialised(&plan);
    target.say("seq 10");
    let map = plan.stats_at() + 72;
    for (word, value) in [
        (map, 0x1000u64),
        (map, 0x7fff_ffff_0000),
        (map + 1, (1 << 31) - 1),
        (map + 3, 3),
    ] {
        let mut attached = target.attach();
        assert_eq!(
            attached.read().value().unwrap().devices[0].private_pools,
            Reading::Is(2)
        );
        target.say(&format!("save 0 {word}"));
        target.say(&format!("poke 0 {word} {value}"));
        let device = attached.read().value().unwrap().devices[0].clone();
        assert!(device.fresh);
        assert!(device.private_pools.value().is_none(), "{word} {value:#x}");
        assert_eq!(device.stats.allocated_bytes, expected(10, &plan).allocated_bytes);
        target.say(&format!("restore 0 {word}"));
        assert_eq!(
            attached.read().value().unwrap().devices[0].private_pools,
            Reading::Is(2)
        );
    }
}

#[test]
fn memory_that_goes_away() {
    let mut target = Target::initialised(&Plan::release(211));
    let mut attached = target.attach();
    target.say("hide_device");
    let why = attached.read().why().cloned().unwrap();
    assert_eq!(why.kind, WhyKind::NotYet, "{why}");
    assert!(endure(&target).is_none());
}

#[test]
fn dying_and_exec_at_any_moment() {
    for round in 0..40u64 {
        let mut target = Target::initialised(&Plan::release(211));
        let pid = target.pid();
        let reader = std::thread::spawn(move || {
            let mut attached = None;
            for _ in 0..2000 {
                match &mut attached {
                    None => {
                        if let Reading::Is(found) = Attached::find(&ProcRoot::default(), pid) {
                            attached = Some(found);
                        }
                    }
                    Some(found) => {
                        found.survey();
                        if let Reading::Missing(why) = found.read() {
                            return Some(why);
                        }
                    }
                }
            }
            None
        });
        std::thread::sleep(Duration::from_micros(97 * round));
        if round % 2 == 0 {
            target.kill();
        } else {
            target.say("exec");
        }
        if let Some(why) = reader.join().expect("the reader does not panic") {
            assert_eq!(why.kind, WhyKind::Gone, "{why}");
        }
    }
}

#[test]
fn a_name_full_of_escape_sequences() {
    let folder = tempfile::tempdir().unwrap();
    let trick = folder.path().join("a\x1b[2J\nb (deleted) \u{202e}");
    std::fs::create_dir(&trick).unwrap();
    let library = trick.join("libc10_cuda.so");
    std::fs::copy(attach_target::built().join("libc10_cuda.so"), &library).unwrap();
    let mut target = Target::start(
        "loader",
        Some(&library),
        &Plan::release(211),
        &[("PYTORCH_CUDA_ALLOC_CONF", "x\x1b]0;y\x07")],
    );
    target.say("name");
    target.say("load 0");
    target.say("init");
    let attached = endure(&target).expect("it is read all the same");
    assert_eq!(attached.configuration(), Reading::Is(Some("x?]0;y?".into())));
}

#[test]
fn damaged_libraries_and_lying_headers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libc10_cuda.so");
    let good = std::fs::read(attach_target::built().join("libc10_cuda.so")).unwrap();
    let map = |bytes: &[u8]| {
        // A new file each time: the old one may still be mapped.
        let _ = std::fs::remove_file(&file);
        std::fs::write(&file, bytes).unwrap();
        let target = Target::mapping(&file);
        let start = Instant::now();
        let outcome = Attached::find(&ProcRoot::default(), target.pid());
        assert!(start.elapsed() < PATIENCE);
        outcome.why().cloned()
    };
    let with = |at: usize, bytes: &[u8]| {
        let mut copy = good.clone();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        copy
    };
    for length in [1, 4, 16, 63, 64, 100, 1000, 4096, 5000] {
        assert!(map(&good[..length]).is_some(), "truncated to {length}");
    }
    // A 32-bit file, another machine, another byte order.
    let narrow = map(&with(4, &[1])).unwrap();
    assert!(narrow.text.contains("32-bit"), "{narrow}");
    let foreign = map(&with(18, &[243, 0])).unwrap();
    assert!(foreign.text.contains("another processor"), "{foreign}");
    assert!(map(&with(5, &[2])).unwrap().text.contains("another processor"));
    // Header fields: program header table offset, entry size, count; then every field of the first headers.
    for (at, size) in [(32, 8), (54, 2), (56, 2)] {
        assert!(map(&with(at, &vec![0xff; size])).is_some());
        assert!(map(&with(at, &vec![0; size])).is_some());
    }
    let mut state = 0x0e1f_0e1f_0e1f_0e1f;
    for _ in 0..60 {
        let mut copy = good.clone();
        for _ in 0..=below(&mut state, 8) {
            let at = below(&mut state, 0x1400) as usize;
            copy[at] = [0, 0xff, 0x7f, 1, 0x80][below(&mut state, 5) as usize];
        }
        // The tables of the header and the symbol hash, bit by bit: whatever it is, it is survived.
        let _ = map(&copy);
    }
}

#[test]
fn a_search_asks_again_and_finds() {
    let mut search = Search::default();
    let root = ProcRoot::default();
    let mut target = Target::library(&Plan::release(211));
    for _ in 0..3 {
        assert_eq!(
            search.find(&root, target.pid()).why().map(|w| w.kind),
            Some(WhyKind::NotYet)
        );
    }
    target.say("load 0");
    target.say("init");
    // At the latest when its trust in the old answer ends.
    let found = (0..20).any(|_| search.find(&root, target.pid()).value().is_some());
    assert!(found);
    target.kill();
    assert_eq!(
        search.find(&root, target.pid()).why().map(|w| w.kind),
        Some(WhyKind::Gone)
    );
}
