//! Operations.

/// One change, or one sync. Paths are relative to the directory that the script works in; sizes and
/// offsets are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields are the arguments of the calls")]
pub enum Op {
    /// creat(2) of a new file.
    Create { path: String, mode: u32 },
    /// mkdir(2).
    Mkdir { path: String, mode: u32 },
    /// symlink(2).
    Symlink { path: String, target: String },
    /// pwrite(2) of [`bytes`]`(key, len)`.
    Write {
        path: String,
        offset: u64,
        len: usize,
        key: u64,
    },
    /// truncate(2), either way.
    Truncate { path: String, size: u64 },
    /// fallocate(2) with PUNCH_HOLE.
    Punch { path: String, offset: u64, len: u64 },
    /// fallocate(2) with ZERO_RANGE, and KEEP_SIZE with `keep`.
    Zero {
        path: String,
        offset: u64,
        len: u64,
        keep: bool,
    },
    /// fallocate(2), with KEEP_SIZE with `keep`.
    Allocate {
        path: String,
        offset: u64,
        len: u64,
        keep: bool,
    },
    /// unlink(2).
    Unlink { path: String },
    /// Unlinks a file that stays open until the end.
    HoldUnlink { path: String },
    /// rmdir(2).
    Rmdir { path: String },
    /// link(2).
    Link { from: String, to: String },
    /// rename(2); replaces what is there.
    Rename { from: String, to: String },
    /// renameat2(2) with RENAME_EXCHANGE.
    Exchange { a: String, b: String },
    /// chmod(2).
    Chmod { path: String, mode: u32 },
    /// chown(2).
    Chown { path: String, uid: u32, gid: u32 },
    /// setxattr(2) of [`bytes`]`(key, len)`.
    SetXattr {
        path: String,
        name: String,
        key: u64,
        len: usize,
    },
    /// removexattr(2).
    RemoveXattr { path: String, name: String },
    /// fsync(2) of a file or directory; the empty path is the script's directory.
    Fsync { path: String },
    /// fdatasync(2).
    Fdatasync { path: String },
    /// sync(2).
    SyncAll,
}

impl Op {
    /// Whether it changes nothing, and makes durable what was changed.
    pub fn is_sync(&self) -> bool {
        matches!(self, Op::Fsync { .. } | Op::Fdatasync { .. } | Op::SyncAll)
    }
}

/// Bytes that no other key gives, none of them zero.
pub fn bytes(key: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    std::iter::repeat_with(|| rng.u8(1..)).take(len).collect()
}
