//! doctor: see the crate's map.
