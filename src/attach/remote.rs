//! The remote reader: copies bytes out of another process with process_vm_readv(2), through nix's wrapper, and does
//! nothing else to it. Every read is bounded and its address range checked before the system is asked; what comes back is
//! foreign data that nobody may trust.

use std::io::IoSliceMut;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use object::pod::{self, Pod};

/// The most bytes that one call copies: far above any structure that is read here.
pub const MAX_READ: usize = 1 << 20;
/// The kernel takes at most this many pieces a call (UIO_MAXIOV).
pub const MAX_PIECES: usize = 1024;
/// Addresses below are never mapped (vm.mmap_min_addr); this also catches small integers mistaken for pointers.
const LOWEST: u64 = 0x1000;
/// One past the highest user address with five-level page tables.
const HIGHEST: u64 = 1 << 56;

/// Why a remote read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EPERM: the kernel does not let us look.
    Refused,
    /// ESRCH: no such process (or only its zombie).
    Gone,
    /// The range is not wholly mapped and readable, or no user address at all.
    Unmapped,
    /// ENOSYS: this kernel has no process_vm_readv (CONFIG_CROSS_MEMORY_ATTACH is off), or a sandbox hides it.
    NoCall,
    /// Any other error number.
    Other(i32),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::EPERM | Errno::EACCES => Fault::Refused,
            Errno::ESRCH => Fault::Gone,
            Errno::EFAULT | Errno::ENOMEM | Errno::EINVAL => Fault::Unmapped,
            Errno::ENOSYS => Fault::NoCall,
            other => Fault::Other(other as i32),
        }
    }
}

/// Reads the memory of one process.
#[derive(Debug)]
pub struct Remote {
    pid: Pid,
}

/// Whether `address .. address + len` can be user memory at all.
fn possible(address: u64, len: usize) -> bool {
    len <= MAX_READ && address >= LOWEST && address.checked_add(len as u64).is_some_and(|end| end <= HIGHEST)
}

impl Remote {
    /// A reader of process `pid` (as this program's PID namespace numbers it).
    pub fn new(pid: u32) -> Self {
        Remote {
            pid: Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX)),
        }
    }

    /// Copies as much of `address ..` as is readable, up to the whole of `into`; returns the number of bytes.
    pub fn read_some(&self, address: u64, into: &mut [u8]) -> Result<usize, Fault> {
        if into.is_empty() {
            return Ok(0);
        }
        if !possible(address, into.len()) {
            return Err(Fault::Unmapped);
        }
        let remote = [RemoteIoVec {
            base: address as usize,
            len: into.len(),
        }];
        Ok(process_vm_readv(self.pid, &mut [IoSliceMut::new(into)], &remote)?)
    }

    /// Fills the whole of `into` from `address`, or fails.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let wanted = into.len();
        if self.read_some(address, into)? == wanted {
            Ok(())
        } else {
            Err(Fault::Unmapped)
        }
    }

    /// Fills several pieces in one system call, in their order: all, or a fault.
    pub fn read_pieces(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<(), Fault> {
        if pieces.len() > MAX_PIECES || !pieces.iter().all(|(a, b)| possible(*a, b.len())) {
            return Err(Fault::Unmapped);
        }
        let remote: Vec<RemoteIoVec> = pieces
            .iter()
            .map(|(address, into)| RemoteIoVec {
                base: *address as usize,
                len: into.len(),
            })
            .collect();
        let wanted: usize = remote.iter().map(|r| r.len).sum();
        let mut local: Vec<IoSliceMut<'_>> = pieces.iter_mut().map(|(_, into)| IoSliceMut::new(into)).collect();
        if process_vm_readv(self.pid, &mut local, &remote)? == wanted {
            Ok(())
        } else {
            Err(Fault::Unmapped)
        }
    }

    /// One 8-byte word.
    pub fn word(&self, address: u64) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Fills `into` with words from `address`.
    pub fn words(&self, address: u64, into: &mut [u64]) -> Result<(), Fault> {
        self.read(address, pod::bytes_of_slice_mut(into))
    }

    /// Up to `count` words from `address`; fewer where memory ends.
    pub fn words_some(&self, address: u64, count: usize) -> Result<Vec<u64>, Fault> {
        let mut words = vec![0u64; count.min(MAX_READ / 8)];
        let got = self.read_some(address, pod::bytes_of_slice_mut(&mut words))?;
        words.truncate(got / 8);
        Ok(words)
    }

    /// A plain C structure, such as an ELF header.
    pub fn record<T: Pod + Copy>(&self, address: u64) -> Result<T, Fault> {
        // Backed by words, so that it is aligned for every ELF structure.
        let mut words = vec![0u64; size_of::<T>().div_ceil(8)];
        let bytes = &mut pod::bytes_of_slice_mut(&mut words)[..size_of::<T>()];
        self.read(address, bytes)?;
        pod::from_bytes::<T>(bytes)
            .map(|(t, _)| *t)
            .map_err(|()| Fault::Unmapped)
    }

    /// The bytes of a C string without its NUL, if it ends within `max` bytes.
    pub fn text(&self, address: u64, max: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; max.min(4096)];
        let got = self.read_some(address, &mut bytes)?;
        let end = bytes[..got].iter().position(|b| *b == 0).ok_or(Fault::Unmapped)?;
        bytes.truncate(end);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_our_own_memory_and_nothing_else() {
        let me = Remote::new(std::process::id());
        let words = [1u64, 2, 3];
        let at = words.as_ptr() as u64;
        let mut copy = [0; 3];
        me.words(at, &mut copy).unwrap();
        assert_eq!(copy, words);
        assert_eq!(me.word(at + 8), Ok(2));
        for bad in [0, 8, 0x0fff, 1 << 60, u64::MAX - 3] {
            assert_eq!(me.word(bad), Err(Fault::Unmapped), "{bad:#x}");
        }
        assert_eq!(me.read(at, &mut vec![0; MAX_READ + 1]), Err(Fault::Unmapped));
    }

    #[test]
    fn a_string_without_an_end_is_no_string() {
        let me = Remote::new(std::process::id());
        let text = *b"torch\0xx";
        assert_eq!(me.text(text.as_ptr() as u64, 8).unwrap(), b"torch");
        assert_eq!(me.text(text.as_ptr() as u64, 5), Err(Fault::Unmapped));
    }

    #[test]
    fn nobody_is_gone() {
        assert_eq!(Remote::new(u32::MAX).word(0x10000), Err(Fault::Gone));
    }
}
