//! PyTorch's caching allocator: no I/O, no clock, no threads, no printing; it fails only with a value.

pub mod stats;
