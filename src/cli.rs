//! cli: see the crate's map.
