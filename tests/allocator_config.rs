//! Settings from anywhere: whatever the text, the parser answers with a configuration that the allocator can use or with
//! a sentence, in every release.

use alloctop::allocator::rules::EXAMINED;
use alloctop::allocator::{Allocator, Config, Rules, Settings};
use alloctop::driver::StreamId;
use alloctop::parity::stand_in::StandIn;
use proptest::prelude::*;

/// What settings are made of, right and wrong.
fn token() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "max_split_size_mb",
        "max_non_split_rounding_mb",
        "large_segment_size_mb",
        "garbage_collection_threshold",
        "roundup_power2_divisions",
        "roundup_bypass_threshold_mb",
        "expandable_segments",
        "backend",
        "per_process_memory_fraction",
        "throw_on_cudamalloc_oom",
        "pinned_num_register_threads",
        "expandable_segments_reserve",
        "expandable_segments_reserve_by_class",
        "release_lock_on_cudamalloc",
        "True",
        "False",
        "native",
        "cudaMallocAsync",
        ":",
        ":",
        ":",
        ",",
        ",",
        "[",
        "]",
        ">",
        " ",
        "0",
        "1",
        "2",
        "4",
        "0.5",
        "64",
        "128",
        "-1",
        "1e300",
        "40G",
        "18446744073709551615",
        "99999999999999999999",
        "nan",
        "inf",
    ]);
    prop_oneof![9 => words.prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}

fn usable(text: &str) {
    for release in EXAMINED {
        let rules = Rules::of(&release.to_string()).unwrap();
        match Config::parse(text, &rules) {
            Err(error) => {
                assert!(!error.text.is_empty());
                assert!(!error.to_string().chars().any(char::is_control));
            }
            Ok(config) => {
                let mut allocator = Allocator::new(StandIn::new(1 << 30), Settings { rules, config });
                for bytes in [1, 512, 1 << 20, (1 << 20) + 1, 30 << 20, 100 << 20, (1 << 60) - 1] {
                    if let Ok(address) = allocator.malloc(bytes, StreamId(0)) {
                        allocator.check().unwrap();
                        allocator.free(address).unwrap();
                    }
                    allocator.check().unwrap();
                }
                allocator.empty_cache().unwrap();
                assert_eq!(allocator.driver().used(), 0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn soups_of_tokens_never_panic(tokens in prop::collection::vec(token(), 0..14)) {
        usable(&tokens.concat());
    }

    #[test]
    fn any_text_never_panics(text in any::<String>()) {
        usable(&text);
    }
}
