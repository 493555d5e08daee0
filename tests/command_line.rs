//! The program as it is typed: what it refuses, with which exit code, and that nothing that acts on a terminal gets out.

use assert_cmd::Command;

/// Exit code, standard output, standard error. No monitor library is found, whatever this machine has.
fn run(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_alloctop"))
        .args(args)
        .env_remove("ALLOCTOP_BACKEND")
        .env("ALLOCTOP_NVML", "/nowhere/libnvidia-ml.so.1")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_cannot_be_done_is_refused_with_a_sentence() {
    for (args, words) in [
        (&["--once", "--torch", "9"][..], "--torch has no meaning"),
        (&["--json", "--gpu", "7"], "--gpu 7: there is no GPU here"),
        (&["-1", "--backend", "cuda"], "without a card, pass --backend sim"),
        (&["--json", "--user", "nobodyx"], "no user of this name"),
        (&["--budget", "nan"], "\"nan\" is no size"),
        (&["experiment", "--torch", "1.0"], "no PyTorch release"),
        (&["experiment", "--alloc-conf", "foo:bar"], "foo"),
        (&["experiment", "--gpu", "7"], "--gpu 7: no such GPU here"),
        (&["--sim", "\u{1b}[2J=1", "experiment"], "the keys are"),
        (&["parity", "/nowhere/\u{1b}[2J\u{202e}"], "cannot be opened"),
        (&["--\u{1b}[2J"], "unexpected argument"),
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(words), "{args:?}: {err}");
        assert!(!err.contains(['\u{1b}', '\u{202e}']), "{args:?}: {err:?}");
    }
}

#[test]
fn a_look_without_a_card_says_why_once_and_exits_with_1() {
    let (code, out, err) = run(&["-1"]);
    assert_eq!((code, err.as_str()), (1, ""));
    assert_eq!(out.matches("/nowhere/libnvidia-ml.so.1").count(), 1, "{out}");
    let (code, out, _) = run(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, json["devices"].as_array().unwrap().len()), (1, 0));
    let (code, out, _) = run(&["-1", "--backend", "sim"]);
    assert!(code == 0 && out.contains("SIMULATED"), "{out}");
    let (code, out, _) = run(&["-1", "-p", "4000000"]);
    assert_eq!((code, out.matches("process 4000000").count()), (1, 1), "{out}");
    let (code, out, _) = run(&["-1", "-p", &std::process::id().to_string()]);
    assert_eq!(code, 0, "{out}");
}

#[test]
fn json_is_json_however_it_is_asked_for() {
    let small = ["--shape", "2000x3000", "--backend", "sim"];
    for args in [
        &["doctor", "--json"][..],
        &["doctor", "--format", "json"],
        &[&["experiment", "--json"], &small[..]].concat(),
        &[&["experiment", "--format", "json", "--sim", "total=24GiB"], &small[..]].concat(),
        &["parity", "--json", "tests/torch/snapshots/pool.pickle"],
    ] {
        let (_, out, err) = run(args);
        let json: Result<serde_json::Value, _> = serde_json::from_str(&out);
        assert!(json.is_ok(), "{args:?}: {out} {err}");
    }
}

#[test]
fn exit_codes_are_in_the_help() {
    let (code, out, _) = run(&["--help"]);
    assert!(code == 0 && out.contains("Exit codes: 0 fine; 1"), "{out}");
}
