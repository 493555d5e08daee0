//! parity: see the crate's map.
