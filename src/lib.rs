//! alloctop: where is the memory, and which of my actions moved it?
#![doc = ""]

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
