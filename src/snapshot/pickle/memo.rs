//! What a pickle keeps to name it again.

use std::collections::HashMap;

use super::Value;

/// Memoised values: nearly always numbered from 0 on without gaps.
#[derive(Default)]
pub(super) struct Memo {
    dense: Vec<Value>,
    sparse: HashMap<u64, Value>,
}

impl Memo {
    /// Keeps `value` under a number, in place of what was there.
    pub(super) fn put(&mut self, index: u64, value: Value) {
        match (index as usize).cmp(&self.dense.len()) {
            std::cmp::Ordering::Less => self.dense[index as usize] = value,
            std::cmp::Ordering::Equal => self.dense.push(value),
            std::cmp::Ordering::Greater => drop(self.sparse.insert(index, value)),
        }
    }

    /// What was kept under a number.
    pub(super) fn get(&self, index: u64) -> Option<Value> {
        self.dense
            .get(index as usize)
            .or_else(|| self.sparse.get(&index))
            .copied()
    }

    /// How many are kept: the next number of MEMOIZE.
    pub(super) fn len(&self) -> u64 {
        (self.dense.len() + self.sparse.len()) as u64
    }

    /// Bytes of memory, about: a map keeps a quarter of its places free and has one byte beside each.
    pub(super) fn held(&self) -> usize {
        self.dense.capacity() * size_of::<Value>() + self.sparse.capacity() * (size_of::<(u64, Value)>() + 8)
    }
}
