//! Extended attributes, in the inode and in a block of their own ("Extended Attributes" in the ext4
//! documentation).
//!
//! Both forms hold a list of entries (header, name) that grows upwards and ends with four zero
//! bytes, and values that lie at the end. In the inode, what follows `i_extra_isize` starts with a
//! magic number, and value offsets count from behind it; a block has a 32-byte header, and offsets
//! count from its start. Attributes are read in place and written by laying out a whole set anew.

use super::checksum::{crc32c_with_hole, ext4_crc32c};
use crate::bytes::{le16, le32, put};
use crate::error::{OnDiskError, Result, corrupt};
use crate::num::sign_extended;

/// Name of the structure in errors.
const WHAT: &str = "extended attributes";
/// `h_magic` of both forms.
const MAGIC: u32 = 0xEA02_0000;
/// Bytes of `ext4_xattr_ibody_header`.
const INODE_HEADER: usize = 4;
/// Bytes of `ext4_xattr_header`.
const BLOCK_HEADER: usize = 32;
/// Bytes of `ext4_xattr_entry` before the name.
const ENTRY: usize = 16;
/// Zero bytes behind the last entry.
const TERMINATOR: usize = 4;
/// Names and values start at multiples of this.
const ALIGN: usize = 4;
/// Where `h_checksum` lies.
const CHECKSUM_AT: usize = 16;
/// Longest name without its prefix, bytes.
pub const NAME_MAX: usize = 255;
/// Largest value, bytes (`XATTR_SIZE_MAX`).
pub const VALUE_MAX: usize = 65536;
/// Most inodes that may share a block (`EXT4_XATTR_REFCOUNT_MAX`).
pub const REFCOUNT_MAX: u32 = 1024;

/// `e_name_index`: the prefix that a stored name lacks.
pub mod index {
    /// `user.`
    pub const USER: u8 = 1;
    /// `system.posix_acl_access`, the whole name.
    pub const POSIX_ACL_ACCESS: u8 = 2;
    /// `system.posix_acl_default`, the whole name.
    pub const POSIX_ACL_DEFAULT: u8 = 3;
    /// `trusted.`
    pub const TRUSTED: u8 = 4;
    /// `security.`
    pub const SECURITY: u8 = 6;
    /// `system.`: data of the file system itself (inline data).
    pub const SYSTEM: u8 = 7;
    /// `system.richacl`, the whole name.
    pub const RICHACL: u8 = 8;
    /// `gnu.`
    pub const HURD: u8 = 10;
}

/// Index, prefix, and whether the prefix is the whole name.
const PREFIXES: [(u8, &[u8], bool); 7] = [
    (index::USER, b"user.", false),
    (index::POSIX_ACL_ACCESS, b"system.posix_acl_access", true),
    (index::POSIX_ACL_DEFAULT, b"system.posix_acl_default", true),
    (index::TRUSTED, b"trusted.", false),
    (index::SECURITY, b"security.", false),
    (index::RICHACL, b"system.richacl", true),
    (index::HURD, b"gnu.", false),
];

/// Index and stored name of an attribute as programs name it. `None` for a prefix that ext4 does
/// not have (other `system.` names are the file system's own) and for a prefix that nothing
/// follows.
#[must_use]
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|&(index, prefix, whole)| {
        let rest = full.strip_prefix(prefix)?;
        (rest.is_empty() == whole).then_some((index, rest))
    })
}

/// The name programs see; `None` for attributes that they do not see.
#[must_use]
pub fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    let &(_, prefix, whole) = PREFIXES.iter().find(|(i, ..)| *i == index)?;
    (name.is_empty() == whole).then(|| [prefix, name].concat())
}

/// A value, or where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// The value itself.
    Bytes(&'a [u8]),
    /// In an inode of its own (`ea_inode`).
    Inode {
        /// `e_value_inum`.
        ino: u32,
        /// `e_value_size`, bytes.
        size: u32,
        /// `e_hash`, which covers the name and the value's checksum.
        hash: u32,
    },
}

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr<'a> {
    /// `e_name_index`.
    pub index: u8,
    /// The name without its prefix.
    pub name: &'a [u8],
    /// The value.
    pub value: Value<'a>,
}

impl Attr<'_> {
    /// Bytes it takes in a body: entry and value.
    fn space(&self) -> usize {
        entry_len(self.name.len()) + self.value_space()
    }

    fn value_space(&self) -> usize {
        match self.value {
            Value::Bytes(v) => v.len().next_multiple_of(ALIGN),
            Value::Inode { .. } => 0,
        }
    }

    /// Order of entries in a block.
    fn sort_key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), self.name)
    }
}

/// Bytes of an entry with its name.
fn entry_len(name_len: usize) -> usize {
    (ENTRY + name_len).next_multiple_of(ALIGN)
}

/// The longest value of which a block may hold one, beside a name of three bytes
/// (`EXT4_XATTR_MIN_LARGE_EA_SIZE`): longer ones go to inodes of their own without trying.
#[must_use]
pub fn large_value(block_size: usize) -> usize {
    block_room(block_size).saturating_sub(entry_len(3) + TERMINATOR)
}

/// Where values exist that have inodes of their own, entries keep the first this many bytes of a
/// block for themselves (`EXT4_XATTR_BLOCK_RESERVE`).
#[must_use]
pub fn block_reserve(block_size: usize) -> usize {
    (block_size / 8).min(1024)
}

/// Bytes that the values of a set of attributes take.
#[must_use]
pub fn values_space(attrs: &[Attr<'_>]) -> usize {
    attrs.iter().map(Attr::value_space).sum()
}

/// Bytes that a set of attributes takes; it fits where [`inode_room`] or [`block_room`] is not
/// below.
#[must_use]
pub fn space(attrs: &[Attr<'_>]) -> usize {
    attrs.iter().map(Attr::space).sum::<usize>() + TERMINATOR
}

/// Room for attributes in an inode that has `body_len` bytes behind `i_extra_isize`.
#[must_use]
pub fn inode_room(body_len: usize) -> usize {
    body_len.saturating_sub(INODE_HEADER)
}

/// Room for attributes in a block of `block_size` bytes.
#[must_use]
pub fn block_room(block_size: usize) -> usize {
    block_size.saturating_sub(BLOCK_HEADER)
}

/// A checked list of attributes.
#[derive(Debug, Clone, Copy)]
pub struct Attrs<'a> {
    /// What value offsets count from.
    base: &'a [u8],
    /// Where entries start in it.
    first: usize,
}

impl<'a> Attrs<'a> {
    /// The attributes in an inode; `body` is all that follows its `i_extra_isize` bytes.
    /// Without the magic number there are none.
    pub fn in_inode(body: &'a [u8]) -> Result<Attrs<'a>> {
        match body.split_first_chunk::<INODE_HEADER>() {
            Some((magic, base)) if u32::from_le_bytes(*magic) == MAGIC => {
                Attrs { base, first: 0 }.checked()
            }
            _ => Ok(Attrs {
                base: &[],
                first: 0,
            }),
        }
    }

    /// The attributes in an attribute block.
    pub fn in_block(block: &'a [u8]) -> Result<Attrs<'a>> {
        BlockHeader::read(block)?;
        Attrs {
            base: block,
            first: BLOCK_HEADER,
        }
        .checked()
    }

    fn checked(self) -> Result<Attrs<'a>> {
        let (mut at, mut values) = (self.first, self.base.len());
        while let Some((attr, next)) = self.entry_at(at)? {
            if let (Value::Bytes(&[_, ..]), Some(offset)) = (attr.value, le16(self.base, at + 2)) {
                values = values.min(usize::from(offset));
            }
            at = next;
        }
        if values < at + TERMINATOR {
            return Err(corrupt!(
                WHAT,
                "value at {values} in the entries, which end at {at}"
            ));
        }
        Ok(self)
    }

    /// Reads and checks the entry at `at`, and where the next one starts; `None` at the terminator.
    fn entry_at(&self, at: usize) -> Result<Option<(Attr<'a>, usize)>> {
        let past_end = || corrupt!(WHAT, "entry at {at} ends past {}", self.base.len());
        if le32(self.base, at).ok_or_else(past_end)? == 0 {
            return Ok(None);
        }
        let bytes = self.base.get(at..).ok_or_else(past_end)?;
        let (head, rest) = bytes.split_at_checked(ENTRY).ok_or_else(past_end)?;
        let &[name_len, index, ..] = head else {
            return Err(past_end());
        };
        let field = |off| le32(head, off).ok_or_else(past_end);
        let offset = usize::from(le16(head, 2).ok_or_else(past_end)?);
        let (ino, size, hash) = (field(4)?, field(8)?, field(12)?);
        let name = rest.get(..usize::from(name_len)).ok_or_else(past_end)?;
        if name.contains(&0) {
            return Err(corrupt!(WHAT, "entry at {at}: NUL in its name"));
        }
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let value = match (ino, len) {
            (0, 0) => Value::Bytes(&[]),
            (0, 1..=VALUE_MAX) => {
                let padded = self
                    .base
                    .get(offset..)
                    .and_then(|b| b.get(..len.next_multiple_of(ALIGN)));
                let value = padded.and_then(|b| b.get(..len));
                Value::Bytes(value.ok_or_else(|| {
                    corrupt!(
                        WHAT,
                        "entry at {at}: value of {size} bytes at {offset} of {}",
                        self.base.len()
                    )
                })?)
            }
            (1.., 0..=VALUE_MAX) => Value::Inode { ino, size, hash },
            _ => return Err(corrupt!(WHAT, "entry at {at}: value of {size} bytes")),
        };
        Ok(Some((
            Attr { index, name, value },
            at + entry_len(name.len()),
        )))
    }

    /// All attributes, in the order stored.
    pub fn iter(&self) -> impl Iterator<Item = Attr<'a>> + use<'a> {
        let this = *self;
        let mut at = this.first;
        core::iter::from_fn(move || {
            // Checked before: the only `Err` is the empty body of an inode without attributes.
            let (attr, next) = this.entry_at(at).ok()??;
            at = next;
            Some(attr)
        })
    }

    /// The attribute with this name.
    #[must_use]
    pub fn find(&self, index: u8, name: &[u8]) -> Option<Attr<'a>> {
        self.iter().find(|a| a.index == index && a.name == name)
    }
}

/// Header of an attribute block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// `h_refcount`: inodes that share the block.
    pub refcount: u32,
    /// `h_hash`: hash of all attributes, to find blocks that could be shared; 0 if it has none.
    pub hash: u32,
}

impl BlockHeader {
    /// Reads and checks the header.
    pub fn read(block: &[u8]) -> Result<BlockHeader> {
        let field =
            |off| le32(block, off).ok_or_else(|| corrupt!(WHAT, "block of {} bytes", block.len()));
        let (magic, refcount, blocks, hash) = (field(0)?, field(4)?, field(8)?, field(12)?);
        if magic != MAGIC || blocks != 1 || refcount == 0 {
            return Err(corrupt!(
                WHAT,
                "block with magic {magic:#x}, blocks {blocks}, refcount {refcount}"
            ));
        }
        Ok(BlockHeader { refcount, hash })
    }
}

/// Changes `h_refcount` of an attribute block; the checksum is to be updated.
pub fn set_refcount(block: &mut [u8], refcount: u32) -> Result<()> {
    BlockHeader::read(block)?;
    if !(1..=REFCOUNT_MAX).contains(&refcount) {
        return Err(corrupt!(WHAT, "new refcount {refcount}"));
    }
    put(block, 4, &refcount.to_le_bytes()).ok_or_else(no_room)
}

/// Lays out `attrs` in an inode's `body` (see [`Attrs::in_inode`]); the rest is zeroed.
/// `false`, and nothing changed, if they do not fit. An empty set removes the magic number, too.
pub fn write_in_inode(body: &mut [u8], attrs: &[Attr<'_>]) -> Result<bool> {
    let sorted = sorted(attrs)?;
    if attrs.is_empty() {
        body.fill(0);
        return Ok(true);
    }
    if space(attrs) > inode_room(body.len()) {
        return Ok(false);
    }
    body.fill(0);
    put(body, 0, &MAGIC.to_le_bytes()).ok_or_else(no_room)?;
    // The kernel leaves e_hash 0 in the inode: it serves to find shared blocks.
    lay_out(
        body.get_mut(INODE_HEADER..).ok_or_else(no_room)?,
        0,
        &sorted,
        |_, _| 0,
    )?;
    Ok(true)
}

/// Makes `block` an attribute block that holds `attrs` and is referred to by `refcount` inodes.
/// `false`, and nothing changed, if they do not fit. The checksum is to be updated.
pub fn write_block(block: &mut [u8], attrs: &[Attr<'_>], refcount: u32) -> Result<bool> {
    let sorted = sorted(attrs)?;
    if space(attrs) > block_room(block.len()) {
        return Ok(false);
    }
    block.fill(0);
    for (off, word) in [
        (0, MAGIC),
        (4, refcount),
        (8, 1),
        (12, block_hash(sorted.iter().map(hash_of))),
    ] {
        put(block, off, &word.to_le_bytes()).ok_or_else(no_room)?;
    }
    lay_out(block, BLOCK_HEADER, &sorted, entry_hash)?;
    set_refcount(block, refcount)?;
    Ok(true)
}

/// Writes entries upwards from `first` and values downwards from the end; the caller made sure of
/// the room.
fn lay_out(
    base: &mut [u8],
    first: usize,
    attrs: &[Attr<'_>],
    hash: fn(&[u8], &[u8]) -> u32,
) -> Result<()> {
    let (mut at, mut end) = (first, base.len() / ALIGN * ALIGN);
    for attr in attrs {
        end = end.checked_sub(attr.value_space()).ok_or_else(no_room)?;
        let (offset, ino, size, hash) = match attr.value {
            Value::Bytes(&[]) => (0, 0, 0, hash(attr.name, &[])),
            Value::Bytes(v) => {
                put(base, end, v).ok_or_else(no_room)?;
                (
                    end,
                    0,
                    u32::try_from(v.len()).map_err(|_| no_room())?,
                    hash(attr.name, v),
                )
            }
            Value::Inode { ino, size, hash } => (0, ino, size, hash),
        };
        let name_len = u8::try_from(attr.name.len()).map_err(|_| no_room())?;
        let offset = u16::try_from(offset).map_err(|_| no_room())?;
        put(base, at, &[name_len, attr.index]).ok_or_else(no_room)?;
        put(base, at + 2, &offset.to_le_bytes()).ok_or_else(no_room)?;
        for (off, word) in [(4, ino), (8, size), (12, hash)] {
            put(base, at + off, &word.to_le_bytes()).ok_or_else(no_room)?;
        }
        put(base, at + ENTRY, attr.name).ok_or_else(no_room)?;
        at += entry_len(attr.name.len());
    }
    Ok(())
}

/// The attributes in the order of a block; refuses what must not be written.
fn sorted<'a>(attrs: &[Attr<'a>]) -> Result<Vec<Attr<'a>>> {
    let mut sorted = attrs.to_vec();
    sorted.sort_unstable_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    if let Some([twice, _]) = sorted
        .array_windows()
        .find(|[a, b]| a.sort_key() == b.sort_key())
    {
        return Err(corrupt!(
            WHAT,
            "new attribute {}:{} twice",
            twice.index,
            twice.name.escape_ascii()
        ));
    }
    for a in &sorted {
        let too_large = matches!(a.value, Value::Bytes(v) if v.len() > VALUE_MAX);
        // Index 0 with an empty name could read as the terminator.
        let nameless = a.index == 0 && a.name.is_empty();
        if nameless || a.name.len() > NAME_MAX || a.name.contains(&0) || too_large {
            return Err(corrupt!(
                WHAT,
                "new attribute {}:{}",
                a.index,
                a.name.escape_ascii()
            ));
        }
    }
    Ok(sorted)
}

fn no_room() -> OnDiskError {
    corrupt!(WHAT, "attributes do not fit")
}

/// `e_hash` of an attribute in a block, as an entry of [`block_hash`].
fn hash_of(attr: &Attr<'_>) -> u32 {
    match attr.value {
        Value::Bytes(v) => entry_hash(attr.name, v),
        Value::Inode { hash, .. } => hash,
    }
}

/// `e_hash` of an attribute in a block. Bytes of the name count as unsigned, as in Linux since 6.2;
/// before, they were whatever `char` was, so a stored hash of a name that is not ASCII may differ.
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let name = name
        .iter()
        .fold(0u32, |h, &b| h.rotate_left(5) ^ u32::from(b));
    value.chunks(ALIGN).fold(name, |h, piece| {
        let word = piece.iter().rev().fold(0, |w, &b| w << 8 | u32::from(b));
        h.rotate_left(16) ^ word
    })
}

/// Checksum of a value that has an inode of its own: what that inode keeps as
/// [`value_hash`](super::inode::InodeView::value_hash).
#[must_use]
pub fn value_hash(value: &[u8], csum_seed: u32) -> u32 {
    ext4_crc32c(csum_seed, value)
}

/// `e_hash` of an attribute whose value has an inode of its own, in a block and in an inode alike.
#[must_use]
pub fn value_entry_hash(name: &[u8], value_hash: u32) -> u32 {
    entry_hash(name, &value_hash.to_le_bytes())
}

/// Whether `e_hash` of such an attribute is right. Linux before 6.2 may have taken the bytes of the
/// name as signed.
#[must_use]
pub fn is_value_entry_hash(hash: u32, name: &[u8], value_hash: u32) -> bool {
    let signed = name
        .iter()
        .fold(0u32, |h, &b| h.rotate_left(5) ^ sign_extended(b));
    hash == value_entry_hash(name, value_hash) || hash == signed.rotate_left(16) ^ value_hash
}

/// `h_hash` of a block whose entries have these hashes; 0 if one has none.
fn block_hash(entries: impl IntoIterator<Item = u32>) -> u32 {
    entries
        .into_iter()
        .try_fold(0u32, |h, e| (e != 0).then_some(h.rotate_left(16) ^ e))
        .unwrap_or(0)
}

/// Checksum of the attribute block at `block_nr`.
/// `csum_seed` is the volume's, not an inode's: the block may belong to many.
#[must_use]
pub fn block_checksum(block: &[u8], csum_seed: u32, block_nr: u64) -> u32 {
    crc32c_with_hole(
        ext4_crc32c(csum_seed, &block_nr.to_le_bytes()),
        block,
        CHECKSUM_AT,
        4,
    )
}

/// Checks `h_checksum`.
pub fn verify_block_checksum(block: &[u8], csum_seed: u32, block_nr: u64) -> Result<()> {
    let stored =
        le32(block, CHECKSUM_AT).ok_or_else(|| corrupt!(WHAT, "block of {} bytes", block.len()))?;
    let computed = block_checksum(block, csum_seed, block_nr);
    if stored != computed {
        return Err(corrupt!(
            WHAT,
            "block checksum {stored:#010x}, computed {computed:#010x}"
        ));
    }
    Ok(())
}

/// Stores the right `h_checksum`.
pub fn update_block_checksum(block: &mut [u8], csum_seed: u32, block_nr: u64) -> Result<()> {
    let sum = block_checksum(block, csum_seed, block_nr);
    put(block, CHECKSUM_AT, &sum.to_le_bytes()).ok_or_else(no_room)
}

#[cfg(test)]
mod tests;
