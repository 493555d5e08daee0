//! What the user asked the allocator to be like, read once from text.

use super::command::Refusal;
use crate::allocator::{Config, Rules, Settings};

/// The allocator's settings and the texts that they came from.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The settings.
    pub settings: Settings,
    /// The text of PYTORCH_CUDA_ALLOC_CONF.
    pub conf: String,
    /// What the readers of the texts had to say.
    pub notes: Vec<String>,
}

impl Setup {
    /// Reads the text of PYTORCH_CUDA_ALLOC_CONF for a PyTorch release; `None` is the newest one that was examined.
    ///
    /// # Errors
    /// PyTorch's own text for a bad value, or the releases that can be chosen.
    pub fn read(conf: &str, torch: Option<&str>) -> Result<Self, Refusal> {
        let rules = match torch {
            Some(text) => Rules::of(text).map_err(|e| Refusal::Invalid(e.to_string()))?,
            None => Rules::default(),
        };
        let config = Config::parse(conf, &rules).map_err(|e| Refusal::Invalid(e.to_string()))?;
        let notes = rules.note().into_iter().chain(config.notes.iter().cloned()).collect();
        Ok(Setup {
            settings: Settings { rules, config },
            conf: conf.to_owned(),
            notes,
        })
    }

    /// The release that was asked for; where it was never examined, with the one whose rules hold in its place.
    pub fn torch(&self) -> String {
        let rules = &self.settings.rules;
        if rules.asked == rules.release {
            rules.asked.to_string()
        } else {
            format!("{} (never examined: those of {})", rules.asked, rules.release)
        }
    }
}
