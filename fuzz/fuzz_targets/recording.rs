//! Any bytes as a recording (trace, golden file, training log, snapshot pickle, gzip of one): a tally or an error that names
//! the place, never a panic and never a growth without bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The gzip layer is a library's; behind it the same parsers stand.
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        let _ = alloctop::parity::replay_bytes(bytes, None);
    }
});
