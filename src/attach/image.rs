//! An ELF image as it lies in the target's memory: headers, dynamic section, symbol lookup by hash. Read from memory and
//! not from the file, so that containers, deleted files and upgraded files make no difference (allocator-spec 7.6.1).
//!
//! All of it is foreign: every count is bounded, every address is checked by the remote reader.

use object::LittleEndian as LE;
use object::elf::{self, Dyn64, FileHeader64, ProgramHeader64, Sym64};

use super::remote::{Fault, Remote};

/// Bounds of what a sane file has.
const MAX_PROGRAM_HEADERS: u64 = 256;
const MAX_DYNAMIC_ENTRIES: u64 = 1024;
const MAX_CHAIN: u64 = 1 << 16;

/// The ELF machine number of the programs that run here.
pub const OUR_MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// Why an image cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The memory could not be read.
    Fault(Fault),
    /// A 32-bit image.
    Narrow,
    /// Code for another processor (its ELF machine number).
    Foreign(u16),
    /// Not an ELF image, or one that contradicts itself.
    Broken,
}

impl From<Fault> for ImageError {
    fn from(fault: Fault) -> Self {
        // A header that points nowhere is a broken image; a refusal is a refusal.
        match fault {
            Fault::Unmapped => ImageError::Broken,
            other => ImageError::Fault(other),
        }
    }
}

/// A symbol that the image defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its address in the target.
    pub address: u64,
    /// Its size in bytes, as the file claims.
    pub size: u64,
}

/// An ELF image in the target.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    remote: &'a Remote,
    /// What is added to the file's addresses.
    pub bias: u64,
    symbols: u64,
    strings: u64,
    strings_size: u64,
    gnu_hash: Option<u64>,
    hash: Option<u64>,
}

/// Checks class, byte order and machine of an ELF header.
fn check_header(header: &FileHeader64<LE>) -> Result<(), ImageError> {
    let ident = &header.e_ident;
    if ident.magic != elf::ELFMAG {
        return Err(ImageError::Broken);
    }
    let machine = header.e_machine.get(LE).0;
    match (ident.class.0, ident.data.0) {
        (1, _) => Err(ImageError::Narrow),
        (2, 1) if machine == OUR_MACHINE => Ok(()),
        (2, 1 | 2) => Err(ImageError::Foreign(machine)),
        _ => Err(ImageError::Broken),
    }
}

impl<'a> Image<'a> {
    /// The image whose ELF header lies at `base`.
    pub fn at(remote: &'a Remote, base: u64) -> Result<Image<'a>, ImageError> {
        let header: FileHeader64<LE> = remote.record(base)?;
        check_header(&header)?;
        let count = u64::from(header.e_phnum.get(LE));
        let table = base.checked_add(header.e_phoff.get(LE)).ok_or(ImageError::Broken)?;
        if usize::from(header.e_phentsize.get(LE)) != size_of::<ProgramHeader64<LE>>() {
            return Err(ImageError::Broken);
        }
        let headers = program_headers(remote, table, count)?;
        // The segment that holds the ELF header says where the file's address 0 lies.
        let first = headers
            .iter()
            .find(|h| h.p_type.get(LE).0 == 1 && h.p_offset.get(LE) == 0)
            .ok_or(ImageError::Broken)?;
        let bias = base.wrapping_sub(first.p_vaddr.get(LE));
        Image::with(remote, &headers, bias)
    }

    /// The main program, by its program header table (AT_PHDR and AT_PHNUM of the auxiliary vector).
    pub fn main(remote: &'a Remote, table: u64, count: u64) -> Result<Image<'a>, ImageError> {
        let headers = program_headers(remote, table, count)?;
        // Without PT_PHDR the program is linked to fixed addresses.
        let bias = headers
            .iter()
            .find(|h| h.p_type.get(LE).0 == 6)
            .map_or(0, |h| table.wrapping_sub(h.p_vaddr.get(LE)));
        Image::with(remote, &headers, bias)
    }

    /// Reads the dynamic section.
    fn with(remote: &'a Remote, headers: &[ProgramHeader64<LE>], bias: u64) -> Result<Image<'a>, ImageError> {
        let dynamic = headers
            .iter()
            .find(|h| h.p_type.get(LE).0 == 2)
            .ok_or(ImageError::Broken)?;
        let at = bias.wrapping_add(dynamic.p_vaddr.get(LE));
        let size = dynamic.p_memsz.get(LE).min(MAX_DYNAMIC_ENTRIES * 16);
        let entries = remote.words_some(at, size as usize / 8)?;
        // The loader writes absolute addresses here, except where it cannot (musl, read-only sections).
        let absolute = |value: u64| if value < bias { bias.wrapping_add(value) } else { value };
        let mut image = Image {
            remote,
            bias,
            symbols: 0,
            strings: 0,
            strings_size: 0,
            gnu_hash: None,
            hash: None,
        };
        for pair in entries.chunks_exact(size_of::<Dyn64<LE>>() / 8) {
            match pair[0] {
                0 => break,
                4 => image.hash = Some(absolute(pair[1])),
                5 => image.strings = absolute(pair[1]),
                6 => image.symbols = absolute(pair[1]),
                10 => image.strings_size = pair[1],
                0x6fff_fef5 => image.gnu_hash = Some(absolute(pair[1])),
                _ => {}
            }
        }
        if image.symbols == 0 || image.strings == 0 {
            return Err(ImageError::Broken);
        }
        Ok(image)
    }

    /// Looks a defined, exported symbol up by its (mangled) name, as the dynamic linker does.
    pub fn symbol(&self, name: &str) -> Option<Symbol> {
        match (self.gnu_hash, self.hash) {
            (Some(table), _) => self.by_gnu_hash(table, name),
            (None, Some(table)) => self.by_hash(table, name),
            (None, None) => None,
        }
    }

    fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.remote.read(address, &mut bytes).ok()?;
        Some(u32::from_ne_bytes(bytes))
    }

    /// DT_GNU_HASH: a bloom filter, buckets with first symbol numbers, then a chain of hashes whose last has bit 0 set.
    fn by_gnu_hash(&self, table: u64, name: &str) -> Option<Symbol> {
        let wanted = elf::gnu_hash(name.as_bytes());
        let half = |n: u64| self.half(table.wrapping_add(n.wrapping_mul(4)));
        let (buckets, first, blooms, shift) = (half(0)?, half(1)?, half(2)?, half(3)?);
        if buckets == 0 || blooms == 0 || shift > 31 {
            return None;
        }
        let bloom_at = table.wrapping_add(16 + u64::from((wanted / 64) % blooms) * 8);
        let bloom = self.remote.word(bloom_at).ok()?;
        if bloom >> (wanted % 64) & bloom >> ((wanted >> shift) % 64) & 1 == 0 {
            return None;
        }
        // Counted in 4-byte units from the start of the table.
        let bucket_table = 4 + u64::from(blooms) * 2;
        let chains = bucket_table + u64::from(buckets);
        let start = half(bucket_table + u64::from(wanted % buckets))?;
        for index in u64::from(start)..u64::from(start) + MAX_CHAIN {
            let hash = half(chains + index.checked_sub(u64::from(first))?)?;
            if hash | 1 == wanted | 1
                && let Some(symbol) = self.defined(index, name)
            {
                return Some(symbol);
            }
            if hash & 1 == 1 {
                return None;
            }
        }
        None
    }

    /// DT_HASH: the older table (bucket count, chain count, buckets, chains).
    fn by_hash(&self, table: u64, name: &str) -> Option<Symbol> {
        let half = |n: u64| self.half(table.wrapping_add(n.wrapping_mul(4)));
        let buckets = half(0)?;
        let bucket = elf::hash(name.as_bytes()).checked_rem(buckets)?;
        let mut index = half(2 + u64::from(bucket))?;
        for _ in 0..MAX_CHAIN {
            if index == 0 {
                return None;
            }
            if let Some(symbol) = self.defined(u64::from(index), name) {
                return Some(symbol);
            }
            index = half(2 + u64::from(buckets) + u64::from(index))?;
        }
        None
    }

    /// Symbol `index`, if it is called `name` and the image itself defines it as data.
    fn defined(&self, index: u64, name: &str) -> Option<Symbol> {
        let symbol: Sym64<LE> = self
            .remote
            .record(self.symbols.checked_add(index.checked_mul(24)?)?)
            .ok()?;
        let text = u64::from(symbol.st_name.get(LE));
        // st_info: object (1) or no type (0); section 0 means "defined elsewhere".
        let data = symbol.st_info.0 & 0xf <= 1;
        if !data || symbol.st_shndx.get(LE).0 == 0 || symbol.st_value.get(LE) == 0 || text >= self.strings_size {
            return None;
        }
        let found = self.remote.text(self.strings.checked_add(text)?, name.len() + 1).ok()?;
        (found == name.as_bytes()).then(|| Symbol {
            address: self.bias.wrapping_add(symbol.st_value.get(LE)),
            size: symbol.st_size.get(LE),
        })
    }
}

fn program_headers(remote: &Remote, table: u64, count: u64) -> Result<Vec<ProgramHeader64<LE>>, ImageError> {
    if count == 0 || count > MAX_PROGRAM_HEADERS {
        return Err(ImageError::Broken);
    }
    (0..count)
        .map(|i| Ok(remote.record(table.checked_add(i * 56).ok_or(ImageError::Broken)?)?))
        .collect()
}
