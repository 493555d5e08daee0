//! experiment: see the crate's map.
