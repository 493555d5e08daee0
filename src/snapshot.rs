//! snapshot: see the crate's map.
