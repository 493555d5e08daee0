//! Keys that nobody knows: PyTorch's words, and the key that was probably meant.

use super::parse::{ConfigError, ELSEWHERE, HERE, Origin, Parser, error};

impl Parser<'_> {
    pub(super) fn unknown(&self, key: &str) -> ConfigError {
        let text = match (self.rules.generic_config, self.origin) {
            (false, _) => format!("Unrecognized CachingAllocator option: {key}"),
            (true, Origin::Environment) => format!("Unrecognized key '{key}' in CUDA allocator config."),
            (true, Origin::RunTime) => format!("Unrecognized key '{key}' in Accelerator allocator config."),
        };
        let all = || HERE.iter().chain(&ELSEWHERE).map(|(name, _)| *name);
        let meant = match all().find(|name| *name == key) {
            Some(_) => format!("torch {} does not have this key", self.rules.release),
            None => all()
                .map(|name| (distance(key, name), name))
                .min()
                .filter(|(d, _)| *d <= 6)
                .map_or_else(
                    || "write key:value,key:value".to_owned(),
                    |(_, name)| format!("did you mean {name}?"),
                ),
        };
        error(text, meant)
    }
}

/// Edit distance, for "did you mean".
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, c) in b.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, d) in a.iter().enumerate() {
            let cost = if *d == c {
                diagonal
            } else {
                1 + diagonal.min(row[j]).min(row[j + 1])
            };
            diagonal = row[j + 1];
            row[j + 1] = cost;
        }
    }
    row[a.len()]
}
