//! The alloctop binary: parse, run, exit code.

fn main() {}
