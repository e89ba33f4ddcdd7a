//! Operations.

use stetfs_ondisk::jbd2::MAGIC;

/// One change, or one sync. Paths are relative to the directory that the script works in; `@N` is
/// the open file that was held under this number, whether it has a name or not. Sizes and offsets
/// are bytes.
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
    /// The same through a shared mapping, where the workload runs on a mount; in the library it is
    /// a write. It stays within the file and within 4096 bytes, so that it is written back
    /// whole.
    MapWrite {
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
    /// Opens a file, to be held under a number until it is closed, or until the end.
    Hold { path: String, held: u32 },
    /// The same, and unlink(2) of it.
    HoldUnlink { path: String, held: u32 },
    /// Holds a file that never had a name: open(2) with O_TMPFILE.
    Tmpfile { held: u32, mode: u32 },
    /// close(2) of a held file.
    Close { held: u32 },
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
    /// `chattr +e` with `extents`, else `chattr -e`, where the file's map can take on that form:
    /// else nothing. What has to have extents for fallocate(2) gets them first. In the library:
    /// on a mount nothing is done.
    Chattr { path: String, extents: bool },
    /// Begins an atomic group of these files: what changes their content from here on is part of
    /// it.
    Atomic { paths: Vec<String> },
    /// Writes what the group has in memory to the volume, before it commits.
    Early,
    /// Commits the group.
    Commit,
    /// Ends the group without a trace.
    Abort,
    /// fsync(2) of a file or directory; the empty path is the script's directory.
    Fsync { path: String },
    /// fdatasync(2).
    Fdatasync { path: String },
    /// sync(2).
    SyncAll,
    /// `Fs::freeze`, with no operation of another script under way.
    Freeze,
    /// `Fs::thaw`; until then only syncs are done, and other scripts wait.
    Thaw,
}

impl Op {
    /// Whether it makes something durable.
    pub fn is_sync(&self) -> bool {
        matches!(
            self,
            Op::Fsync { .. } | Op::Fdatasync { .. } | Op::SyncAll | Op::Commit | Op::Freeze
        )
    }
}

/// The path that means a held file.
pub fn held_path(held: u32) -> String {
    format!("@{held}")
}

/// The number of a path that means a held file.
pub fn held_number(path: &str) -> Option<u32> {
    path.strip_prefix('@')?.parse().ok()
}

/// Bytes that no other key gives, none of them zero. One in eight keys gives what begins as a block
/// of the journal does, which has to be hidden where data goes through it.
pub fn bytes(key: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(1..)).take(len).collect();
    if key % 8 == 7 && len > 64 {
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
    bytes
}
