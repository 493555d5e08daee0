//! /proc/PID/maps: which addresses of the target exist, and what they are. The list bounds every pointer that is followed.
//!
//! Parsed here and not with the procfs crate: version 0.18 slices a mapped file's name by byte positions (`/SYSV...`) and
//! panics on a hostile one, and gives up on the whole list at one name that is not UTF-8.

use std::io::{self, Read};
use std::path::Path;

use super::process::printable;

/// The list is cut here: about 600,000 mappings.
const MAX_BYTES: u64 = 64 << 20;

/// One mapping.
// The permissions are three flags, as the file writes them.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Position of `start` in the file.
    pub offset: u64,
    /// PROT_READ.
    pub readable: bool,
    /// PROT_WRITE.
    pub writable: bool,
    /// PROT_EXEC.
    pub executable: bool,
    /// Device of the file, as written there ("fd:01").
    pub device: String,
    /// Inode of the file; 0 for anonymous memory.
    pub inode: u64,
    /// The file's name as the target sees it, as raw bytes turned into text without control characters; empty if none.
    pub name: String,
    /// The file was removed or replaced after it was mapped.
    pub deleted: bool,
}

impl Region {
    /// The last component of the file's name.
    pub fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }
}

/// All mappings, ascending.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    regions: Vec<Region>,
}

/// Parses one line; `None` for a line of another form.
fn region(line: &[u8]) -> Option<Region> {
    let mut rest = line;
    let mut field = || {
        let start = rest.iter().position(|b| *b != b' ')?;
        let end = rest[start..]
            .iter()
            .position(|b| *b == b' ')
            .map_or(rest.len(), |n| start + n);
        let (head, tail) = (&rest[start..end], &rest[end..]);
        rest = tail;
        std::str::from_utf8(head).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?.as_bytes();
    let offset = u64::from_str_radix(field()?, 16).ok()?;
    let device = field()?.to_owned();
    let inode = field()?.parse().ok()?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    if start >= end || permissions.len() < 3 {
        return None;
    }
    let name = rest.trim_ascii_start();
    let (name, deleted) = name.strip_suffix(b" (deleted)").map_or((name, false), |n| (n, true));
    Some(Region {
        start,
        end,
        offset,
        readable: permissions[0] == b'r',
        writable: permissions[1] == b'w',
        executable: permissions[2] == b'x',
        device,
        inode,
        name: printable(name),
        deleted,
    })
}

impl Maps {
    /// Reads `dir/maps`, where `dir` is the process's directory.
    pub fn read(dir: &Path) -> io::Result<Maps> {
        let mut text = Vec::new();
        std::fs::File::open(dir.join("maps"))?
            .take(MAX_BYTES)
            .read_to_end(&mut text)?;
        Ok(Maps::parse(&text))
    }

    /// Parses the text of a maps file; lines of another form are left out.
    pub fn parse(text: &[u8]) -> Maps {
        let mut regions: Vec<Region> = text.split(|b| *b == b'\n').filter_map(region).collect();
        regions.sort_by_key(|r| r.start);
        Maps { regions }
    }

    /// All mappings.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The mapping that holds `address`.
    pub fn at(&self, address: u64) -> Option<&Region> {
        let next = self.regions.partition_point(|r| r.start <= address);
        let region = self.regions.get(next.checked_sub(1)?)?;
        (address < region.end).then_some(region)
    }

    /// `address` lies in readable and writable memory: a heap, a stack, static data.
    pub fn writable(&self, address: u64) -> bool {
        self.at(address).is_some_and(|r| r.readable && r.writable)
    }

    /// `address` lies in readable memory.
    pub fn readable(&self, address: u64) -> bool {
        self.at(address).is_some_and(|r| r.readable)
    }

    /// A device file of NVIDIA's driver is mapped: the process has a GPU open.
    pub fn holds_gpu(&self) -> bool {
        self.regions.iter().any(|r| r.name.starts_with("/dev/nvidia"))
    }

    /// The major version of the CUDA runtime that is loaded as a library (libcudart.so.13).
    pub fn cuda_runtime(&self) -> Option<u32> {
        let mut majors = self.regions.iter().filter_map(|r| {
            let version = r.file_name().strip_prefix("libcudart.so.")?;
            version.split('.').next()?.parse().ok()
        });
        let first = majors.next()?;
        majors.all(|m| m == first).then_some(first)
    }

    /// The mappings of a file's first byte whose last name component satisfies `wanted`: where a loaded ELF file starts.
    pub fn starts_of(&self, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = &Region> {
        self.regions
            .iter()
            .filter(move |r| r.offset == 0 && r.readable && r.name.starts_with('/') && wanted(r.file_name()))
    }

    /// Every mapping that belongs to the file mapped at `first`, and the anonymous ones that follow it directly (.bss).
    pub fn image<'a>(&'a self, first: &'a Region) -> impl Iterator<Item = &'a Region> {
        let from = self.regions.partition_point(|r| r.start < first.start);
        let mut previous_end = first.start;
        self.regions[from..].iter().take_while(move |r| {
            let same_file = r.inode == first.inode && r.device == first.device && r.inode != 0;
            let bss = r.inode == 0 && r.name.is_empty() && r.start == previous_end;
            let guard = !r.readable;
            previous_end = r.end;
            (same_file && (r.offset != 0 || r.start == first.start)) || bss || guard
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
55d0c0000000-55d0c0001000 r--p 00000000 fd:01 42  /usr/bin/python3.12\n\
7f0000000000-7f0000010000 r--p 00000000 fd:01 77                         /opt/my torch/lib/libc10_cuda.so (deleted)\n\
7f0000010000-7f0000020000 r-xp 00010000 fd:01 77                         /opt/my torch/lib/libc10_cuda.so (deleted)\n\
7f0000020000-7f0000021000 rw-p 00020000 fd:01 77                         /opt/my torch/lib/libc10_cuda.so (deleted)\n\
7f0000021000-7f0000022000 rw-p 00000000 00:00 0 \n\
7f0000030000-7f0000031000 rw-p 00000000 00:00 0 \n\
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]\n";

    #[test]
    fn finds_mappings_and_the_files_they_come_from() {
        let maps = Maps::parse(TEXT);
        assert_eq!(maps.regions().len(), 7);
        let lib: Vec<_> = maps.starts_of(|n| n.starts_with("libc10_cuda")).collect();
        assert_eq!(lib.len(), 1);
        assert!(lib[0].deleted);
        assert_eq!(lib[0].name, "/opt/my torch/lib/libc10_cuda.so");
        assert_eq!(maps.image(lib[0]).count(), 4, "the file's own three and its .bss");
        assert!(maps.writable(0x7f00_0002_1ff8) && !maps.writable(0x7f00_0002_2000));
        assert!(maps.readable(0x7f00_0000_0000) && !maps.writable(0x7f00_0000_0000));
        assert!(maps.at(0).is_none() && maps.at(u64::MAX).is_none());
    }

    #[test]
    fn hostile_lines_and_names_do_no_harm() {
        let text = b"garbage\n5-4 rwxp 0 0:0 0 x\n1000-2000 rw-p 0 0:0 7 /SYSV\xc3\xa9\n2000-3000 r\n\
                     3000-4000 rw-p 0 0:0 9 /tmp/\x1b[2J\xff\xfe\nzz-yy rw-p 0 0:0 1 /x\n-\n";
        let maps = Maps::parse(text);
        assert_eq!(maps.regions().len(), 2);
        assert!(maps.regions().iter().all(|r| !r.name.chars().any(char::is_control)));
    }
}
