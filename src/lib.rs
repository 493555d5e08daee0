//! alloctop: where is the memory, and which of my actions moved it?
//!
//! Four live graphs on one clock (CPU RAM, driver VRAM, a caching allocator's *allocated* and *reserved*), a bill that adds
//! up to the device's total, and one sentence about what just happened. Data flows one way:
//!
//! ```text
//! source, attach, driver::sim --read--> sample::sampler --Sample--> sample::{history, bill} --+
//!                                                                                             +--> app::view --View--> ui
//! keys --app::action--> app::update --Effect--> app::run --Command--> worker --Outcome--------+
//! ```
//!
//! # The rooms
//!
//! - [`units`], [`reading`], [`clock`]: bytes and their one formatter; a value or the reason why there is none; moments.
//! - [`allocator`]: PyTorch's caching allocator, release by release: no I/O, no clock, no threads. [`driver`]: what it gets
//!   memory from: `sim` and `cuda`, and adaptors around them. [`budget`] bounds both. [`worker`]: the thread that owns them.
//! - [`source`]: where figures come from: host, NVML, processes. [`attach`]: the counters of a live PyTorch process.
//! - [`sample`]: the sampler (one thread and one deadline a source), the history in tiers, the bill.
//! - [`app`]: the application as a state machine, its action table, its loop and its terminal. [`ui`]: panes, as functions of
//!   a view. [`panics`] and [`log`]: what happens when something goes wrong.
//! - [`cli`], [`boot`]: what was typed, and what was found. [`experiment`], [`parity`], [`once`], [`doctor`]: the commands.
//!   [`snapshot`]: files that PyTorch's own tools open.
//!
//! # Invariants, and the test that guards each
//!
//! - The allocator equals PyTorch's: counters, placements, segment calls (`tests/parity_recordings.rs`,
//!   `tests/allocator_examples.rs`), and its own invariants hold after every operation (`tests/allocator_properties.rs`).
//! - The bill's lines and *unexplained* sum to the device's total exactly; an unknown line is never part of another
//!   (`sample::bill::tests`); each line equals the simulated device's books (`tests/worker_bill.rs`).
//! - Unknown is not zero: every missing figure is a [`reading::Reading::Missing`] with its reason
//!   (`tests/nvml_answers.rs`, `tests/attach_refusals.rs`).
//! - Down-sampling loses no spike and holes stay holes (`sample::history::tests`); a stalled source delays nothing else
//!   (`tests/sampler_ticks.rs`).
//! - A pane is a pure function of a view and stays inside its area at every size (`tests/frames`, `ui::layout::tests`).
//! - One table of actions feeds keys, help, footer and README (`app::action::tests`); every key acts (`tests/terminal`).
//! - The terminal is given back on every way out, and gets no byte when no cell changed (`tests/terminal`).
//! - Nothing of CUDA is loaded before the first GPU allocation (`tests/cuda_loading.rs`); a refusal by the budget moves no
//!   counter (`tests/worker_failures.rs`).
//! - The clock is read in [`clock`] alone, the words of the screen use binary units with their i (`tests/house_rules.rs`).
//!
//! Deliberately absent: a way from a pane to the application, a lock in the drawing path, a driver call in the loop's
//! thread, a colour named outside [`ui::theme`].

pub mod allocator;
pub mod app;
pub mod attach;
pub mod boot;
pub mod budget;
pub mod cli;
pub mod clock;
pub mod doctor;
pub mod driver;
pub mod experiment;
pub mod log;
pub mod once;
pub mod panics;
pub mod parity;
pub mod reading;
pub mod sample;
pub mod snapshot;
pub mod source;
pub mod ui;
pub mod units;
pub mod worker;
