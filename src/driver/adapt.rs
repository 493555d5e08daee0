//! adapt
