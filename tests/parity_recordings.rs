//! Every recording of the real allocator, replayed: not one value may differ.

use std::path::{Path, PathBuf};

use alloctop::parity::{Format, replay_bytes, replay_file, run};

fn recordings(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.is_file() && f.extension().is_some_and(|e| e != "md"));
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Replays every file; `least` values must be compared for each operation.
fn replay(folder: &str, least: u64) {
    for file in recordings(folder) {
        let tally = replay_file(&file, None).unwrap();
        let name = file.file_name().unwrap().to_string_lossy();
        assert_eq!((tally.differences, tally.first.as_deref()), (0, None), "{name}");
        assert!(tally.operations > 0);
        let least = if name.starts_with("train-") { 4 } else { least };
        assert!(
            tally.compared >= tally.operations * least,
            "{name}: {} of {}",
            tally.compared,
            tally.operations
        );
    }
}

#[test]
fn golden_recordings_of_six_releases() {
    replay("", 119);
}

#[test]
fn traces_of_a_real_card() {
    replay("traces", 119);
}

#[test]
fn snapshot_pickles() {
    replay("snapshots", 4);
}

#[test]
fn wrong_rules_show() {
    // The rules of 2.15 order equal blocks otherwise, and have one key more.
    let file = recordings("")
        .into_iter()
        .find(|f| f.to_string_lossy().contains("2.1.2"))
        .unwrap();
    let rules = alloctop::allocator::Rules::of("2.15").unwrap();
    let tally = replay_file(&file, Some(&rules)).unwrap();
    assert!(tally.differences > 0);
    let first = tally.first.unwrap();
    assert!(first.starts_with("line 1 step 1 "), "{first}");
}

#[test]
fn results_as_json() {
    let files = &recordings("snapshots")[..2];
    let mut out = Vec::new();
    assert!(run(files, Format::Json, None, &mut out).unwrap());
    let rows: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    for key in ["file", "operations", "compared", "differences", "first"] {
        assert!(rows[0].get(key).is_some(), "{key}");
    }
}

#[test]
fn damaged_files_are_errors_with_their_place() {
    let line = r#"{"torch":"2.11.0","conf":"","device_total":629145600,"start":{"max_split_size":-1},"steps":["#;
    for (bytes, says) in [
        (String::new(), "the file is empty"),
        ("\u{1f}\u{8b}".to_owned(), "not a recording"),
        ("hello".to_owned(), "line 1"),
        (format!("{line}]}}\n{line}"), "line 2"),
        (format!(r#"{line}{{"op":["dance"]}}]}}"#), "unknown operation \"dance\""),
        (format!(r#"{line}{{"op":["free","b1",false,false]}}]}}"#), "b1 is freed but not allocated"),
        (format!(r#"{line}{{"op":["malloc","b1",-5,0,false]}}]}}"#), "not a whole number"),
        (format!(r#"{line}{{"op":[]}}]}}"#), "without a name"),
        (format!(r#"{line}{{"op":["end_pool",1]}}]}}"#), "not redirected"),
        (r#"{"torch":"1.9","conf":"","device_total":1,"steps":[]}"#.to_owned(), "1.9"),
        (r#"{"torch":"2.11","conf":"x:1","device_total":1,"steps":[]}"#.to_owned(), "Unrecognized key 'x'"),
        (r#"{"torch":"2.11","conf":"","device_total":18446744073709551615,"steps":[]}"#.to_owned(), "a device of"),
        (r#"{"torch":"2.11","conf":"","events":[["alloc",1]]}"#.to_owned(), "line 1"),
        (r#"{"torch":"2.11","conf":"","base":{"num_ooms":3},"ops":[],"events":[]}"#.to_owned(), "num_ooms = 3"),
        (r#"{"torch":"2.11","conf":"","events":[["free_requested",512,1,0]]}"#.to_owned(), "freed but not allocated"),
        (r#"{"torch":"2.11","conf":"","events":[["segment_alloc",18446744073709551104,2097152,0],["alloc",18446744073709551104,512,0]]}"#.to_owned(), "beyond all memory"),
        (r#"{"torch":"2.11","conf":"","events":[["segment_alloc",4096,2097152,0],["alloc",4096,1048576,0],["alloc",1052672,1048576,0],["segment_alloc",4096,2097152,0],["alloc",4096,512,0]]}"#.to_owned(), "given out twice"),
    ] {
        let error = format!("{:#}", replay_bytes(bytes.as_bytes(), None).unwrap_err());
        assert!(error.contains(says), "{bytes}\n gives {error}");
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }
}

#[test]
fn truncated_and_flipped_files_never_panic() {
    use std::io::Read;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let pickle = std::fs::read(
        recordings("snapshots")
            .into_iter()
            .find(|f| f.ends_with("pool.pickle"))
            .unwrap(),
    )
    .unwrap();
    let mut golden = String::new();
    let file = recordings("")
        .into_iter()
        .find(|f| f.to_string_lossy().contains("2.15"))
        .unwrap();
    flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap())
        .read_to_string(&mut golden)
        .unwrap();
    let line = golden.lines().min_by_key(|l| l.len()).unwrap().as_bytes().to_vec();
    for bytes in [pickle, line] {
        for _ in 0..60 {
            let mut damaged = bytes.clone();
            match random() % 3 {
                0 => damaged.truncate((random() % bytes.len() as u64) as usize),
                1 => {
                    let at = (random() % bytes.len() as u64) as usize;
                    damaged[at] = random() as u8;
                }
                _ => {
                    let at = (random() % bytes.len() as u64) as usize;
                    damaged.splice(at..at, [b'9'; 3]);
                }
            }
            let _ = replay_bytes(&damaged, None);
        }
    }
}

#[test]
fn a_bomb_is_refused_and_a_file_name_cannot_act() {
    use std::io::Write;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a\u{1b}[2Jb\u{202e}.gz");
    let mut bomb = flate2::write::GzEncoder::new(std::fs::File::create(&file).unwrap(), flate2::Compression::best());
    bomb.write_all(b"\x80\x04(").unwrap();
    bomb.write_all(&vec![b']'; 4 << 20]).unwrap();
    bomb.finish().unwrap();
    let mut out = Vec::new();
    let error = format!("{:#}", run(&[file], Format::Table, None, &mut out).unwrap_err());
    assert!(
        error.contains("it is refused") && error.contains("a?[2Jb?.gz"),
        "{error}"
    );
    let file = folder.path().join("good\u{1b}[2J.pickle");
    std::fs::copy("tests/torch/snapshots/pool.pickle", &file).unwrap();
    assert!(run(&[file], Format::Table, None, &mut out).unwrap());
    assert!(String::from_utf8(out).unwrap().starts_with("good?[2J.pickle"));
}
