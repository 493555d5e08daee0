//! The binary: parse, run, exit code.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    alloctop::cli::run::run(alloctop::cli::Cli::parse())
}
