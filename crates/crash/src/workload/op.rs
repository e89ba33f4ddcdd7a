//! The operations of workloads.

use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::jbd2::MAGIC;

/// A flag of chattr(1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flag {
    /// `e`: the file has an extent tree.
    Extents,
    /// `a`: a file may only grow, and a directory may only get names.
    Append,
    /// `i`: no changes are allowed.
    Immutable,
    /// `j`: the file's data is journaled.
    Journaled,
    /// `S`: each change is durable when it returns.
    Synchronous,
    /// `D`: each change of a directory's names is durable when it returns.
    DirSynchronous,
}

impl Flag {
    /// All flags.
    pub const ALL: [Flag; 6] = [
        Flag::Extents,
        Flag::Append,
        Flag::Immutable,
        Flag::Journaled,
        Flag::Synchronous,
        Flag::DirSynchronous,
    ];

    /// Its letter for chattr(1).
    pub fn letter(self) -> char {
        match self {
            Flag::Extents => 'e',
            Flag::Append => 'a',
            Flag::Immutable => 'i',
            Flag::Journaled => 'j',
            Flag::Synchronous => 'S',
            Flag::DirSynchronous => 'D',
        }
    }

    /// Its bit in an inode.
    pub fn bit(self) -> u32 {
        match self {
            Flag::Extents => InodeFlags::EXTENTS,
            Flag::Append => InodeFlags::APPEND,
            Flag::Immutable => InodeFlags::IMMUTABLE,
            Flag::Journaled => InodeFlags::JOURNAL_DATA,
            Flag::Synchronous => InodeFlags::SYNC,
            Flag::DirSynchronous => InodeFlags::DIRSYNC,
        }
        .bits()
    }
}

/// The flags that the model keeps: those that users set, without the extents flag, which the file
/// system changes by itself.
pub const KEPT_FLAGS: u32 = InodeFlags::APPEND
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::DIRSYNC)
    .bits();

/// A change or a sync. Paths are relative to the script's directory; `@N` is the open file that is
/// held under number N, whether it has a name or not. Sizes and offsets are in bytes.
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
    /// The same write through a shared mapping; in the library it is a plain write. It stays within
    /// the file and within one unit of 4096 bytes, so that it is written back whole.
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
    /// fallocate(2) with ZERO_RANGE; with KEEP_SIZE if `keep` is set.
    Zero {
        path: String,
        offset: u64,
        len: u64,
        keep: bool,
    },
    /// fallocate(2); with KEEP_SIZE if `keep` is set.
    Allocate {
        path: String,
        offset: u64,
        len: u64,
        keep: bool,
    },
    /// unlink(2).
    Unlink { path: String },
    /// Opens a file, and holds it open under a number until it is closed, or to the end.
    Hold { path: String, held: u32 },
    /// Opens a file to hold it, and unlinks it.
    HoldUnlink { path: String, held: u32 },
    /// Holds a file that never had a name, by open(2) with O_TMPFILE.
    Tmpfile { held: u32, mode: u32 },
    /// close(2) of a held file.
    Close { held: u32 },
    /// rmdir(2).
    Rmdir { path: String },
    /// link(2).
    Link { from: String, to: String },
    /// rename(2), which may replace a file.
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
    /// Sets or clears a flag. `e` has an effect only if the file's map can take that form; a file
    /// that needs extents for fallocate(2) gets them first. Works only in the library; on a mount
    /// it does nothing.
    Chattr { path: String, flag: Flag, on: bool },
    /// mknod(2) of a named pipe.
    Mkfifo { path: String, mode: u32 },
    /// renameat2(2) with RENAME_NOREPLACE.
    RenameNew { from: String, to: String },
    /// renameat2(2) with RENAME_WHITEOUT, which may replace a file.
    Whiteout { from: String, to: String },
    /// Copies bytes from one file to another, or within one.
    Copy {
        from: String,
        offset: u64,
        to: String,
        at: u64,
        len: usize,
    },
    /// setxattr(2) of an access ACL that gives a user these permissions beside the mode.
    SetAcl { path: String, user: u32, perms: u16 },
    /// Sets the hard limits of a user's quota, in KiB and inodes; 0 is no limit.
    Limit { uid: u32, kib: u64, inodes: u64 },
    /// Gives a file to a project.
    Project { path: String, id: u32 },
    /// Sets the size of the cache in MiB.
    Memory { mib: u64 },
    /// fstrim(8) of the whole volume.
    Trim,
    /// Closes the volume and opens it again; all held files are closed.
    Remount,
    /// From here on this user and group make the changes, and new files belong to them.
    Act { uid: u32, gid: u32 },
    /// An operation that the volume refuses and that changes nothing.
    Refused { op: Box<Op> },
    /// Begins an atomic group of these files: from here on changes of their content are part of it.
    Atomic { paths: Vec<String> },
    /// Writes the group's data in memory to the volume before it commits.
    Early,
    /// Commits the group.
    Commit,
    /// Aborts the group; no trace of it remains.
    Abort,
    /// fsync(2) of a file or directory; the empty path is the script's directory.
    Fsync { path: String },
    /// fdatasync(2).
    Fdatasync { path: String },
    /// sync(2).
    SyncAll,
    /// `Fs::freeze`; no operation of another script is under way.
    Freeze,
    /// `Fs::thaw`; before it only syncs are done, and other scripts wait.
    Thaw,
}

impl Op {
    /// Whether the operation is a sync.
    pub fn is_sync(&self) -> bool {
        matches!(
            self,
            Op::Fsync { .. }
                | Op::Fdatasync { .. }
                | Op::SyncAll
                | Op::Commit
                | Op::Freeze
                | Op::Remount
        )
    }

    /// Whether the operation changes a file's content.
    pub fn is_of_content(&self) -> bool {
        matches!(
            self,
            Op::Write { .. }
                | Op::MapWrite { .. }
                | Op::Truncate { .. }
                | Op::Punch { .. }
                | Op::Zero { .. }
                | Op::Allocate { .. }
                | Op::Copy { .. }
        )
    }
}

/// The path of a held file.
pub fn held_path(held: u32) -> String {
    format!("@{held}")
}

/// The number in the path of a held file.
pub fn held_number(path: &str) -> Option<u32> {
    path.strip_prefix('@')?.parse().ok()
}

/// Content that is unique for each key, without zero bytes. One key in eight gives content that
/// begins like a jbd2 block, which the journal has to escape when it logs data. A shorter content
/// is a prefix of a longer one with the same key.
pub fn bytes(key: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(1..)).take(len).collect();
    if key % 8 == 7 {
        let magic = MAGIC.to_be_bytes();
        bytes.iter_mut().zip(magic).for_each(|(b, m)| *b = m);
    }
    bytes
}
