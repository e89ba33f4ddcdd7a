//! Attributes, and the room that they take.

use crate::error::{OnDiskError, corrupt};

/// Name of the structure in errors.
pub(super) const WHAT: &str = "extended attributes";
/// `h_magic` of both forms.
pub(super) const MAGIC: u32 = 0xEA02_0000;
/// Bytes of `ext4_xattr_ibody_header`.
pub(super) const INODE_HEADER: usize = 4;
/// Bytes of `ext4_xattr_header`.
pub(super) const BLOCK_HEADER: usize = 32;
/// Bytes of `ext4_xattr_entry` before the name.
pub(super) const ENTRY: usize = 16;
/// Zero bytes behind the last entry.
pub(super) const TERMINATOR: usize = 4;
/// Names and values start at multiples of this.
pub(super) const ALIGN: usize = 4;
/// Longest name without its prefix, bytes.
pub const NAME_MAX: usize = 255;
/// Largest value, bytes (`XATTR_SIZE_MAX`).
pub const VALUE_MAX: usize = 65536;

/// A value, or a reference to it.
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

    pub(super) fn value_space(&self) -> usize {
        match self.value {
            Value::Bytes(v) => v.len().next_multiple_of(ALIGN),
            Value::Inode { .. } => 0,
        }
    }

    /// Order of entries in a block.
    pub(super) fn sort_key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), self.name)
    }
}

/// Bytes of an entry with its name.
pub(super) fn entry_len(name_len: usize) -> usize {
    (ENTRY + name_len).next_multiple_of(ALIGN)
}

/// Maximum length of a value that fits in a block, beside a name of three bytes
/// (`EXT4_XATTR_MIN_LARGE_EA_SIZE`): longer values go to inodes of their own without trying.
#[must_use]
pub fn large_value(block_size: usize) -> usize {
    block_room(block_size).saturating_sub(entry_len(3) + TERMINATOR)
}

/// Bytes at the start of a block that are reserved for entries, on volumes where values may have
/// inodes of their own (`EXT4_XATTR_BLOCK_RESERVE`).
#[must_use]
pub fn block_reserve(block_size: usize) -> usize {
    (block_size / 8).min(1024)
}

/// Bytes that the values of a set of attributes take.
#[must_use]
pub fn values_space(attrs: &[Attr<'_>]) -> usize {
    attrs.iter().map(Attr::value_space).sum()
}

/// Bytes that a set of attributes takes; it fits if [`inode_room`] or [`block_room`] is at least
/// that.
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

pub(super) fn no_room() -> OnDiskError {
    corrupt!(WHAT, "attributes do not fit")
}
