//! app: see the crate's map.
