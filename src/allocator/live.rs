//! The map from the address of a live or pending block to the block.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::block::BlockId;

/// Addresses are multiples of 512 and need no protection from chosen keys: one multiplication spreads them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) ^ self.0);
        }
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        // Fibonacci hashing; the product's upper half holds the mixed bits, the table looks at the lower ones too.
        let product = u128::from(n) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

/// Address to block.
pub(super) type LiveMap = HashMap<u64, BlockId, BuildHasherDefault<AddressHasher>>;
