//! The binary: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = alloctop::cli::Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    alloctop::cli::run::run(cli)
}
