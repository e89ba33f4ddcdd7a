//! The types of arguments and results of the operations.

use std::time::Duration;

use stetfs_journal::Composition;
pub use stetfs_journal::DataMode;
pub use stetfs_journal::{BlockNr, Ino, Wait};
use stetfs_ondisk::ext4::time::Timestamp;

use crate::error::Result;

/// The root directory's inode.
pub const ROOT_INO: Ino = 2;

/// The caller of an operation, from the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ctx {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Process id, for messages.
    pub pid: u32,
}

impl Ctx {
    /// The superuser.
    pub const ROOT: Ctx = Ctx {
        uid: 0,
        gid: 0,
        pid: 0,
    };

    /// Stands in for a user id: the server has already checked that the caller owns the file that
    /// it changes. No user has this id.
    pub const OWNER: u32 = u32::MAX;

    /// Whether the caller is the owner `uid`.
    pub(crate) fn owns(&self, uid: u32) -> bool {
        self.uid == uid || self.uid == Ctx::OWNER
    }
}

/// Type of a file, from its mode or directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

impl FileType {
    /// The type in a mode; `None` if it is none of ext4's.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode & libc::S_IFMT {
            libc::S_IFREG => FileType::Regular,
            libc::S_IFDIR => FileType::Directory,
            libc::S_IFLNK => FileType::Symlink,
            libc::S_IFCHR => FileType::CharDevice,
            libc::S_IFBLK => FileType::BlockDevice,
            libc::S_IFIFO => FileType::Fifo,
            libc::S_IFSOCK => FileType::Socket,
            _ => return None,
        })
    }

    /// Whether it is a directory.
    pub fn is_dir(self) -> bool {
        self == FileType::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(self) -> bool {
        self == FileType::Regular
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(self) -> bool {
        self == FileType::Symlink
    }
}

/// The attributes of a file that stat(2) shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Generation: differs when a number is used again.
    pub generation: u32,
    /// Type.
    pub kind: FileType,
    /// Mode bits with type (`st_mode`).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub nlink: u32,
    /// Size, bytes.
    pub size: u64,
    /// Space used, 512-byte units.
    pub blocks: u64,
    /// Device number of a device node, as `makedev` packs it for Linux user space.
    pub rdev: u64,
    /// Bytes per block.
    pub blksize: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last content change.
    pub mtime: Timestamp,
    /// Last inode change.
    pub ctime: Timestamp,
    /// Birth.
    pub crtime: Timestamp,
    /// Inode flags (`EXT4_*_FL`).
    pub flags: u32,
    /// Opening the file may be refused for other reasons than its mode: its flags, or a volume that
    /// has stopped ([`Fs::may_open`](crate::Fs::may_open)).
    pub guarded: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSet {
    /// The current time.
    Now,
    /// This time.
    At(Timestamp),
}

/// The changes of setattr; `None` leaves a value as it is.
#[derive(Clone, Debug, Default)]
pub struct SetAttr {
    /// Permission bits (12 bits).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size, bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<TimeSet>,
    /// Last content change.
    pub mtime: Option<TimeSet>,
    /// Last inode change.
    pub ctime: Option<Timestamp>,
    /// Clear set-user-id and set-group-id as for a change by an unprivileged user (FUSE
    /// KILL_SUIDGID). Also applies to a change of size or owner that asks for it.
    pub kill_suidgid: bool,
}

/// A directory entry for readdir.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// Inode number.
    pub ino: Ino,
    /// Type in the directory entry; `None` when the volume has no `filetype`.
    pub kind: Option<FileType>,
    /// Name, 1 to 255 bytes.
    pub name: Vec<u8>,
    /// The position at which readdir continues after this entry.
    pub next: u64,
}

/// Flags of rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// RENAME_NOREPLACE.
    pub no_replace: bool,
    /// RENAME_EXCHANGE.
    pub exchange: bool,
    /// RENAME_WHITEOUT: leave a whiteout (char device 0/0) at the old name.
    pub whiteout: bool,
}

/// The mode of fallocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Allocate. The size grows if the range ends behind it, unless `keep_size`.
    Allocate {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
    /// FALLOC_FL_PUNCH_HOLE (always with KEEP_SIZE).
    PunchHole,
    /// FALLOC_FL_ZERO_RANGE.
    ZeroRange {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
}

/// The kind of place that lseek looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekWhat {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE.
    Hole,
}

/// The condition of setxattr on the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrSet {
    /// Create or replace.
    Any,
    /// XATTR_CREATE.
    Create,
    /// XATTR_REPLACE.
    Replace,
}

/// The answer of statfs(2); counts are in blocks of `block_size` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in a block.
    pub block_size: u32,
    /// Data blocks of the volume (without overhead, as in ext4 without `minixdf`).
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for unprivileged users.
    pub bavail: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Longest name, bytes.
    pub namelen: u32,
    /// File-system id from the UUID.
    pub fsid: u64,
}

/// Counters of an open volume.
#[derive(Clone, Debug)]
pub struct FsStats {
    /// The block cache.
    pub cache: stetfs_cache::CacheStats,
    /// The journal.
    pub journal: stetfs_journal::JournalStats,
    /// Times of commits and checkpoints.
    pub latency: stetfs_journal::JournalLatency,
    /// The decision of the journal's codec and its reason, as text.
    pub packing_note: Option<String>,
    /// The number of file syncs that took a commit although files have records, by reason.
    pub sync_reasons: Vec<(&'static str, u64)>,
    /// Groups whose bitmaps were searched for free blocks.
    pub groups_searched: u64,
    /// 64-bit bitmap words examined in these searches.
    pub words_searched: u64,
    /// File data that is newer than its home location, bytes.
    pub dirty_bytes: u64,
    /// Inodes in memory.
    pub inodes: u64,
    /// Inodes that the kernel holds lookups of.
    pub lookups: u64,
    /// Requests that devices failed, by kind: of the volume, and of the journal if it has its own
    /// device.
    pub failed: Vec<(stetfs_block::Op, stetfs_block::Failed)>,
}

/// The reaction to damage (`errors=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// Note it in the superblock and go on.
    Continue,
    /// Turn the volume read-only.
    RemountRo,
    /// End the process (a user-space server cannot panic the machine).
    Panic,
}

/// The reaction to file data that cannot be written back (`data_err=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDataError {
    /// Report it to each caller that syncs the file, and go on.
    #[default]
    Ignore,
    /// In ordered mode: stop the journal, which turns the volume read-only.
    Abort,
}

/// The work that is done before a volume is shut down (`EXT4_IOC_SHUTDOWN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoingDown {
    /// Data and metadata become durable (`EXT4_GOING_FLAGS_DEFAULT`).
    Synced,
    /// The running transaction commits (`EXT4_GOING_FLAGS_LOGFLUSH`).
    Committed,
    /// None: what was not synced is lost (`EXT4_GOING_FLAGS_NOLOGFLUSH`).
    AtOnce,
}

/// The policy for access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// Update when older than mtime, ctime or a day (the kernel's default).
    #[default]
    Relatime,
    /// Update at every read.
    Strict,
    /// Never update.
    Noatime,
}

/// Options of an open volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsOptions {
    /// Allow no change of the volume. As in the kernel, an unclean journal is still replayed if the
    /// device allows writing and `no_recovery` is off.
    pub read_only: bool,
    /// Do not replay the journal (`noload`); only with `read_only`.
    pub no_recovery: bool,
    /// Replay the journal in a read-only opening, but leave orphans alone: for examining the result
    /// of a replay.
    pub leave_orphans: bool,
    /// The composition of the journal.
    pub journal: Composition,
    /// The region of persistent memory for records of files, and the treatment of a region that an
    /// earlier mount used.
    pub region: stetfs_journal::region::RegionSource,
    /// Seconds between periodic commits.
    pub commit_secs: u32,
    /// Age at which dirty file data is written back in the background (the kernel:
    /// `vm.dirty_expire_centisecs`).
    pub dirty_expire: Duration,
    /// Bound of the cache, bytes.
    pub cache_bytes: u64,
    /// The replacement policy of the cache.
    pub cache_policy: stetfs_cache::PolicyKind,
    /// Size of the device's erase blocks, bytes, for replacement policies that use it.
    pub erase_block: u64,
    /// The reaction to file data that cannot be written back.
    pub data_err: OnDataError,
    /// Overrides the superblock's `errors=`.
    pub on_error: Option<OnError>,
    /// Every change is durable when the operation returns (`sync`).
    pub sync: bool,
    /// Every change of names is durable when the operation returns (`dirsync`).
    pub dirsync: bool,
    /// Whether new files take their directory's group (`grpid`); overrides the superblock's.
    pub bsd_groups: Option<bool>,
    /// Access times.
    pub atime: Atime,
    /// Keep no access times of directories.
    pub nodiratime: bool,
    /// Keep access times in memory until the inode is written for another reason, a sync or the
    /// unmount (`lazytime`).
    pub lazytime: bool,
    /// Tell the device of blocks when they become free (`discard`).
    pub discard: bool,
    /// Write the commit record without waiting for the log before it (`journal_async_commit`).
    pub async_commit: bool,
    /// Flush the device at commits (`barrier=`). Without it a power failure can lose what was
    /// acknowledged.
    pub barrier: bool,
    /// Apply the intact parts of a damaged journal and leave out the rest; the volume is then
    /// marked as having errors.
    pub salvage: bool,
    /// Make results reproducible: volumes that undergo the same operations become equal byte for
    /// byte. All times are this one, seconds since 1970 ([`crate::MAX_EPOCH`] at most), and nothing
    /// is random (`mount/repeat`).
    pub epoch: Option<u64>,
    /// Length of a second of multiple mount protection. Only tests shorten it.
    #[doc(hidden)]
    pub mmp_second: Duration,
    /// Apply each record of a file to a copy of the volume in memory before the sync is answered;
    /// panic if recovery refuses the record.
    #[doc(hidden)]
    pub proves_records: bool,
    /// Deliberate faults, which the crash tests must find.
    #[doc(hidden)]
    pub canary: stetfs_journal::Canary,
}

impl Default for FsOptions {
    fn default() -> FsOptions {
        FsOptions {
            read_only: false,
            no_recovery: false,
            leave_orphans: false,
            salvage: false,
            journal: Composition::default(),
            region: stetfs_journal::region::RegionSource::default(),
            commit_secs: 5,
            dirty_expire: Duration::from_secs(30),
            cache_bytes: 128 << 20,
            cache_policy: stetfs_cache::PolicyKind::default(),
            erase_block: 4 << 20,
            data_err: OnDataError::default(),
            on_error: None,
            sync: false,
            dirsync: false,
            bsd_groups: None,
            atime: Atime::default(),
            nodiratime: false,
            lazytime: false,
            discard: false,
            async_commit: false,
            barrier: true,
            epoch: None,
            mmp_second: Duration::from_secs(1),
            proves_records: cfg!(debug_assertions),
            canary: stetfs_journal::Canary::default(),
        }
    }
}

/// An owned, exactly-once answer, called from the thread that finishes the work.
pub type Done<T = ()> = Box<dyn FnOnce(Result<T>) + Send>;

/// A descriptor through which a file is synced: the program (thread group), and the descriptor's
/// number there if it is known.
pub type Descriptor = (u32, Option<u32>);

/// A user of a file without an open handle in this crate.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The thread that waits for the answer; 0 if it cannot be seen from this process.
    pub pid: u32,
    /// Finds the program and descriptor that the thread uses while it waits. `None`: not known.
    pub descriptor: fn(u32) -> Option<Descriptor>,
}
