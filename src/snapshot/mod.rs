//! Snapshot files: `torch.cuda.memory._dump_snapshot` pickles, read for parity and written so that
//! pytorch.org/memory_viz and `python -m torch.cuda._memory_viz` open them (allocator-spec section 5).

mod pickle;
mod read;
mod write;

pub use pickle::{Pickle, PickleError, Value};
pub use read::{DeviceSnapshot, Snapshot, read};
pub use write::write;
