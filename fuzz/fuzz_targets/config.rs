//! Any text as the allocator's configuration, under the rules of an old and of the newest release: an answer or an error,
//! never a panic; what was accepted is accepted again.
#![no_main]

use alloctop::allocator::{Config, Rules};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for release in ["2.1", "2.8", "2.15"] {
        let rules = Rules::of(release).expect("an examined release");
        if Config::parse(text, &rules).is_ok() {
            assert!(Config::parse(text, &rules).is_ok());
        }
    }
});
