//! The binary: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    match alloctop::cli::Cli::read(std::env::args_os()) {
        Ok(cli) => alloctop::cli::run::run(cli),
        Err(error) => alloctop::cli::run::say(&error),
    }
}
