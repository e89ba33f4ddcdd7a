//! Directory entries, their types and lengths.

use crate::error::{Result, corrupt};

/// Name of the structure in errors.
pub(super) const WHAT: &str = "directory entry";
/// Bytes before the name.
pub(super) const HEADER: usize = 8;
/// Longest name, bytes (`EXT4_NAME_LEN`).
pub const NAME_MAX: usize = 255;
/// Bytes of `ext4_dir_entry_tail`, which ends a block under `metadata_csum`.
pub const TAIL_LEN: usize = 12;
/// Maximum size of a block; beyond it `rec_len` cannot be encoded.
const MAX_BLOCK: usize = 65536;

/// `file_type` of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileType {
    /// Not recorded (no `filetype` feature), or an unknown value.
    Unknown = 0,
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Character device.
    CharDevice = 3,
    /// Block device.
    BlockDevice = 4,
    /// Named pipe.
    Fifo = 5,
    /// Socket.
    Socket = 6,
    /// Symbolic link.
    Symlink = 7,
}

impl FileType {
    /// Decodes the byte in the entry.
    #[must_use]
    pub fn from_raw(raw: u8) -> FileType {
        match raw {
            1 => FileType::Regular,
            2 => FileType::Directory,
            3 => FileType::CharDevice,
            4 => FileType::BlockDevice,
            5 => FileType::Fifo,
            6 => FileType::Socket,
            7 => FileType::Symlink,
            _ => FileType::Unknown,
        }
    }

    /// Converts from `i_mode` (`st_mode`).
    #[must_use]
    pub fn from_mode(mode: u32) -> FileType {
        match mode & 0o170000 {
            0o100000 => FileType::Regular,
            0o040000 => FileType::Directory,
            0o020000 => FileType::CharDevice,
            0o060000 => FileType::BlockDevice,
            0o010000 => FileType::Fifo,
            0o140000 => FileType::Socket,
            0o120000 => FileType::Symlink,
            _ => FileType::Unknown,
        }
    }
}

/// The format of a volume's directory blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirLayout {
    /// Whether blocks end in a checksum tail (`metadata_csum`).
    pub tail: bool,
    /// Whether entries record the file type (`filetype`); without it that byte is zero.
    pub filetype: bool,
    /// Largest valid inode number (`s_inodes_count`).
    pub max_inode: u32,
}

impl DirLayout {
    /// Bytes of a block of `block_size` bytes that entries may use.
    #[must_use]
    pub fn space(&self, block_size: usize) -> usize {
        if self.tail {
            block_size.saturating_sub(TAIL_LEN)
        } else {
            block_size
        }
    }
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Offset in the block in bytes.
    pub offset: usize,
    /// The inode that it refers to; 0 if the entry is free.
    pub inode: u32,
    /// Bytes up to the next entry.
    pub rec_len: usize,
    /// Type of the inode.
    pub file_type: FileType,
    /// The name: not empty if the entry is in use. It may contain invalid bytes (see
    /// [`valid_name`]).
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Bytes that a new entry could take from this one: all if it is free, otherwise its slack.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.inode == 0 {
            self.rec_len
        } else {
            self.rec_len.saturating_sub(min_rec_len(self.name.len()))
        }
    }

    /// Whether this is "." or "..".
    #[must_use]
    pub fn is_dots(&self) -> bool {
        self.name == b"." || self.name == b".."
    }
}

/// Whether `name` can be stored and shown: 1 to 255 bytes, no `/`, no NUL.
#[must_use]
pub fn valid_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && !name.iter().any(|&b| b == b'/' || b == 0)
}

/// Shortest `rec_len` of an entry with a name of `name_len` bytes.
#[must_use]
pub fn min_rec_len(name_len: usize) -> usize {
    (HEADER + name_len).next_multiple_of(4)
}

/// Decodes `rec_len` to bytes from the stored 16 bits. Only blocks of 64 KiB need more than 16
/// bits: there 0 and 65535 mean the whole block and the two low bits hold bits 16 and 17.
#[must_use]
pub fn decode_rec_len(raw: u16, block_size: usize) -> usize {
    let raw = usize::from(raw);
    if block_size < MAX_BLOCK {
        raw
    } else if raw == 0 || raw == 0xffff {
        block_size
    } else {
        (raw & 0xfffc) | ((raw & 3) << 16)
    }
}

/// Encodes `rec_len`; `None` if it cannot be stored.
#[must_use]
pub fn encode_rec_len(rec_len: usize, block_size: usize) -> Option<u16> {
    if !rec_len.is_multiple_of(4) || rec_len > block_size || block_size > MAX_BLOCK {
        return None;
    }
    // The only length in a block ≤ 64 KiB that does not fit in 16 bits is 65536 itself.
    Some(u16::try_from(rec_len).unwrap_or(0xffff))
}

/// Refuses slices that cannot be a file-system block.
pub(super) fn check_size(block: &[u8]) -> Result<()> {
    let len = block.len();
    if !len.is_multiple_of(4) || !(64..=MAX_BLOCK).contains(&len) {
        return Err(corrupt!("directory block", "{len} bytes long"));
    }
    Ok(())
}

/// Turns "did not fit", which cannot happen after the checks, into an error.
pub(super) fn written(done: Option<()>, at: usize) -> Result<()> {
    done.ok_or_else(|| corrupt!(WHAT, "at {at}: does not fit in its block"))
}
