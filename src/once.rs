//! once: see the crate's map.
