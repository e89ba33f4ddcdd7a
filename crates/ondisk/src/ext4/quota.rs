//! Quota files in hidden inodes: format `vfsv1` (in the kernel `v2r1`).
//!
//! A file consists of blocks of 1 KiB, whatever the block size of the volume. Block 0 holds a magic
//! number, a version and [`Info`]. Block 1 is the root of a tree with [`DEPTH`] levels of
//! references. Each level is indexed by one byte of the id, most significant first; the last level
//! refers to leaves, which hold entries of any ids in any order.

use crate::bytes::{assert_layout, le32, prefix, prefix_mut, put};
use crate::error::{Result, corrupt};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a block of a quota file.
pub const BLOCK: usize = 1024;
/// Block number of the tree's root.
pub const ROOT: u32 = 1;
/// Levels of references above the leaves.
pub const DEPTH: usize = 4;
/// References in a block.
pub const REFERENCES: usize = BLOCK / 4;
/// Entries in a leaf.
pub const ENTRIES: usize = (BLOCK - size_of::<RawLeaf>()) / size_of::<RawEntry>();
/// Bytes of an entry.
pub const ENTRY_LEN: usize = size_of::<RawEntry>();
/// The version number of `vfsv1`.
const VERSION: u32 = 1;
/// Name of the structure in errors.
const WHAT: &str = "quota file";

/// The kind of id whose usage a quota file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaKind {
    /// User ids.
    User,
    /// Group ids.
    Group,
    /// Project ids.
    Project,
}

impl QuotaKind {
    /// All kinds, in the order of the kernel's numbers.
    pub const ALL: [QuotaKind; 3] = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];

    /// First word of the file.
    #[must_use]
    pub const fn magic(self) -> u32 {
        match self {
            QuotaKind::User => 0xd9c0_1f11,
            QuotaKind::Group => 0xd9c0_1927,
            QuotaKind::Project => 0xd9c0_3f14,
        }
    }

    /// The name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            QuotaKind::User => "user",
            QuotaKind::Group => "group",
            QuotaKind::Project => "project",
        }
    }
}

/// `struct v2_disk_dqheader`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: U32,
    version: U32,
}

assert_layout!(Header, 8, { magic: 0x0, version: 0x4 });

/// `struct v2_disk_dqinfo`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawInfo {
    bgrace: U32,
    igrace: U32,
    flags: U32,
    blocks: U32,
    free_blk: U32,
    free_entry: U32,
}

assert_layout!(RawInfo, 24, {
    bgrace: 0x0, igrace: 0x4, flags: 0x8, blocks: 0xC, free_blk: 0x10, free_entry: 0x14,
});

/// `struct qt_disk_dqdbheader`: the beginning of a leaf, or of a free block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLeaf {
    next_free: U32,
    prev_free: U32,
    entries: U16,
    pad1: U16,
    pad2: U32,
}

assert_layout!(RawLeaf, 16, { next_free: 0x0, prev_free: 0x4, entries: 0x8, pad1: 0xA, pad2: 0xC });

/// `struct v2r1_disk_dqblk`.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    id: U32,
    pad: U32,
    ihardlimit: U64,
    isoftlimit: U64,
    curinodes: U64,
    bhardlimit: U64,
    bsoftlimit: U64,
    curspace: U64,
    btime: U64,
    itime: U64,
}

assert_layout!(RawEntry, 72, {
    id: 0x0, pad: 0x4, ihardlimit: 0x8, isoftlimit: 0x10, curinodes: 0x18, bhardlimit: 0x20, bsoftlimit: 0x28, curspace: 0x30,
    btime: 0x38, itime: 0x40,
});

/// The file's properties, from block 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Grace time of space, seconds.
    pub space_grace: u32,
    /// Grace time of inodes, seconds.
    pub inode_grace: u32,
    flags: u32,
    /// Number of blocks in the file.
    pub blocks: u32,
    /// The first block of the list of free blocks; 0 if there is none.
    pub free_block: u32,
    /// The first leaf of the doubly linked list of leaves with room; 0 if there is none.
    pub free_entry: u32,
}

impl Info {
    /// The properties of a new file of `blocks` blocks, with both grace times (seconds) and the
    /// first leaf with room, 0 if there is none.
    #[must_use]
    pub fn new(grace: u32, blocks: u32, free_entry: u32) -> Info {
        Info {
            space_grace: grace,
            inode_grace: grace,
            flags: 0,
            blocks,
            free_block: 0,
            free_entry,
        }
    }

    /// Makes block 0 of a new file of this kind.
    ///
    /// # Errors
    /// The block is too short.
    pub fn begin(&self, kind: QuotaKind, block: &mut [u8]) -> Result<()> {
        let header = Header {
            magic: kind.magic().into(),
            version: VERSION.into(),
        };
        prefix_mut(WHAT, block, size_of::<Header>())?.copy_from_slice(header.as_bytes());
        self.encode(block)
    }

    /// Decodes block 0 of a file of this kind.
    ///
    /// # Errors
    /// Another magic number or version; lists that begin outside of the file.
    pub fn decode(kind: QuotaKind, block: &[u8]) -> Result<Info> {
        let bytes = prefix(WHAT, block, size_of::<Header>() + size_of::<RawInfo>())?;
        let (header, rest) =
            Header::ref_from_prefix(bytes).map_err(|_| corrupt!(WHAT, "too short"))?;
        if header.magic.get() != kind.magic() {
            return Err(corrupt!(
                WHAT,
                "magic {:#010x} in the {} quota file",
                header.magic.get(),
                kind.name()
            ));
        }
        if header.version.get() != VERSION {
            return Err(corrupt!(
                WHAT,
                "version {} of the {} quota file",
                header.version.get(),
                kind.name()
            ));
        }
        let (raw, _) = RawInfo::ref_from_prefix(rest).map_err(|_| corrupt!(WHAT, "too short"))?;
        let info = Info {
            space_grace: raw.bgrace.get(),
            inode_grace: raw.igrace.get(),
            flags: raw.flags.get(),
            blocks: raw.blocks.get(),
            free_block: raw.free_blk.get(),
            free_entry: raw.free_entry.get(),
        };
        for free in [info.free_block, info.free_entry] {
            if free != 0 {
                info.check_block(free)?;
            }
        }
        Ok(info)
    }

    /// Stores it in block 0, whose header stays.
    ///
    /// # Errors
    /// The block is too short.
    pub fn encode(&self, block: &mut [u8]) -> Result<()> {
        let raw = RawInfo {
            bgrace: self.space_grace.into(),
            igrace: self.inode_grace.into(),
            flags: self.flags.into(),
            blocks: self.blocks.into(),
            free_blk: self.free_block.into(),
            free_entry: self.free_entry.into(),
        };
        put(block, size_of::<Header>(), raw.as_bytes())
            .ok_or_else(|| corrupt!(WHAT, "a block of {} bytes", block.len()))
    }

    /// Checks the block number in a reference to a node, a leaf or a free block.
    ///
    /// # Errors
    /// The number is that of the header or the root, or lies outside the file.
    pub fn check_block(&self, nr: u32) -> Result<()> {
        if nr <= ROOT || nr >= self.blocks {
            return Err(corrupt!(
                WHAT,
                "a reference to block {nr} of {}",
                self.blocks
            ));
        }
        Ok(())
    }
}

/// The index of the reference to `id` in a block at `level` (0 is the root).
#[must_use]
pub const fn index(id: u32, level: usize) -> usize {
    id.to_be_bytes()[level] as usize
}

/// Reference `index` of a block; 0 is none.
#[must_use]
pub fn reference(block: &[u8], index: usize) -> u32 {
    le32(block, index * 4).unwrap_or(0)
}

/// Sets a [`reference()`].
///
/// # Errors
/// The block is too short.
pub fn set_reference(block: &mut [u8], index: usize, to: u32) -> Result<()> {
    put(block, index * 4, &to.to_le_bytes())
        .ok_or_else(|| corrupt!(WHAT, "no reference {index} in a block"))
}

/// The header of a leaf, or of a free block, where only `next` is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// The next block on its list, 0 at the end.
    pub next: u32,
    /// The previous block on its list, 0 at the beginning.
    pub prev: u32,
    /// Number of entries in use.
    pub entries: u16,
}

impl Leaf {
    /// Decodes the header.
    ///
    /// # Errors
    /// More entries than fit.
    pub fn decode(block: &[u8]) -> Result<Leaf> {
        let bytes = prefix(WHAT, block, size_of::<RawLeaf>())?;
        let raw = RawLeaf::ref_from_bytes(bytes).map_err(|_| corrupt!(WHAT, "too short"))?;
        let entries = raw.entries.get();
        if usize::from(entries) > ENTRIES {
            return Err(corrupt!(WHAT, "{entries} entries in a leaf"));
        }
        Ok(Leaf {
            next: raw.next_free.get(),
            prev: raw.prev_free.get(),
            entries,
        })
    }

    /// Stores the header in its block.
    ///
    /// # Errors
    /// The block is too short.
    pub fn encode(&self, block: &mut [u8]) -> Result<()> {
        let raw = RawLeaf {
            next_free: self.next.into(),
            prev_free: self.prev.into(),
            entries: self.entries.into(),
            pad1: 0.into(),
            pad2: 0.into(),
        };
        prefix_mut(WHAT, block, size_of::<RawLeaf>())?.copy_from_slice(raw.as_bytes());
        Ok(())
    }
}

/// Offset of entry `slot` of a leaf in bytes.
#[must_use]
pub const fn entry_offset(slot: usize) -> usize {
    size_of::<RawLeaf>() + slot * ENTRY_LEN
}

/// Limits of one id; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Hard limit of space, in units of 1 KiB.
    pub space_hard: u64,
    /// Soft limit of space, which may be exceeded for the grace time, in units of 1 KiB.
    pub space_soft: u64,
    /// Hard limit of inodes.
    pub inodes_hard: u64,
    /// Soft limit of inodes, which may be exceeded for the grace time.
    pub inodes_soft: u64,
}

/// Usage and limits of one id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// User, group or project id.
    pub id: u32,
    /// Space in use, bytes.
    pub space: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// The limits.
    pub limits: Limits,
    /// End of the grace time of space, seconds since 1970; 0 below the soft limit.
    pub space_time: u64,
    /// End of the grace time of inodes, likewise.
    pub inode_time: u64,
}

impl Entry {
    /// Decodes the entry in the first [`ENTRY_LEN`] bytes; `None` if the slot is free.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Entry> {
        let (raw, _) = RawEntry::ref_from_prefix(bytes).ok()?;
        if raw.as_bytes().iter().all(|b| *b == 0) {
            return None;
        }
        let entry = Entry {
            id: raw.id.get(),
            space: raw.curspace.get(),
            inodes: raw.curinodes.get(),
            limits: Limits {
                space_hard: raw.bhardlimit.get(),
                space_soft: raw.bsoftlimit.get(),
                inodes_hard: raw.ihardlimit.get(),
                inodes_soft: raw.isoftlimit.get(),
            },
            space_time: raw.btime.get(),
            inode_time: raw.itime.get(),
        };
        // This mark only keeps an entry of zeros from looking like a free slot.
        let mark = Entry {
            inode_time: 1,
            ..Entry::default()
        };
        Some(if entry == mark {
            Entry::default()
        } else {
            entry
        })
    }

    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let inode_time = match *self == Entry::default() {
            true => 1,
            false => self.inode_time,
        };
        let raw = RawEntry {
            id: self.id.into(),
            pad: 0.into(),
            ihardlimit: self.limits.inodes_hard.into(),
            isoftlimit: self.limits.inodes_soft.into(),
            curinodes: self.inodes.into(),
            bhardlimit: self.limits.space_hard.into(),
            bsoftlimit: self.limits.space_soft.into(),
            curspace: self.space.into(),
            btime: self.space_time.into(),
            itime: inode_time.into(),
        };
        zerocopy::transmute!(raw)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_zeroes_are_no_free_place() {
        assert_eq!(ENTRIES, 14);
        let entry = Entry {
            id: 1000,
            space: 1 << 40,
            inodes: 7,
            limits: Limits {
                space_hard: 1,
                space_soft: 2,
                inodes_hard: 3,
                inodes_soft: 4,
            },
            space_time: 5,
            inode_time: 6,
        };
        assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        let zero = Entry::default();
        assert_eq!(Entry::decode(&zero.encode()), Some(zero));
        assert_eq!(Entry::decode(&[0; ENTRY_LEN]), None);
        assert_eq!(Entry::decode(&[1; ENTRY_LEN - 1]), None);
    }

    #[test]
    fn ids_lead_through_their_bytes() {
        let path: Vec<usize> = (0..DEPTH).map(|level| index(0x0102_03ff, level)).collect();
        assert_eq!(path, [1, 2, 3, 255]);
    }

    #[test]
    fn what_block_0_must_not_say_is_refused() {
        let mut block = vec![0; BLOCK];
        block[..4].copy_from_slice(&QuotaKind::User.magic().to_le_bytes());
        block[4] = 1;
        let info = Info {
            space_grace: 604_800,
            inode_grace: 5,
            flags: 0,
            blocks: 6,
            free_block: 0,
            free_entry: 5,
        };
        info.encode(&mut block).unwrap();
        assert_eq!(Info::decode(QuotaKind::User, &block).unwrap(), info);
        assert!(Info::decode(QuotaKind::Group, &block).is_err());
        assert!(Info::decode(QuotaKind::User, &block[..31]).is_err());
        for wild in [1, 6, u32::MAX] {
            let mut bad = block.clone();
            Info {
                free_entry: wild,
                ..info
            }
            .encode(&mut bad)
            .unwrap();
            assert!(Info::decode(QuotaKind::User, &bad).is_err());
        }
        block[4] = 0;
        assert!(Info::decode(QuotaKind::User, &block).is_err());
    }

    #[test]
    fn leaves_come_back() {
        let leaf = Leaf {
            next: 3,
            prev: 9,
            entries: 14,
        };
        let mut block = vec![0; BLOCK];
        leaf.encode(&mut block).unwrap();
        assert_eq!(Leaf::decode(&block).unwrap(), leaf);
        block[8] = 15;
        assert!(Leaf::decode(&block).is_err());
    }
}
