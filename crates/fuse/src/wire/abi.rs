//! The FUSE protocol's structures, as `linux/fuse.h` defines them (protocol 7.39). Host byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version we speak.
pub(super) const MAJOR: u32 = 7;
pub(super) const MINOR: u32 = 39;

/// Declares a structure and proves its size.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident [$size:literal] { $($field:ident: $ty:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $ty,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

wire! {
    /// Head of every request.
    InHeader [40] {
        len: u32, opcode: u32, unique: u64, nodeid: u64,
        uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    }
    /// Head of every answer.
    OutHeader [16] { len: u32, error: i32, unique: u64 }
    /// `struct fuse_uring_ent_in_out`.
    RingInOut [32] { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    InitIn [64] {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    InitOut [64] {
        major: u32, minor: u32, max_readahead: u32, flags: u32,
        max_background: u16, congestion_threshold: u16, max_write: u32, time_gran: u32,
        max_pages: u16, map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    Attr [88] {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut [128] {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut [104] { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    ForgetIn [8] { nlookup: u64 }
    GetattrIn [16] { getattr_flags: u32, dummy: u32, fh: u64 }
    BatchForgetIn [8] { count: u32, dummy: u32 }
    ForgetOne [16] { nodeid: u64, nlookup: u64 }
    SetattrIn [88] {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32,
        unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn [16] { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn [8] { mode: u32, umask: u32 }
    RenameIn [8] { newdir: u64 }
    Rename2In [16] { newdir: u64, flags: u32, padding: u32 }
    LinkIn [8] { oldnodeid: u64 }
    OpenIn [8] { flags: u32, open_flags: u32 }
    CreateIn [16] { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut [16] { fh: u64, open_flags: u32, backing_id: i32 }
    ReleaseIn [24] { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// READ, READDIR and READDIRPLUS.
    ReadIn [40] {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn [40] {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteOut [8] { size: u32, padding: u32 }
    FlushIn [24] { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    FsyncIn [16] { fh: u64, fsync_flags: u32, padding: u32 }
    StatfsOut [80] {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    SetxattrIn [16] { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn [8] { size: u32, padding: u32 }
    GetxattrOut [8] { size: u32, padding: u32 }
    FallocateIn [32] { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    CopyFileRangeIn [56] {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    LseekIn [24] { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut [8] { offset: u64 }
    BmapIn [16] { block: u64, blocksize: u32, padding: u32 }
    BmapOut [8] { block: u64 }
    IoctlIn [32] { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut [16] { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    StatxIn [24] { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SxTime [16] { sec: i64, nsec: u32, reserved: i32 }
    Statx [256] {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut [288] { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    /// Followed by the name, padded to eight bytes.
    Dirent [24] { ino: u64, off: u64, namelen: u32, kind: u32 }
    NotifyInvalInode [24] { ino: u64, off: i64, len: i64 }
}

/// Requests.
pub(super) mod op {
    pub(in super::super) const LOOKUP: u32 = 1;
    pub(in super::super) const FORGET: u32 = 2;
    pub(in super::super) const GETATTR: u32 = 3;
    pub(in super::super) const SETATTR: u32 = 4;
    pub(in super::super) const READLINK: u32 = 5;
    pub(in super::super) const SYMLINK: u32 = 6;
    pub(in super::super) const MKNOD: u32 = 8;
    pub(in super::super) const MKDIR: u32 = 9;
    pub(in super::super) const UNLINK: u32 = 10;
    pub(in super::super) const RMDIR: u32 = 11;
    pub(in super::super) const RENAME: u32 = 12;
    pub(in super::super) const LINK: u32 = 13;
    pub(in super::super) const OPEN: u32 = 14;
    pub(in super::super) const READ: u32 = 15;
    pub(in super::super) const WRITE: u32 = 16;
    pub(in super::super) const STATFS: u32 = 17;
    pub(in super::super) const RELEASE: u32 = 18;
    pub(in super::super) const FSYNC: u32 = 20;
    pub(in super::super) const SETXATTR: u32 = 21;
    pub(in super::super) const GETXATTR: u32 = 22;
    pub(in super::super) const LISTXATTR: u32 = 23;
    pub(in super::super) const REMOVEXATTR: u32 = 24;
    pub(in super::super) const FLUSH: u32 = 25;
    pub(in super::super) const INIT: u32 = 26;
    pub(in super::super) const OPENDIR: u32 = 27;
    pub(in super::super) const READDIR: u32 = 28;
    pub(in super::super) const RELEASEDIR: u32 = 29;
    pub(in super::super) const FSYNCDIR: u32 = 30;
    pub(in super::super) const CREATE: u32 = 35;
    pub(in super::super) const INTERRUPT: u32 = 36;
    pub(in super::super) const BMAP: u32 = 37;
    pub(in super::super) const DESTROY: u32 = 38;
    pub(in super::super) const IOCTL: u32 = 39;
    pub(in super::super) const BATCH_FORGET: u32 = 42;
    pub(in super::super) const FALLOCATE: u32 = 43;
    pub(in super::super) const READDIRPLUS: u32 = 44;
    pub(in super::super) const RENAME2: u32 = 45;
    pub(in super::super) const LSEEK: u32 = 46;
    pub(in super::super) const COPY_FILE_RANGE: u32 = 47;
    pub(in super::super) const SYNCFS: u32 = 50;
    pub(in super::super) const TMPFILE: u32 = 51;
    pub(in super::super) const STATX: u32 = 52;
}

/// Flags of INIT.
pub(super) mod init {
    pub(in super::super) const ASYNC_READ: u64 = 1 << 0;
    pub(in super::super) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(in super::super) const BIG_WRITES: u64 = 1 << 5;
    pub(in super::super) const DONT_MASK: u64 = 1 << 6;
    pub(in super::super) const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub(in super::super) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(in super::super) const ASYNC_DIO: u64 = 1 << 15;
    pub(in super::super) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(in super::super) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(in super::super) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(in super::super) const POSIX_ACL: u64 = 1 << 20;
    pub(in super::super) const MAX_PAGES: u64 = 1 << 22;
    pub(in super::super) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(in super::super) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(in super::super) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(in super::super) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(in super::super) const SETXATTR_EXT: u64 = 1 << 29;
    pub(in super::super) const INIT_EXT: u64 = 1 << 30;
    pub(in super::super) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(in super::super) const ALLOW_IDMAP: u64 = 1 << 40;
    pub(in super::super) const OVER_IO_URING: u64 = 1 << 41;
}

/// `fuse_setattr_in.valid`.
pub(super) mod fattr {
    pub(in super::super) const MODE: u32 = 1 << 0;
    pub(in super::super) const UID: u32 = 1 << 1;
    pub(in super::super) const GID: u32 = 1 << 2;
    pub(in super::super) const SIZE: u32 = 1 << 3;
    pub(in super::super) const ATIME: u32 = 1 << 4;
    pub(in super::super) const MTIME: u32 = 1 << 5;
    pub(in super::super) const FH: u32 = 1 << 6;
    pub(in super::super) const ATIME_NOW: u32 = 1 << 7;
    pub(in super::super) const MTIME_NOW: u32 = 1 << 8;
    pub(in super::super) const CTIME: u32 = 1 << 10;
    pub(in super::super) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `fuse_open_out.open_flags`.
pub(super) mod fopen {
    pub(in super::super) const DIRECT_IO: u32 = 1 << 0;
    pub(in super::super) const KEEP_CACHE: u32 = 1 << 1;
    pub(in super::super) const CACHE_DIR: u32 = 1 << 3;
    pub(in super::super) const NOFLUSH: u32 = 1 << 5;
    pub(in super::super) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// `fuse_in_header.uid`: the kernel does not say whose, as with `ALLOW_IDMAP` in all requests but
/// those that make inodes.
pub(super) const NO_ID: u32 = u32::MAX;
/// `fuse_write_in.write_flags`: from the kernel's cache; who wrote it is not known.
pub(super) const WRITE_CACHE: u32 = 1 << 0;
/// `fuse_write_in.write_flags`: clear set-user-id and set-group-id.
pub(super) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `fuse_getattr_in.getattr_flags`: through an open file.
pub(super) const GETATTR_FH: u32 = 1 << 0;
/// `fuse_fsync_in.fsync_flags`: data only.
pub(super) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// `fuse_setxattr_in.setxattr_flags`: clear set-group-id when the access ACL is set.
pub(super) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `fuse_ioctl_in.flags`: the whole address space is meant, not what the command's size says.
pub(super) const IOCTL_UNRESTRICTED: u32 = 1 << 1;
/// Code of a notification: forget what is known of an inode.
pub(super) const NOTIFY_INVAL_INODE: i32 = 2;
/// A request of at least this size must be readable.
pub(super) const MIN_READ_BUFFER: usize = 8192;
