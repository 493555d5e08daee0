//! The second route to the allocator: where the variable is not exported, the class is found by its name in read-only
//! data, its type information and virtual table by the words that point there, and the static object by its first word.

use super::class::{Backend, Found, NATIVE, Route};
use super::maps::{Maps, Region};
use super::remote::{Fault, Remote};

/// Bytes of one image that are searched at most, of each kind of memory.
const MAX_SEARCH: u64 = 256 << 20;
/// Bytes a piece.
const PIECE: usize = 1 << 18;

/// Calls `visit` with (address, bytes) over the readable memory of `regions`, pieces overlapping by `overlap` bytes;
/// stops at its first answer. What cannot be read is passed over.
fn scan<'a, T>(
    remote: &Remote,
    regions: impl Iterator<Item = &'a Region>,
    overlap: usize,
    mut visit: impl FnMut(u64, &[u8]) -> Option<T>,
) -> Result<Option<T>, Fault> {
    let mut buffer = vec![0u8; PIECE + overlap];
    let mut left = MAX_SEARCH;
    for region in regions {
        let mut at = region.start;
        while at < region.end && left > 0 {
            let length = ((region.end - at) as usize).min(buffer.len());
            let got = match remote.read_some(at, &mut buffer[..length]) {
                Ok(got) => got,
                Err(Fault::Unmapped) => 0,
                Err(fault) => return Err(fault),
            };
            if let Some(answer) = visit(at, &buffer[..got]) {
                return Ok(Some(answer));
            }
            if got < length {
                break;
            }
            at += PIECE as u64;
            left = left.saturating_sub(PIECE as u64);
        }
    }
    Ok(None)
}

/// The addresses of 8-aligned words equal to `value`, at most 16.
fn words_equal(remote: &Remote, regions: &[&Region], value: u64) -> Result<Vec<u64>, Fault> {
    let mut found = Vec::new();
    scan(remote, regions.iter().copied(), 0, |address, bytes| {
        for (i, word) in bytes.chunks_exact(8).enumerate() {
            if word == value.to_ne_bytes() {
                found.push(address + 8 * i as u64);
            }
        }
        (found.len() >= 16).then_some(())
    })?;
    found.truncate(16);
    Ok(found)
}

/// The static native allocator of the image that begins at `first`, if the image has the class and an object of it.
pub fn find(remote: &Remote, maps: &Maps, first: &Region) -> Result<Option<Found>, Fault> {
    let image: Vec<&Region> = maps.image(first).filter(|r| r.readable).collect();
    let constants = image.iter().copied().filter(|r| !r.writable && !r.executable);
    let wanted = [NATIVE.as_bytes(), b"\0"].concat();
    let Some(name) = scan(remote, constants, wanted.len(), |address, bytes| {
        let at = bytes.windows(wanted.len()).position(|w| w == wanted)?;
        Some(address + at as u64)
    })?
    else {
        return Ok(None);
    };
    // Relocated constants are read-only after loading, or stay writable; the code never holds such words.
    let data: Vec<&Region> = image.iter().copied().filter(|r| !r.executable).collect();
    let statics: Vec<&Region> = image.iter().copied().filter(|r| r.writable).collect();
    for name_word in words_equal(remote, &data, name)? {
        let info = name_word - 8;
        for slot in words_equal(remote, &data, info)? {
            // A virtual table begins with the offset to the whole object, 0, and its type information.
            if remote.word(slot - 8) != Ok(0) {
                continue;
            }
            let vptr = slot + 8;
            if let Some(object) = words_equal(remote, &statics, vptr)?.first() {
                return Ok(Some(Found {
                    object: *object,
                    vptr,
                    backend: Backend::Native,
                    route: Route::TypeInfo,
                    library: first.name.clone(),
                    deleted: first.deleted,
                }));
            }
        }
    }
    Ok(None)
}
