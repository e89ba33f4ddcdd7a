//! Index blocks of hashed directories ("Hash Tree Directories" in the ext4 documentation).
//!
//! Block 0 of an indexed directory is the root (`dx_root`), further index blocks are nodes
//! (`dx_node`), the leaves are linear blocks (see `dirent`). Code that ignores the index reads a
//! root as a block with "." and ".." and a node as one free entry: the index lies in the slack.
//!
//! An index block maps hashes to blocks of the directory. Entry 0 has no hash (its field holds
//! `limit` and `count`) and covers all hashes below entry 1's. Entry `i` covers hashes from its own
//! up to the next entry's. Bit 0 of an entry's hash says that names with that hash also lie in the
//! previous block.
//!
//! Functions that change a block do not update the checksum: call [`update_checksum`] after a
//! change.

use super::checksum::ext4_crc32c;
use super::dirent::{self, DirLayout, decode_rec_len, encode_rec_len, min_rec_len};
use crate::bytes::{array_at, le16, le32, put};
use crate::error::{OnDiskError, Result, corrupt};

/// Name of the structure in errors.
const WHAT: &str = "directory index";
/// Bytes of one entry: hash and block.
const ENTRY: usize = 8;
/// Offset of `dx_root_info`: behind "." and "..".
const INFO: usize = 24;
/// The only valid `info_length`.
const INFO_LEN: u8 = 8;
/// Bytes of `dx_tail`: reserved word and checksum.
const TAIL_LEN: usize = 8;
/// Bits of an entry's block field that are a block number; the kernel ignores the others.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// The kind of an index block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Block 0.
    Root,
    /// Any other index block.
    Node,
}

/// The format of a volume's index blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexLayout {
    /// Whether blocks end in a checksum (`metadata_csum`).
    pub tail: bool,
    /// Highest `indirect_levels`: 1, or 2 with `large_dir`.
    pub max_levels: u8,
}

impl IndexLayout {
    /// The `limit` of an index block of `block_size` bytes: the maximum number of entries.
    #[must_use]
    pub fn limit(&self, kind: NodeKind, block_size: usize) -> usize {
        let used = entries_at(kind) + if self.tail { TAIL_LEN } else { 0 };
        block_size.saturating_sub(used) / ENTRY
    }
}

/// `dx_root_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootInfo {
    /// `hash_version` as stored; see
    /// [`HashVersion::of_root`](super::hash::HashVersion::of_root).
    pub hash_version: u8,
    /// Index levels below the root: 0 when its entries lead to leaves.
    pub indirect_levels: u8,
}

/// An entry of an index block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// Lowest hash behind this entry (0 in entry 0); with bit 0 set if that hash began in the
    /// block before.
    pub hash: u32,
    /// Block of the directory (logical).
    pub block: u32,
}

impl IndexEntry {
    /// Whether names with hash `major` that were not found in the previous block may be behind this
    /// entry.
    #[must_use]
    pub fn continues(&self, major: u32) -> bool {
        self.hash == major | 1
    }
}

/// Offset of the entries of an index block in bytes.
const fn entries_at(kind: NodeKind) -> usize {
    match kind {
        NodeKind::Root => INFO + INFO_LEN as usize,
        NodeKind::Node => 8,
    }
}

/// Layout for reading a root's "." and "..": as directory entries the index is slack of "..".
const DOTS: DirLayout = DirLayout {
    tail: false,
    filetype: true,
    max_inode: u32::MAX,
};

/// Reads and checks the root's header: "." and "..", and `dx_root_info`.
pub fn root_info(block: &[u8], layout: &IndexLayout) -> Result<RootInfo> {
    root_dots(block)?;
    let [
        r0,
        r1,
        r2,
        r3,
        hash_version,
        info_len,
        indirect_levels,
        flags,
    ] = array_at(block, INFO).ok_or_else(|| corrupt!(WHAT, "root of {} bytes", block.len()))?;
    if [r0, r1, r2, r3] != [0; 4] || info_len != INFO_LEN {
        return Err(corrupt!(
            WHAT,
            "root with info_length {info_len}, reserved {:02x?}",
            [r0, r1, r2, r3]
        ));
    }
    if flags & 1 != 0 {
        return Err(OnDiskError::Unsupported {
            feature: format!("directory index flags {flags:#x}"),
        });
    }
    if indirect_levels > layout.max_levels {
        return Err(corrupt!(
            WHAT,
            "{indirect_levels} indirect levels of at most {}",
            layout.max_levels
        ));
    }
    Ok(RootInfo {
        hash_version,
        indirect_levels,
    })
}

/// Inodes of "." and ".." in a root. (To change "..", use [`dirent::set_inode`] with a layout
/// without tail.)
pub fn root_dots(block: &[u8]) -> Result<(u32, u32)> {
    let mut entries = dirent::entries(block, &DOTS)?;
    match (entries.next().transpose()?, entries.next().transpose()?) {
        (Some(dot), Some(dotdot))
            if dot.inode != 0
                && dotdot.inode != 0
                && dot.name == b"."
                && dot.rec_len == min_rec_len(1)
                && dotdot.name == b".."
                && dotdot.rec_len == block.len() - min_rec_len(1) =>
        {
            Ok((dot.inode, dotdot.inode))
        }
        _ => Err(corrupt!(WHAT, "root without \".\" and \"..\"")),
    }
}

/// Whether a block is a node rather than a leaf: it has one free entry without a name, followed by
/// a node's `limit`.
#[must_use]
pub fn looks_like_node(block: &[u8], layout: &IndexLayout) -> bool {
    let whole = le16(block, 4).is_some_and(|len| decode_rec_len(len, block.len()) == block.len());
    let limit = le16(block, entries_at(NodeKind::Node)).map(usize::from);
    le32(block, 0) == Some(0)
        && whole
        && block.get(6) == Some(&0)
        && limit == Some(layout.limit(NodeKind::Node, block.len()))
}

/// The entries of an index block, with `limit` and `count` checked.
#[derive(Debug, Clone, Copy)]
pub struct Index<'a> {
    /// The `count` entries that are in use; never empty.
    entries: &'a [[u8; ENTRY]],
    limit: usize,
}

impl<'a> Index<'a> {
    /// Checks `limit`, `count` and the bytes that make the block look like a directory block.
    /// [`root_info`] checks a root's header; [`Index::check`] checks each entry.
    pub fn new(block: &'a [u8], kind: NodeKind, layout: &IndexLayout) -> Result<Index<'a>> {
        let at = entries_at(kind);
        let short = || corrupt!(WHAT, "{} bytes long", block.len());
        if kind == NodeKind::Node {
            let (inode, rec_len) = le32(block, 0).zip(le16(block, 4)).ok_or_else(short)?;
            if inode != 0 || decode_rec_len(rec_len, block.len()) != block.len() {
                return Err(corrupt!(
                    WHAT,
                    "node that starts with inode {inode}, rec_len {rec_len}"
                ));
            }
        }
        let (limit, count) = le16(block, at).zip(le16(block, at + 2)).ok_or_else(short)?;
        let (limit, count) = (usize::from(limit), usize::from(count));
        let expected = layout.limit(kind, block.len());
        if limit != expected || count == 0 || count > limit {
            return Err(corrupt!(
                WHAT,
                "count {count}, limit {limit} where {expected} fit"
            ));
        }
        let bytes = block.get(at..at + count * ENTRY).ok_or_else(short)?;
        let (entries, _) = bytes.as_chunks::<ENTRY>();
        Ok(Index { entries, limit })
    }

    /// Number of entries, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an index is never empty")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no room for another entry.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Entry `i`.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<IndexEntry> {
        let [h0, h1, h2, h3, b0, b1, b2, b3] = *self.entries.get(i)?;
        Some(IndexEntry {
            // Entry 0 holds limit and count there.
            hash: if i == 0 {
                0
            } else {
                u32::from_le_bytes([h0, h1, h2, h3])
            },
            block: u32::from_le_bytes([b0, b1, b2, b3]) & BLOCK_MASK,
        })
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = IndexEntry> + use<'a> {
        let index = *self;
        (0..index.len()).map_while(move |i| index.get(i))
    }

    /// Index and value of the entry that covers `hash`: the last entry whose hash is not above it.
    /// (In an index that [`Index::check`] would refuse, any entry.)
    #[must_use]
    pub fn search(&self, hash: u32) -> (usize, IndexEntry) {
        let above_first = self.entries.get(1..).unwrap_or(&[]);
        let i = above_first
            .partition_point(|&[h0, h1, h2, h3, ..]| u32::from_le_bytes([h0, h1, h2, h3]) <= hash);
        // `new` checked that entry 0 exists, and i counts entries from 1 on.
        (i, self.get(i).unwrap_or(IndexEntry { hash: 0, block: 0 }))
    }

    /// Checks every entry: hashes ascend and blocks lie in a directory of `dir_blocks` blocks, not
    /// at its root.
    pub fn check(&self, dir_blocks: u32) -> Result<()> {
        let mut last = 0;
        for (i, e) in self.iter().enumerate() {
            if e.hash < last {
                return Err(corrupt!(
                    WHAT,
                    "entry {i}: hash {:#x} after {last:#x}",
                    e.hash
                ));
            }
            if e.block == 0 || e.block >= dir_blocks {
                return Err(corrupt!(
                    WHAT,
                    "entry {i}: block {} of {dir_blocks}",
                    e.block
                ));
            }
            last = e.hash;
        }
        Ok(())
    }
}

/// Makes the block a root without indirect levels whose only entry leads to `leaf`. `filetype` is
/// the volume's feature, `hash_version` comes from
/// [`HashVersion::root_byte`](super::hash::HashVersion::root_byte).
pub fn init_root(
    block: &mut [u8],
    layout: &IndexLayout,
    (inode, parent): (u32, u32),
    filetype: bool,
    hash_version: u8,
    leaf: u32,
) -> Result<()> {
    dirent::init_dots(block, &DirLayout { filetype, ..DOTS }, inode, parent)?;
    put(block, INFO, &[0, 0, 0, 0, hash_version, INFO_LEN, 0, 0]).ok_or_else(no_room)?;
    set_entries(
        block,
        NodeKind::Root,
        layout,
        &[IndexEntry {
            hash: 0,
            block: leaf,
        }],
    )
}

/// Adds an entry behind entry `after`; `false` (and nothing changed) if the block is full.
pub fn insert(
    block: &mut [u8],
    kind: NodeKind,
    layout: &IndexLayout,
    after: usize,
    entry: IndexEntry,
) -> Result<bool> {
    let index = Index::new(block, kind, layout)?;
    let count = index.len();
    let before = index
        .get(after)
        .ok_or_else(|| corrupt!(WHAT, "no entry {after} of {count}"))?;
    let behind = index.get(after + 1);
    if entry.hash < before.hash || behind.is_some_and(|b| b.hash < entry.hash) {
        return Err(corrupt!(
            WHAT,
            "hash {:#x} does not belong behind entry {after}",
            entry.hash
        ));
    }
    if index.is_full() {
        return Ok(false);
    }
    let at = entries_at(kind);
    let slot = at + (after + 1) * ENTRY;
    let tail = block
        .get_mut(slot..at + (count + 1) * ENTRY)
        .ok_or_else(no_room)?;
    tail.copy_within(..tail.len() - ENTRY, ENTRY);
    write_entry(block, slot, entry)?;
    set_count(block, at, count + 1)?;
    Ok(true)
}

/// Moves the upper half of a node's entries to `new`, which becomes a node. Returns the hash of the
/// new node's entry in the parent.
pub fn split_node(node: &mut [u8], new: &mut [u8], layout: &IndexLayout) -> Result<u32> {
    let index = Index::new(node, NodeKind::Node, layout)?;
    let keep = index.len() / 2;
    let moved: Vec<IndexEntry> = index.iter().skip(keep).collect();
    let first = match (keep, moved.first()) {
        (1.., Some(first)) => first.hash,
        _ => {
            return Err(corrupt!(
                WHAT,
                "cannot split a node of {} entries",
                index.len()
            ));
        }
    };
    init_node(new, layout, &moved)?;
    set_count(node, entries_at(NodeKind::Node), keep)?;
    Ok(first)
}

/// Adds a level: all entries of the root move to `child`, which becomes a node, and the root's only
/// entry leads to it as block `child_block`. Fails if the root has the maximum number of levels.
pub fn deepen(
    root: &mut [u8],
    child: &mut [u8],
    layout: &IndexLayout,
    child_block: u32,
) -> Result<()> {
    let levels = root_info(root, layout)?.indirect_levels;
    if levels >= layout.max_levels {
        return Err(corrupt!(
            WHAT,
            "root has its {levels} indirect levels already"
        ));
    }
    let entries: Vec<IndexEntry> = Index::new(root, NodeKind::Root, layout)?.iter().collect();
    init_node(child, layout, &entries)?;
    put(root, INFO + 6, &[levels + 1]).ok_or_else(no_room)?;
    set_entries(
        root,
        NodeKind::Root,
        layout,
        &[IndexEntry {
            hash: 0,
            block: child_block,
        }],
    )
}

/// Makes the block a node with these entries; the hash of the first one is not stored.
fn init_node(block: &mut [u8], layout: &IndexLayout, entries: &[IndexEntry]) -> Result<()> {
    block.fill(0);
    let rec_len = encode_rec_len(block.len(), block.len()).ok_or_else(no_room)?;
    put(block, 4, &rec_len.to_le_bytes()).ok_or_else(no_room)?;
    set_entries(block, NodeKind::Node, layout, entries)
}

/// Writes `limit`, `count` and the entries; the rest of the block is zeroed.
fn set_entries(
    block: &mut [u8],
    kind: NodeKind,
    layout: &IndexLayout,
    entries: &[IndexEntry],
) -> Result<()> {
    let (at, limit) = (entries_at(kind), layout.limit(kind, block.len()));
    if entries.is_empty() || entries.len() > limit {
        return Err(no_room());
    }
    block.get_mut(at..).ok_or_else(no_room)?.fill(0);
    for (i, entry) in entries.iter().enumerate() {
        write_entry(block, at + i * ENTRY, *entry)?;
    }
    let limit = u16::try_from(limit).map_err(|_| no_room())?;
    put(block, at, &limit.to_le_bytes()).ok_or_else(no_room)?;
    set_count(block, at, entries.len())
}

fn write_entry(block: &mut [u8], at: usize, entry: IndexEntry) -> Result<()> {
    put(block, at, &entry.hash.to_le_bytes()).ok_or_else(no_room)?;
    put(block, at + 4, &entry.block.to_le_bytes()).ok_or_else(no_room)
}

fn set_count(block: &mut [u8], at: usize, count: usize) -> Result<()> {
    let raw = u16::try_from(count).map_err(|_| no_room())?;
    put(block, at + 2, &raw.to_le_bytes()).ok_or_else(no_room)
}

fn no_room() -> OnDiskError {
    corrupt!(WHAT, "entries do not fit in their block")
}

/// The offset of the tail, and the checksum: it covers everything up to the last entry in use, then
/// the tail with its checksum counted as zero. The bytes between the last entry and the limit are
/// not covered.
fn tail_and_checksum(
    block: &[u8],
    kind: NodeKind,
    layout: &IndexLayout,
    seed: u32,
) -> Result<(usize, u32)> {
    let index = Index::new(
        block,
        kind,
        &IndexLayout {
            tail: true,
            ..*layout
        },
    )?;
    let at = entries_at(kind);
    let tail = at + index.limit * ENTRY;
    let (used, reserved) = block
        .get(..at + index.len() * ENTRY)
        .zip(block.get(tail..tail + 4))
        .ok_or_else(no_room)?;
    let sum = ext4_crc32c(ext4_crc32c(seed, used), reserved);
    Ok((tail, ext4_crc32c(sum, &[0; 4])))
}

/// Verifies the checksum of an index block; also fails if the block has no room for one. `seed` is
/// the [`inode_seed`](super::checksum::inode_seed) of the directory.
pub fn verify_checksum(
    block: &[u8],
    kind: NodeKind,
    layout: &IndexLayout,
    seed: u32,
) -> Result<()> {
    let (tail, computed) = tail_and_checksum(block, kind, layout, seed)?;
    let stored = le32(block, tail + 4).ok_or_else(no_room)?;
    if stored != computed {
        return Err(corrupt!(
            WHAT,
            "checksum {stored:#010x}, computed {computed:#010x}"
        ));
    }
    Ok(())
}

/// Stores the checksum; fails if the block has no room for one.
pub fn update_checksum(
    block: &mut [u8],
    kind: NodeKind,
    layout: &IndexLayout,
    seed: u32,
) -> Result<()> {
    let (tail, sum) = tail_and_checksum(block, kind, layout, seed)?;
    put(block, tail + 4, &sum.to_le_bytes()).ok_or_else(no_room)
}

#[cfg(test)]
mod tests;
