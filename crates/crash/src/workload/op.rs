//! Operations.

use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::jbd2::MAGIC;

/// A flag of chattr(1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flag {
    /// `e`: the map of the file is a tree of extents.
    Extents,
    /// `a`: the file grows, and the directory gets names; nothing else changes.
    Append,
    /// `i`: nothing changes.
    Immutable,
    /// `j`: the file's data is journaled.
    Journaled,
    /// `S`: each change is durable when it returns.
    Synchronous,
    /// `D`: the same of a directory's names.
    DirSynchronous,
}

impl Flag {
    /// All of them.
    pub const ALL: [Flag; 6] = [
        Flag::Extents,
        Flag::Append,
        Flag::Immutable,
        Flag::Journaled,
        Flag::Synchronous,
        Flag::DirSynchronous,
    ];

    /// Its letter.
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

/// The flags that a model keeps: those that users set, but for the form of the map, which the file
/// system changes by itself.
pub const KEPT_FLAGS: u32 = InodeFlags::APPEND
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::DIRSYNC)
    .bits();

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
    /// Sets a flag, or lifts it. Of `e`, where the file's map can take on that form: else nothing.
    /// A file that has to have extents for fallocate(2) gets them first. In the library: on a mount
    /// nothing is done.
    Chattr { path: String, flag: Flag, on: bool },
    /// mknod(2) of a named pipe.
    Mkfifo { path: String, mode: u32 },
    /// renameat2(2) with RENAME_NOREPLACE.
    RenameNew { from: String, to: String },
    /// renameat2(2) with RENAME_WHITEOUT; replaces what is there.
    Whiteout { from: String, to: String },
    /// Reads from one file and writes to another, or to the same.
    Copy {
        from: String,
        offset: u64,
        to: String,
        at: u64,
        len: usize,
    },
    /// setxattr(2) of an access ACL that gives a user these permissions beside the mode's.
    SetAcl { path: String, user: u32, perms: u16 },
    /// Sets the hard limits of a user's quota: KiB and inodes; 0 is none.
    Limit { uid: u32, kib: u64, inodes: u64 },
    /// Gives a file to a project.
    Project { path: String, id: u32 },
    /// Sets the memory of the cache, MiB.
    Memory { mib: u64 },
    /// fstrim(8) of the whole volume.
    Trim,
    /// The volume is closed, and opened again for what follows: all held files are closed.
    Remount,
    /// From here on new files belong to this user and group, who make the changes.
    Act { uid: u32, gid: u32 },
    /// An operation that the volume refuses, and that changes nothing.
    Refused { op: Box<Op> },
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
            Op::Fsync { .. }
                | Op::Fdatasync { .. }
                | Op::SyncAll
                | Op::Commit
                | Op::Freeze
                | Op::Remount
        )
    }

    /// Whether it changes what a file holds.
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

/// The path that means a held file.
pub fn held_path(held: u32) -> String {
    format!("@{held}")
}

/// The number of a path that means a held file.
pub fn held_number(path: &str) -> Option<u32> {
    path.strip_prefix('@')?.parse().ok()
}

/// Bytes that no other key gives, none of them zero. One in eight keys gives what begins as a block
/// of the journal does, which has to be hidden where data goes through it. Fewer bytes of the same
/// key are the first of more.
pub fn bytes(key: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(1..)).take(len).collect();
    if key % 8 == 7 {
        let magic = MAGIC.to_be_bytes();
        bytes.iter_mut().zip(magic).for_each(|(b, m)| *b = m);
    }
    bytes
}
