//! Pools: the default one and the private ones (CUDA graphs, torch.cuda.MemPool), each with a small and a large half.

use std::fmt;

use crate::driver::StreamId;

/// A pool's name as PyTorch writes it: (0, 0) is the default pool, (0, n) one made by the user or by
/// graph_pool_handle(), (n, 0) one made by a graph capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// The default pool.
    pub const DEFAULT: PoolId = PoolId(0, 0);
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0, self.1)
    }
}

/// What `torch.cuda.MemPool` takes (2.11 and later; earlier releases ignore them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// Blocks are handed out whole.
    pub no_split: bool,
    /// Its free blocks may serve requests of the default pool when the driver has no memory.
    pub use_on_oom: bool,
}

/// A wrong use of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// No such pool, or nobody uses it any more.
    #[error("pool {0} does not exist or was released")]
    Unknown(PoolId),
    /// A redirection was ended that had not begun.
    #[error("requests are not redirected to pool {0}")]
    NotBegun(PoolId),
    /// (0, 0) can be neither begun nor released.
    #[error("the default pool cannot be used as a private one")]
    Default,
}

/// One half: the lanes of its streams in ascending order of the stream, and how often it was searched.
#[derive(Clone, Debug, Default)]
pub(super) struct Half {
    pub lanes: Vec<(StreamId, u32)>,
    pub calls: u64,
}

/// A pool and who uses it.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub id: PoolId,
    pub options: PoolOptions,
    /// Large half, small half: see [`half`].
    pub halves: [Half; 2],
    /// Users: creators and redirections that were not released yet. At 0 its memory may be given back.
    pub users: u64,
    /// Bytes that it holds from the driver.
    pub reserved: u64,
}

/// The index of a half.
pub(super) fn half(small: bool) -> usize {
    usize::from(small)
}

/// Which requests go to a pool while it is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All of them (`torch.cuda.use_mem_pool` on its thread).
    All,
    /// Those of one stream (a graph capture).
    Stream(StreamId),
}

/// A pool that is begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Redirection {
    pub id: PoolId,
    pub pool: u32,
    pub filter: Filter,
}
