//! ui: see the crate's map.
