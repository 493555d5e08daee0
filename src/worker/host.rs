//! Host memory of the demo: real, every page written, and given back at once where the system can (AC-29).

use memmap2::MmapMut;

use crate::units::KIB;

/// From this size on the C library maps a block of its own instead of taking it from the heap (glibc's
/// M_MMAP_THRESHOLD). The threshold of glibc moves up to 32 MiB with use, which would keep freed blocks in the process:
/// blocks of at least this size are therefore mapped here.
pub const MAPPED_FROM: u64 = 128 * KIB;

/// A block of host memory. Dropping it gives it back: a mapped one to the kernel, a small one to the C library, which
/// may keep it (that is the lesson of small blocks).
#[derive(Debug)]
pub enum HostBlock {
    /// From the C library's heap.
    Heap(Vec<u8>),
    /// An anonymous mapping of its own.
    Mapped(MmapMut),
}

impl HostBlock {
    /// `size` bytes of zeros, every page of `page` bytes written, so that they are resident.
    ///
    /// # Errors
    /// The system has not that much memory.
    pub fn zeros(size: u64, page: u64) -> std::io::Result<Self> {
        let bytes = usize::try_from(size).map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
        let mut block = if size < MAPPED_FROM {
            let mut heap = Vec::new();
            heap.try_reserve_exact(bytes)?;
            heap.resize(bytes, 0);
            HostBlock::Heap(heap)
        } else {
            HostBlock::Mapped(MmapMut::map_anon(bytes)?)
        };
        let step = usize::try_from(page).unwrap_or(4096).max(1);
        for byte in block.bytes_mut().iter_mut().step_by(step) {
            // The kernel gives a page when it is written, even with what it holds already; the compiler must not see
            // that the value is the same.
            *byte = std::hint::black_box(0);
        }
        Ok(block)
    }

    /// Where it lies.
    pub fn address(&self) -> u64 {
        match self {
            HostBlock::Heap(heap) => heap.as_ptr().addr() as u64,
            HostBlock::Mapped(map) => map.as_ptr().addr() as u64,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            HostBlock::Heap(heap) => heap,
            HostBlock::Mapped(map) => map,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_cannot_be_is_an_error() {
        assert!(HostBlock::zeros(u64::MAX, 4096).is_err());
        assert!(HostBlock::zeros(1 << 62, 4096).is_err());
        assert!(matches!(HostBlock::zeros(5, 4096), Ok(HostBlock::Heap(_))));
    }
}
