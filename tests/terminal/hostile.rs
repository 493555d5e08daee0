//! Terminals, signals and input that mean no good: whatever happens, keys and signals act, and the terminal is given back.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::session::Session;
use crate::{SMALL, small};

/// More than a pty holds is written at the start and with each Ctrl-L.
const LARGE: (u16, u16) = (200, 60);

/// Nothing is read any more; the program is in the middle of a frame.
fn stall(s: &mut Session) {
    s.hold(true);
    for _ in 0..4 {
        s.type_keys("\x0c");
        sleep(Duration::from_millis(100));
    }
}

/// The program ends soon, with that code, and the terminal gets back what can be given to it.
fn ends(s: &mut Session, code: u32) {
    let start = Instant::now();
    assert_eq!(s.end().exit_code(), code);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    s.assert_cooked();
    // The terminal reads on: what comes first leaves the screen.
    s.hold(false);
    sleep(Duration::from_millis(200));
    s.assert_restored();
}

#[test]
fn a_stalled_terminal_does_not_hold_the_program() {
    for (keys, signal, code) in [
        ("q", None, 0),
        ("\x03", None, 0),
        ("", Some(Signal::SIGTERM), 143),
        ("", Some(Signal::SIGHUP), 129),
    ] {
        let mut s = small(LARGE.0, LARGE.1);
        stall(&mut s);
        s.type_keys(keys);
        if let Some(signal) = signal {
            s.signal(signal);
        }
        ends(&mut s, code);
    }
}

#[test]
fn a_panic_before_a_stalled_terminal_ends_the_program() {
    for thread in ["main", "sampler"] {
        let mut s = Session::stalled(LARGE.0, LARGE.1, &["--backend", "sim", "--panic-in", thread]);
        ends(&mut s, 101);
    }
}

#[test]
fn a_terminal_that_reads_again_shows_what_is_now() {
    let mut s = small(LARGE.0, LARGE.1);
    stall(&mut s);
    s.type_keys("gg");
    sleep(Duration::from_millis(300));
    s.hold(false);
    s.see("2 live");
    s.type_keys("q");
    assert_eq!(s.end().exit_code(), 0);
    s.assert_restored();
}

#[test]
fn a_terminal_that_claims_to_be_huge_is_drawn_in_part() {
    let mut s = small(80, 24);
    s.claim(65535, 65535);
    sleep(Duration::from_millis(300));
    s.resize(80, 24);
    s.type_keys("g");
    s.see("1 live");
    s.type_keys("q");
    assert_eq!(s.end().exit_code(), 0);
    s.assert_restored();
}

#[test]
fn signals_end_it_from_the_moment_it_has_the_terminal() {
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
        (Signal::SIGUSR1, 138),
        (Signal::SIGUSR2, 140),
        (Signal::SIGALRM, 142),
        (Signal::SIGXCPU, 152),
        (Signal::SIGVTALRM, 154),
        (Signal::SIGPROF, 155),
        (Signal::SIGIO, 157),
        (Signal::SIGPWR, 158),
    ] {
        let mut s = Session::start(80, 24, &SMALL);
        s.wait_taken();
        s.signal(signal);
        assert_eq!(s.end().exit_code(), code, "{signal}");
        s.assert_restored();
    }
    let mut s = small(80, 24);
    s.signal(Signal::SIGPIPE);
    s.type_keys("g");
    s.see("1 live");
}

#[test]
fn incomplete_sequences_keep_no_key_from_acting() {
    let mut s = small(120, 36);
    for (n, bytes) in ["\x1b[200~", "\x1b[?", "\x1b[<", "\x1b[M", "\x1b[1;", "\x1b]0;", "\x1bP"]
        .iter()
        .enumerate()
    {
        s.type_keys(bytes);
        sleep(Duration::from_millis(200));
        s.type_keys("g");
        s.see(&format!("{} live", n + 1));
    }
    for bytes in ["\x1b[200~", "\x1b[?", "\x1b[<", "\x1b"] {
        let mut s = small(80, 24);
        s.type_keys(bytes);
        s.type_keys("\x03");
        assert_eq!(s.end().exit_code(), 0, "{bytes:?} and Ctrl-C");
        s.assert_restored();
    }
}

#[test]
fn ctrl_c_quits_whatever_is_open() {
    for (keys, seen) in [
        ("?", "this help"),
        ("i", "what each figure is"),
        ("w", "write to a file"),
        ("p", "configuration of a fresh allocator"),
        ("x", "processes"),
        ("x/", "processes"),
    ] {
        let mut s = small(140, 60);
        s.type_keys(keys);
        s.see(seen);
        s.type_keys("\x03");
        assert_eq!(s.end().exit_code(), 0, "{keys} and Ctrl-C");
        s.assert_restored();
    }
}

#[test]
fn without_a_terminal_to_read_from_it_says_so() {
    let mut s = Session::without_input(100, 30, &SMALL);
    assert_eq!(s.end().exit_code(), 2);
    let text = s.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("standard input is no terminal"), "{text}");
    assert!(text.contains("--once"), "{text}");
    s.assert_restored();
}
