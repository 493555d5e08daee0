//! Rules of the house that a reader would otherwise have to remember, checked on the sources.

use std::path::{Path, PathBuf};

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut out = Vec::new();
    let mut todo = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            out.push((path, text));
        }
    }
    out
}

/// Lines of `folder` that satisfy `wrong`, but for files whose name ends in one of `except`.
fn offenders(folder: &str, except: &[&str], wrong: impl Fn(&str) -> bool) -> Vec<String> {
    sources(folder)
        .into_iter()
        .filter(|(path, _)| !except.iter().any(|e| path.ends_with(e)))
        .flat_map(|(path, text)| {
            text.lines()
                .enumerate()
                .filter(|(_, line)| wrong(line))
                .map(|(n, line)| format!("{}:{}: {}", path.display(), n + 1, line.trim()))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn the_clock_is_read_in_one_file() {
    let found = offenders("src", &["clock.rs"], |line| {
        line.contains("SystemTime::now") || (line.contains("Instant::now") && !line.contains("tokio"))
    });
    // The loop paces its frames on tokio's own clock, which it sleeps on.
    let found: Vec<_> = found.into_iter().filter(|l| !l.contains("app/run.rs")).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_bare_decimal_unit_stands_beside_binary_ones() {
    // AC-31: KB, MB, GB, TB without an i, as words of their own, in what the program can print.
    let decimal = |word: &str| ["KB", "MB", "GB", "TB"].contains(&word);
    let found = offenders("src/ui", &[], |line| {
        let code = line.split("//").next().unwrap_or_default();
        code.contains('"') && code.split(|c: char| !c.is_ascii_alphanumeric()).any(decimal)
    });
    assert!(found.is_empty(), "{found:#?}");
    let found = offenders("src/app", &[], |line| {
        let code = line.split("//").next().unwrap_or_default();
        code.contains('"') && code.split(|c: char| !c.is_ascii_alphanumeric()).any(decimal)
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn unsafe_stands_where_it_may() {
    // Design rule 14: the CUDA driver and foreign memory; beside them the raw NVML lists that no wrapper has.
    let found = offenders("src", &[], |line| {
        line.contains("unsafe {") || line.contains("unsafe fn")
    });
    let allowed = ["src/driver/cuda", "src/attach", "src/source/nvml"];
    let found: Vec<_> = found
        .into_iter()
        .filter(|l| !allowed.iter().any(|a| l.contains(a)))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}
