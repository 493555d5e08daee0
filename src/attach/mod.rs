//! attach: see the crate's map.
