//! The thread that owns the embedded allocator: a CUDA context belongs to a thread, and the loop that draws must never
//! wait for a driver. Commands go in, one [`Outcome`] each comes out, and the newest [`State`] is published for readers.

pub mod command;
pub mod state;
pub mod tensor;

pub use command::{Command, ContextCost, Done, DriverCall, Outcome, Refusal};
pub use state::{BlockKey, LiveBlock, Place, State};
pub use tensor::{BadTensor, Dtype, Shape};
