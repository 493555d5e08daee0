//! `roundup_power2_divisions` (allocator-spec 1.7).

use super::Config;
use super::parse::{ConfigError, Parser, error};
use super::tokens::unsigned;

impl Parser<'_> {
    /// One division for all sizes, or a list of BOUNDARY:DIVISION (spec 1.7).
    pub(super) fn roundup(&mut self, config: &mut Config) -> Result<(), ConfigError> {
        let word = self.value(config)?;
        if word == "[" && self.rules.roundup_list {
            return self.roundup_list(config);
        }
        let division = unsigned(&word).map_err(|text| error(text, format!("{word:?} is not a whole number")))?;
        if !division.is_power_of_two() {
            return Err(error(
                "For roundups, the divisions has to be power of 2 ",
                "1, 2, 4, 8, ...",
            ));
        }
        config.roundup = [division; 16];
        Ok(())
    }

    fn roundup_list(&mut self, config: &mut Config) -> Result<(), ConfigError> {
        let (mut last, mut first) = (0, true);
        loop {
            self.at += 1;
            let boundary = self.list_token()?;
            if boundary == "]" {
                return Ok(());
            }
            self.at += 1;
            self.list_token()?;
            self.at += 1;
            let word = self.list_token()?;
            let division = unsigned(&word).map_err(|text| error(text, format!("{word:?} is not a whole number")))?;
            if division != 0 && !division.is_power_of_two() {
                return Err(error(
                    "For roundups, the divisions has to be power of 2 or 0 to disable roundup ",
                    "",
                ));
            }
            if boundary == ">" {
                let from = if self.rules.roundup_rest_from_next {
                    last + 1
                } else {
                    last
                };
                config.roundup.iter_mut().skip(from).for_each(|entry| *entry = division);
            } else {
                let mb = unsigned(&boundary)
                    .map_err(|text| error(text, format!("{boundary:?} is neither a size in MB nor >")))?;
                if !mb.is_power_of_two() {
                    return Err(error(
                        "For roundups, the intervals have to be power of 2 ",
                        "in MB: 1, 2, 4, 8, ...",
                    ));
                }
                let index = (mb.ilog2() as usize).min(15);
                if first {
                    config.roundup[..index].fill(division);
                }
                config.roundup[index] = division;
                (last, first) = (index, false);
            }
            if self.tokens.get(self.at + 1).is_some_and(|t| t == ",") {
                self.at += 1;
            }
        }
    }

    pub(super) fn list_token(&self) -> Result<String, ConfigError> {
        self.tokens.get(self.at).cloned().ok_or_else(|| {
            error(
                "Index out of bounds in ConfigTokenizer",
                "the list has no closing bracket: [256:1,512:2,>:4]",
            )
        })
    }
}
