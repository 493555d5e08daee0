//! `alloctop doctor`: what works here, what does not, and what to do about it (issue 3, point 4). The checks are data; the
//! text and the JSON document are two ways to print them. Nothing is changed, no CUDA library is loaded, no process is
//! touched beyond what watching it does.

use std::path::PathBuf;

use serde::Serialize;

use crate::reading::{Reading, Why, WhyKind};

mod gpu;
mod system;
mod terminal;

pub use terminal::Screen;

/// The schema of the JSON document.
pub const SCHEMA: &str = "alloctop.doctor/1";

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Pass,
    /// Something is missing or limited; the rest works.
    Warn,
    /// Something is here and broken or refused.
    Fail,
}

impl Verdict {
    /// The word on the screen.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "PASS",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at, in one or two words.
    pub name: String,
    /// How it went.
    pub verdict: Verdict,
    /// What was found; one line without control characters.
    pub text: String,
    /// What to do; none where there is nothing to do or `text` says it.
    pub next_step: Option<String>,
}

impl Check {
    fn new(name: impl Into<String>, verdict: Verdict, text: impl Into<String>) -> Self {
        Check {
            name: name.into(),
            verdict,
            text: text.into(),
            next_step: None,
        }
    }

    fn step(mut self, next_step: impl Into<String>) -> Self {
        self.next_step = Some(next_step.into());
        self
    }

    /// A missing reading: what does not exist here is a warning, what is refused or broken a failure.
    fn missing(name: impl Into<String>, why: &Why) -> Self {
        let verdict = match why.kind {
            WhyKind::Absent | WhyKind::NotYet => Verdict::Warn,
            _ => Verdict::Fail,
        };
        Check::new(name, verdict, why.text.clone())
    }
}

/// What the checks look at; tests put folders and sentences of their own in.
pub struct Scene<'a> {
    /// Where /proc is.
    pub proc_root: PathBuf,
    /// Where /dev is.
    pub dev_root: PathBuf,
    /// The path given with `--nvml`.
    pub nvml: Option<PathBuf>,
    /// Environment variables by name.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The terminal.
    pub screen: Screen,
    /// What reading a process's allocator finds: a description of it, or the reason why not.
    pub torch: &'a dyn Fn(u32) -> Reading<String>,
}

impl<'a> Scene<'a> {
    /// The real machine. `torch` describes the allocator of a process, or says why it cannot be read.
    pub fn here(nvml: Option<PathBuf>, torch: &'a dyn Fn(u32) -> Reading<String>) -> Self {
        Scene {
            proc_root: "/proc".into(),
            dev_root: "/dev".into(),
            nvml,
            environment: &|name| std::env::var(name).ok(),
            screen: Screen::here(),
            torch,
        }
    }
}

/// All checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// In the order in which they are printed.
    pub checks: Vec<Check>,
}

/// Runs all checks.
pub fn examine(scene: &Scene<'_>) -> Report {
    let mut checks = gpu::checks(scene);
    checks.extend(system::checks(scene));
    checks.extend(terminal::checks(scene));
    Report { checks }
}

impl Report {
    /// The worst verdict.
    pub fn verdict(&self) -> Verdict {
        self.checks.iter().map(|c| c.verdict).max().unwrap_or(Verdict::Pass)
    }

    /// 0 all pass, 1 a warning, 2 a failure.
    pub fn exit_code(&self) -> u8 {
        self.verdict() as u8
    }

    /// One line a check, its next step on a line of its own.
    pub fn text(&self) -> String {
        let width = self
            .checks
            .iter()
            .map(|c| c.name.chars().count())
            .max()
            .unwrap_or_default();
        let line = |check: &Check| {
            let step = check.next_step.as_ref();
            let step = step.map_or_else(String::new, |step| format!("{:6}{:width$}  -> {step}\n", "", ""));
            format!(
                "{}  {:width$}  {}\n{step}",
                check.verdict.word(),
                check.name,
                check.text
            )
        };
        self.checks.iter().map(line).collect()
    }

    /// The document for programs: `{schema, verdict, checks: [{name, verdict, text, next_step}]}`.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "schema": SCHEMA,
            "verdict": self.verdict(),
            "checks": self.checks,
        })
    }
}
