//! Blocks: the pieces that segments are made of, in a slab with 32-bit ids.

/// Index of a block in the slab.
pub(super) type BlockId = u32;
/// No block.
pub(super) const NONE: BlockId = u32::MAX;

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The slot is not in use.
    Vacant,
    /// Cached: in its lane's free set.
    Free,
    /// Owned by the caller.
    Live,
    /// Given back; events or a capture hold it.
    Pending,
    /// Address space of an expandable segment without memory.
    Unmapped,
}

/// One block. The block with the lowest address of a segment keeps its id for the segment's whole life: a split keeps
/// the id for the lower part, a merge keeps the id of the lower neighbour.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub address: u64,
    pub size: u64,
    /// Bytes as asked for; stale while the block is free.
    pub requested: u64,
    /// The pool's search count when the block was put into its free set (gc age).
    pub gc_base: u64,
    pub prev: BlockId,
    pub next: BlockId,
    /// The free set (pool half and stream) it belongs to.
    pub lane: u32,
    /// Number of its segment in order of allocation from 1 on, or index of its address range if expandable.
    pub segment: u32,
    /// Events that have not completed.
    pub events: u32,
    pub state: State,
    pub expandable: bool,
    /// Other streams use it: see `Heap::uses`.
    pub used: bool,
}

impl Block {
    /// It has a neighbour in its segment.
    pub fn is_split(&self) -> bool {
        self.prev != NONE || self.next != NONE
    }

    pub fn end(&self) -> u64 {
        self.address + self.size
    }
}

/// All blocks. Slots of deleted blocks are used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Slab {
    blocks: Vec<Block>,
    vacant: Vec<BlockId>,
}

impl Slab {
    pub fn insert(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.vacant.pop() {
            self.blocks[id as usize] = block;
            return id;
        }
        let id = self.blocks.len() as BlockId;
        assert!(id != NONE, "more than 2^32 - 1 blocks");
        self.blocks.push(block);
        id
    }

    pub fn remove(&mut self, id: BlockId) {
        self.blocks[id as usize].state = State::Vacant;
        self.vacant.push(id);
    }

    /// Every block that is in use, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks
            .iter()
            .enumerate()
            .filter(|(_, b)| b.state != State::Vacant)
            .map(|(id, b)| (id as BlockId, b))
    }
}

impl std::ops::Index<BlockId> for Slab {
    type Output = Block;
    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }
}

impl std::ops::IndexMut<BlockId> for Slab {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }
}
