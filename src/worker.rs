//! worker: see the crate's map.
