//! Answers as structures: `linux/fuse.h`, host byte order.

pub(crate) use stetfs_testkit::fuse::{Bytes, HEAD, Who, op, parts, request};

/// The empty body.
pub(crate) fn body() -> Bytes {
    Bytes::default()
}

/// The 4 bytes at `at` as a number.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    stetfs_testkit::fuse::word(bytes, at).unwrap()
}

/// The 8 bytes at `at` as a number.
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    stetfs_testkit::fuse::long(bytes, at).unwrap()
}

/// `struct fuse_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attr {
    pub(crate) ino: u64,
    pub(crate) size: u64,
    /// In units of 512 bytes.
    pub(crate) blocks: u64,
    /// Seconds and nanoseconds.
    pub(crate) atime: (u64, u32),
    pub(crate) mtime: (u64, u32),
    pub(crate) ctime: (u64, u32),
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
}

impl Attr {
    /// The attributes at the start of `b`.
    pub(crate) fn read(b: &[u8]) -> Attr {
        Attr {
            ino: long(b, 0),
            size: long(b, 8),
            blocks: long(b, 16),
            atime: (long(b, 24), word(b, 48)),
            mtime: (long(b, 32), word(b, 52)),
            ctime: (long(b, 40), word(b, 56)),
            mode: word(b, 60),
            nlink: word(b, 64),
            uid: word(b, 68),
            gid: word(b, 72),
            rdev: word(b, 76),
        }
    }
}

/// `struct fuse_entry_out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// 0 for a name that does not exist.
    pub(crate) node: u64,
    pub(crate) generation: u64,
    /// Seconds for which the kernel may cache the name, and the attributes.
    pub(crate) entry_valid: u64,
    pub(crate) attr_valid: u64,
    pub(crate) attr: Attr,
}

impl Entry {
    /// Bytes of the structure.
    pub(crate) const LEN: usize = 128;

    pub(crate) fn read(b: &[u8]) -> Entry {
        Entry {
            node: long(b, 0),
            generation: long(b, 8),
            entry_valid: long(b, 16),
            attr_valid: long(b, 24),
            attr: Attr::read(&b[40..]),
        }
    }
}
