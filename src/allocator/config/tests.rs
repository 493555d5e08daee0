use super::*;

fn parse(text: &str, release: &str) -> Result<Config, ConfigError> {
    Config::parse(text, &Rules::of(release).unwrap())
}

fn refused(text: &str, release: &str) -> String {
    parse(text, release).unwrap_err().text
}

#[test]
fn every_key_has_its_value() {
    let text = "max_split_size_mb:128,max_non_split_rounding_mb:64,garbage_collection_threshold:0.6,\
                large_segment_size_mb:40,expandable_segments:True,per_process_memory_fraction:0.5,\
                throw_on_cudamalloc_oom:True,pinned_num_register_threads:8,backend:native";
    let config = parse(text, "2.15").unwrap();
    assert_eq!(config.max_split_size, Some(128 << 20));
    assert_eq!(config.non_split_rounding(), 64 << 20);
    assert_eq!(config.large_segment_size, 40 << 20);
    assert_eq!((config.gc_threshold, config.memory_fraction), (0.6, Some(0.5)));
    assert!(config.expandable_segments && config.throw_on_oom);
    assert_eq!(
        config.notes,
        ["pinned_num_register_threads has no effect on the embedded allocator"]
    );
    assert_eq!(config.text, text);
}

#[test]
fn what_the_tokenizer_lets_pass() {
    for text in [
        "max_split_size_mb:64",
        "max_split_size_mb : 64",
        "max_split_size_mb,64",
        "max_split_size_mb:64mb",
        "max_split_size_mb:64,",
        "max_split_size_mb:32,max_split_size_mb:64",
    ] {
        assert_eq!(parse(text, "2.11").unwrap().max_split_size, Some(64 << 20), "{text}");
    }
    assert_eq!(parse("", "2.11").unwrap(), Config::default());
    assert!(!parse("max_split_size_mb,64", "2.11").unwrap().notes.is_empty());
    assert_eq!(
        parse("max_split_size_mb:-1", "2.11").unwrap().max_split_size,
        Some(u64::MAX / (1 << 20) * (1 << 20))
    );
}

#[test]
fn error_texts_are_pytorchs_own() {
    for (text, says) in [
        (
            "max_split_size_mb:19",
            "CachingAllocator option max_split_size_mb too small, must be >= 20",
        ),
        (
            "large_segment_size_mb:40,max_split_size_mb:39",
            "CachingAllocator option max_split_size_mb too small, must be >= 40",
        ),
        (
            "large_segment_size_mb:10",
            "CachingAllocator option large_segment_size_mb must be > 10 MB",
        ),
        (
            "garbage_collection_threshold:1",
            "garbage_collect_threshold is invalid, set it in (0.0, 1.0)",
        ),
        (
            "per_process_memory_fraction:1.5",
            "per_process_memory_fraction is invalid, set it in [0.0, 1.0]",
        ),
        (
            "roundup_power2_divisions:3",
            "For roundups, the divisions has to be power of 2 ",
        ),
        (
            "roundup_power2_divisions:0",
            "For roundups, the divisions has to be power of 2 ",
        ),
        (
            "roundup_power2_divisions:[3:4]",
            "For roundups, the intervals have to be power of 2 ",
        ),
        (
            "roundup_power2_divisions:[4:3]",
            "For roundups, the divisions has to be power of 2 or 0 to disable roundup ",
        ),
        (
            "roundup_power2_divisions:[4:2",
            "Index out of bounds in ConfigTokenizer",
        ),
        (
            "expandable_segments:true",
            "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'",
        ),
        (
            ",max_split_size_mb:64",
            "Unrecognized key ',' in CUDA allocator config.",
        ),
        (
            "max_split_size_mb:64 backend:native",
            "Unrecognized key 'native' in CUDA allocator config.",
        ),
        (
            "max_split_size_mb 64",
            "Unrecognized key 'max_split_size_mb64' in CUDA allocator config.",
        ),
        ("max_split_size_mb:x", "stoull"),
        ("max_split_size_mb:99999999999999999999", "stoull"),
        ("garbage_collection_threshold:x", "stod"),
        ("max_split_size_mb", "Index out of bounds in ConfigTokenizer"),
        (
            "backend:x",
            "Unknown allocator backend, options are native and cudaMallocAsync",
        ),
        (
            "pinned_num_register_threads:3",
            "Number of register threads has to be power of 2, got 3",
        ),
        (
            "pinned_num_register_threads:256",
            "Number of register threads should be less than or equal to 128, got 256",
        ),
    ] {
        assert_eq!(refused(text, "2.11"), says, "{text}");
    }
}

#[test]
fn releases_differ() {
    assert!(refused("max_split_size_mb:20", "2.5").contains("must be > 20"));
    assert!(parse("max_split_size_mb:20", "2.11").is_ok());
    assert_eq!(
        refused("throw_on_cudamalloc_oom:True", "2.11"),
        "Unrecognized key 'throw_on_cudamalloc_oom' in CUDA allocator config."
    );
    assert_eq!(
        refused("expandable_segments:True", "2.0"),
        "Unrecognized CachingAllocator option: expandable_segments"
    );
    assert_eq!(
        refused("expandable_segments:on", "2.1"),
        "Expected a single True/False argument for expandable_segments"
    );
    assert_eq!(
        refused("max_split_size_mb,64", "2.1"),
        "Error parsing CachingAllocator settings, expected :"
    );
    assert_eq!(
        refused("garbage_collection_threshold:0", "2.5"),
        "garbage_collect_threshold too small, set it 0.0~1.0"
    );
    assert!(parse("roundup_bypass_threshold_mb:64", "2.0").is_ok());
    assert!(parse("roundup_bypass_threshold_mb:64", "2.1").is_err());
    assert!(parse("expandable_segments_reserve:40G", "2.15").is_ok());
}

#[test]
fn roundup_list_by_release() {
    let text = "roundup_power2_divisions:[64:8,256:4,1024:4,>:1]";
    let new = parse(text, "2.11").unwrap().roundup;
    assert_eq!(new, [8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1]);
    let old = parse(text, "2.5").unwrap().roundup;
    assert_eq!(old, [8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 1, 1, 1, 1, 1, 1]);
    assert_eq!(parse("roundup_power2_divisions:[>:4]", "2.11").unwrap().roundup[0], 0);
    assert_eq!(parse("roundup_power2_divisions:[>:4]", "2.5").unwrap().roundup[0], 4);
    assert_eq!(parse("roundup_power2_divisions:[]", "2.11").unwrap().roundup, [0; 16]);
}

#[test]
fn precedence_of_the_variables() {
    let rules = Rules::of("2.11").unwrap();
    let both = |name: &str| match name {
        "PYTORCH_CUDA_ALLOC_CONF" => Some(String::new()),
        "PYTORCH_ALLOC_CONF" => Some("expandable_segments:True".to_owned()),
        _ => None,
    };
    let (config, from) = Config::from_environment(both, &rules).unwrap();
    assert_eq!(
        (config.expandable_segments, from),
        (false, Some("PYTORCH_CUDA_ALLOC_CONF"))
    );
    assert_eq!(config.notes.len(), 1);
    let generic = |name: &str| both(name).filter(|t| !t.is_empty());
    assert!(Config::from_environment(generic, &rules).unwrap().0.expandable_segments);
    assert_eq!(
        Config::from_environment(generic, &Rules::of("2.9").unwrap()).unwrap().1,
        None
    );
}

#[test]
fn run_time_settings_reset_some_and_keep_others() {
    let rules = Rules::of("2.11").unwrap();
    let mut config = Config::parse(
        "max_split_size_mb:64,expandable_segments:True,garbage_collection_threshold:0.5",
        &rules,
    )
    .unwrap();
    config
        .apply("roundup_power2_divisions:4", &rules, Origin::RunTime)
        .unwrap();
    assert_eq!(
        (config.max_split_size, config.gc_threshold, config.expandable_segments),
        (None, 0.0, true)
    );
    let unknown = config.apply("max_split_size:64", &rules, Origin::RunTime).unwrap_err();
    assert_eq!(
        unknown.text,
        "Unrecognized key 'max_split_size' in Accelerator allocator config."
    );
    assert_eq!(unknown.meant, "did you mean max_split_size_mb?");
}
