//! The whole program in a real pseudo-terminal: keys, sizes, signals, panics, locales, terminals. There is no GPU here: the
//! simulated device stands in.

use nix::sys::signal::Signal;

mod hostile;
mod session;

use session::Session;

/// The simulated device and small blocks: every test starts like this.
const SMALL: [&str; 4] = ["--backend", "sim", "--shape", "1024x1024"];

fn small(width: u16, height: u16) -> Session {
    let session = Session::start(width, height, &SMALL);
    session.see("peak");
    session
}

#[test]
fn the_lesson_g_d_f_moves_the_right_curves() {
    let mut s = small(120, 36);
    s.see("SIMULATED");
    s.type_keys("g");
    s.see("1 live");
    s.see("first use: CUDA context");
    let text = s.wait("reserved 20 MiB", |t| t.contains("20.0 MiB") && t.contains("4.00 MiB"));
    assert!(text.contains("cuMemAlloc"), "{text}");
    s.type_keys("d");
    s.see("inside the cache");
    s.see("0 live");
    s.type_keys("f");
    s.see("flush gave 20.0 MiB back");
    s.type_keys("c");
    s.see("of host memory");
    s.see("CPU  1024x1024");
    s.type_keys("D");
    s.see("went back to the kernel");
    s.type_keys("q");
    assert_eq!(s.end().exit_code(), 0);
    s.assert_restored();
}

#[test]
fn every_other_key_acts() {
    let mut s = small(140, 40);
    let mut press = |keys: &str, needle: &str| {
        s.type_keys(keys);
        s.see(needle);
        if keys == "\x1b" {
            // Escape and a key right after it are Alt and that key.
            std::thread::sleep(std::time::Duration::from_millis(150));
        }
    };
    press("]", "next 2560x1024");
    press("[", "next 1024x1024");
    press("a", "#1 ");
    press("g", "#2 ");
    press("S", "Stream 1 is current");
    press("n", "has work for");
    press("r", "pending");
    press("f", "flush");
    press("R", "Peaks start again");
    press(" ", "PAUSED");
    press("\x1b[D", "-6 s");
    press("Z", "now");
    press("+", "-30 s");
    press("-", "-60 s");
    press("--", "-5 min");
    press("=", "-60 s");
    press("y", "[total]");
    press("y", "[log]");
    press("y", "y scale: auto");
    press("m", "mark 1");
    press("?", "allocate a block on the GPU");
    press("\x1b[6~\x1b[6~\x1b[6~\x1b[6~\x1b[6~\x1b[6~", "this help");
    press("\x1b", "peak");
    press("i", "what each figure is");
    press("\x1b", "peak");
    press("b", "block strip");
    press("b", "peak");
    press("v", "there is one GPU");
    press("w", "write to a file");
    press("\x1b[B\r", "written: ");
    press("o", "out of memory");
    press("p", "configuration of a fresh allocator");
    press(
        "\x15max_split_size_mb:64\r",
        "A fresh allocator with max_split_size_mb:64",
    );
    press("x", "processes");
    press("x", "peak");
    press("3", "3 allocated");
    s.wait("panel 3 alone", |t| !t.contains("4 reserved"));
    s.type_keys("0");
    s.see("4 reserved");
    s.type_keys("\t\t");
    s.type_keys("e");
    s.wait("one panel", |t| !t.contains("4 reserved"));
    s.type_keys("e");
    s.see("4 reserved");
    s.type_keys("\x0c");
    s.see("peak");
    s.type_keys("\x03");
    assert_eq!(s.end().exit_code(), 0);
    s.assert_restored();
}

#[test]
fn storms_of_sizes_never_panic() {
    let mut s = small(80, 24);
    s.type_keys("g");
    let sizes = [
        (1, 1),
        (400, 100),
        (2, 50),
        (40, 12),
        (39, 11),
        (200, 2),
        (60, 20),
        (5, 5),
        (120, 36),
    ];
    for round in 0..12 {
        for (w, h) in sizes {
            s.resize(w, h);
            if round % 3 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(15));
            }
        }
    }
    s.see("1 live");
    s.resize(30, 8);
    s.see("needs 40x12");
    s.type_keys("q");
    assert_eq!(s.end().exit_code(), 0);
    s.assert_restored();
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let mut s = small(80, 24);
        s.assert_taken();
        s.signal(signal);
        assert_eq!(s.end().exit_code(), code, "{signal}");
        s.assert_restored();
    }
}

#[test]
fn a_panic_in_any_thread_leaves_the_terminal_as_it_was() {
    for thread in ["main", "allocator", "sampler"] {
        let mut s = Session::start(80, 24, &["--backend", "sim", "--panic-in", thread]);
        assert_eq!(s.end().exit_code(), 101, "{thread}");
        s.assert_restored();
        let text = s.text();
        assert!(text.contains("asked for by --panic-in"), "{thread}: {text}");
    }
}

#[test]
fn suspend_and_continue() {
    for by_key in [true, false] {
        let mut s = small(80, 24);
        if by_key {
            s.type_keys("\x1a");
        } else {
            s.signal(Signal::SIGTSTP);
        }
        let start = std::time::Instant::now();
        while s.state() != 'T' {
            assert!(start.elapsed().as_secs() < 20, "it does not stop");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        s.assert_restored();
        s.signal(Signal::SIGCONT);
        s.see("CPU RAM");
        s.assert_taken();
        s.type_keys("g");
        s.see("1 live");
        s.type_keys("q");
        assert_eq!(s.end().exit_code(), 0);
        s.assert_restored();
    }
}

#[test]
fn nothing_is_sent_while_nothing_changes() {
    let mut args = SMALL.to_vec();
    args.extend(["--interval", "10s"]);
    let s = Session::start(100, 30, &args);
    s.see("peak");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let before = s.bytes();
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(s.bytes() - before, 0, "bytes were sent although no cell changed");
}

#[test]
fn locales_choose_the_glyphs() {
    let ascii = |text: &str| text.is_ascii();
    for (env, wants_ascii) in [
        (&[("LANG", "C")][..], true),
        (&[("LANG", "POSIX")], true),
        (&[("LANG", "")], true),
        (&[("LANG", "en_US.UTF-8")], false),
        (&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")], true),
        (&[("LANG", "C"), ("LC_CTYPE", "C.UTF-8")], false),
    ] {
        let s = Session::with_env(100, 30, &SMALL, env);
        let text = s.see("peak");
        assert_eq!(ascii(&text), wants_ascii, "{env:?}:\n{text}");
    }
    for (flag, lang, wants_ascii) in [
        ("--ascii", "C.UTF-8", true),
        ("--utf8", "C", false),
        ("-U", "C.UTF-8", true),
    ] {
        let mut args = SMALL.to_vec();
        args.push(flag);
        let s = Session::with_env(100, 30, &args, &[("LANG", lang)]);
        assert_eq!(ascii(&s.see("peak")), wants_ascii, "{flag}");
    }
}

#[test]
fn every_terminal_shows_the_dashboard() {
    for (term, env) in [
        ("dumb", ("COLORTERM", "")),
        ("linux", ("COLORTERM", "")),
        ("screen", ("COLORTERM", "")),
        ("tmux-256color", ("COLORTERM", "")),
        ("xterm-256color", ("COLORTERM", "truecolor")),
        ("xterm-256color", ("NO_COLOR", "1")),
    ] {
        let mut s = Session::with_env(100, 30, &SMALL, &[("TERM", term), env]);
        s.see("peak");
        s.type_keys("g");
        s.see("1 live");
        s.type_keys("q");
        assert_eq!(s.end().exit_code(), 0, "{term}");
        s.assert_restored();
    }
}
