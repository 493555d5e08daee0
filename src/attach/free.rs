//! The free blocks of an allocator's two default pools, walked tree by tree in foreign memory (allocator-spec 7.7b).
//!
//! The trees change while they are walked. Every step is checked (parent pointers, counts, order, each block's pool and
//! state) and bounded; a walk that does not pass is thrown away.

use super::layout::{Layout, Pointers, is_tree};
use super::remote::Remote;

/// Nodes that all walks of one survey may read together: a few tens of milliseconds.
pub const NODE_BUDGET: u64 = 1 << 16;
/// Deeper is no red-black tree of that size.
const MAX_DEPTH: usize = 40;
/// Pieces of one remote read.
const BATCH: usize = 512;
/// Words of a node: colour, parent, left, right, block.
const NODE: usize = 5;
/// Words of a block that are looked at.
const BLOCK: usize = 14;
/// Words of a tree's header with the comparator before it.
const TREE: usize = 6;

/// One pool: the words of its trees in the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The comparator word of the first set, where the pool itself begins.
    pub first: usize,
    /// Sets in a row: 1 (free), 2 (+ unmapped), 3 (free by size, free by address, unmapped).
    pub sets: usize,
}

impl Pool {
    /// Count of nodes in set `n`.
    fn count(&self, words: &[u64], n: usize) -> u64 {
        words[self.first + n * TREE + 5]
    }

    /// Blocks without memory behind them: there are some only in expandable segments.
    pub fn unmapped(&self, words: &[u64]) -> u64 {
        if self.sets < 2 {
            0
        } else {
            self.count(words, self.sets - 1)
        }
    }

    /// One past the byte that tells small from large.
    pub fn end(&self) -> usize {
        self.first + self.sets * TREE + 1
    }
}

/// The large and the small pool: runs of tree headers, each followed by a byte that says which pool it is.
pub fn pools(words: &[u64], base: u64, layout: &Layout, remote: &Remote) -> Option<[Pool; 2]> {
    // Every node is read before it is believed: the list of mappings is not needed here.
    let pointers = Pointers {
        sound: &|_| true,
        parent: &|node| remote.word(node.wrapping_add(8)).ok(),
    };
    let tree_at = |w: usize| is_tree(words, w, base, &pointers);
    let run = |first: usize| {
        let sets = (0..3).take_while(|n| tree_at(first + n * TREE)).count();
        Pool { first, sets }
    };
    let kind = |pool: &Pool| words.get(pool.first + pool.sets * TREE).map(|w| w & 0xff);
    let large = run(layout.tree);
    // The next run follows within the pool's few own members.
    let second = (large.end()..large.end() + 16).find(|w| tree_at(*w))?;
    let small = run(second);
    (large.sets > 0 && large.sets == small.sets && kind(&large) == Some(0) && kind(&small) == Some(1))
        .then_some([large, small])
}

/// The free blocks of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeBlocks {
    /// Bytes of the largest.
    pub largest: u64,
    /// Bytes of all.
    pub total: u64,
}

/// A node with what orders it.
#[derive(Clone, Copy)]
struct Node {
    address: u64,
    parent: u64,
    /// Bounds on (stream, size) that its place in the tree imposes.
    low: Option<(u64, u64)>,
    high: Option<(u64, u64)>,
}

/// Walks the free blocks of `pool`, breadth first, one remote read a level. `None`: some check failed, or `budget` (nodes)
/// is used up.
pub fn walk(remote: &Remote, words: &[u64], base: u64, pool: Pool, budget: &mut u64) -> Option<FreeBlocks> {
    let count = pool.count(words, 0);
    let root = words[pool.first + 2];
    if count == 0 {
        return (root == 0).then(FreeBlocks::default);
    }
    *budget = budget.checked_sub(count)?;
    let address = base + 8 * pool.first as u64;
    let mut level = vec![Node {
        address: root,
        parent: address + 8,
        low: None,
        high: None,
    }];
    let mut seen = 0u64;
    let mut free = FreeBlocks::default();
    for _ in 0..MAX_DEPTH {
        if level.is_empty() {
            return (seen == count).then_some(free);
        }
        seen += level.len() as u64;
        if seen > count {
            return None;
        }
        let nodes = gather::<NODE>(remote, level.iter().map(|n| n.address))?;
        let blocks = gather::<BLOCK>(remote, nodes.iter().map(|n| n[4]))?;
        let mut next = Vec::new();
        for ((node, [colour, parent, left, right, _]), block) in level.iter().zip(&nodes).zip(&blocks) {
            let (stream, size) = free_block(block, address)?;
            let key = (stream, size);
            if *colour as u32 > 1
                || *parent != node.parent
                || node.low.is_some_and(|low| key < low)
                || node.high.is_some_and(|high| key > high)
            {
                return None;
            }
            free.largest = free.largest.max(size);
            free.total = free.total.checked_add(size)?;
            let child = |address: u64, low, high| Node {
                address,
                parent: node.address,
                low,
                high,
            };
            next.extend((*left != 0).then(|| child(*left, node.low, Some(key))));
            next.extend((*right != 0).then(|| child(*right, Some(key), node.high)));
        }
        level = next;
    }
    None
}

/// Reads `N` words at each address, `BATCH` addresses a call.
fn gather<const N: usize>(remote: &Remote, addresses: impl Iterator<Item = u64>) -> Option<Vec<[u64; N]>> {
    let addresses: Vec<u64> = addresses.collect();
    let mut words = vec![[0u64; N]; addresses.len()];
    for (addresses, words) in addresses.chunks(BATCH).zip(words.chunks_mut(BATCH)) {
        let mut pieces: Vec<(u64, &mut [u8])> = addresses
            .iter()
            .zip(words)
            .map(|(address, words)| (*address, object::pod::bytes_of_slice_mut(&mut words[..])))
            .collect();
        remote.read_pieces(&mut pieces).ok()?;
    }
    Some(words)
}

/// Stream and size of a free block. Its members need no version: the word that holds the pool's own address is the `pool`
/// member; the size is two words before, the address one after, then the byte that says whether it is allocated.
fn free_block(block: &[u64; BLOCK], pool: u64) -> Option<(u64, u64)> {
    let member = (4..BLOCK - 2).find(|w| block[*w] == pool)?;
    let (size, allocated) = (block[member - 2], block[member + 2] & 0xff);
    (allocated == 0 && size > 0 && size < 1 << 50).then_some((block[1], size))
}
