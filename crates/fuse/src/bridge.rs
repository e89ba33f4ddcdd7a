//! From fuser's requests to [`FileSystem`] calls, and from their answers to fuser's replies.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags,
    PollEvents, PollFlags, PollNotifier, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use stetfs::{
    Attr, Ctx, DirEntry, FallocateMode, FileType, FsError, RenameFlags, SeekWhat, SetAttr, XattrSet,
};

use crate::convert::{attr as file_attr, ino_of, kind as file_kind, node_of, time_set};
use crate::ops::{Fh, FileSystem, IoctlArgs, Listing, Opened, WriteArgs, is_dot};

/// How long the kernel may keep names and attributes: the volume is ours alone, so what it knows
/// stays right until a request of its own, or a notification of ours, changes it.
const TTL: Duration = Duration::from_secs(365 * 24 * 3600);

/// The largest write request, bytes; the kernel's own bound is 256 pages.
const MAX_WRITE: u32 = 1 << 20;

/// What is asked of the kernel, where it can.
///
/// Not `FUSE_ATOMIC_O_TRUNC`: with it an open with O_TRUNC empties the file of a running program before the kernel
/// answers ETXTBSY.
const WANTED: [InitFlags; 13] = [
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_HAS_IOCTL_DIR,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_MAX_PAGES,
];

/// fuser's side of a mounted [`FileSystem`].
pub(crate) struct Bridge<F> {
    pub(crate) fs: Arc<F>,
    /// Ask for the kernel's write-back cache.
    pub(crate) writeback_cache: bool,
}

fn ctx(req: &Request) -> Ctx {
    Ctx {
        uid: req.uid(),
        gid: req.gid(),
        pid: req.pid(),
    }
}

fn errno(e: &FsError) -> Errno {
    Errno::from_i32(e.errno())
}

/// Attributes and generation of an entry whose inode the kernel is to know as a node.
fn node(a: &Attr) -> (FileAttr, Generation) {
    (
        file_attr(a, node_of(a.ino)),
        Generation(u64::from(a.generation)),
    )
}

fn entry_done(reply: ReplyEntry) -> stetfs::Done<Attr> {
    Box::new(move |r| match r {
        Ok(a) => {
            let (attr, generation) = node(&a);
            reply.entry(&TTL, &attr, generation);
        }
        Err(e) => reply.error(errno(&e)),
    })
}

fn attr_done(reply: ReplyAttr) -> stetfs::Done<Attr> {
    Box::new(move |r| match r {
        Ok(a) => reply.attr(&TTL, &file_attr(&a, INodeNo(u64::from(a.ino)))),
        Err(e) => reply.error(errno(&e)),
    })
}

fn empty_done(reply: ReplyEmpty) -> stetfs::Done {
    Box::new(move |r| match r {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(&e)),
    })
}

fn data_done(reply: ReplyData) -> stetfs::Done<Vec<u8>> {
    Box::new(move |r| match r {
        Ok(data) => reply.data(&data),
        Err(e) => reply.error(errno(&e)),
    })
}

/// Answers a request for an extended attribute or the list of them: its size when `size` is 0.
fn xattr_done(reply: ReplyXattr, size: u32) -> stetfs::Done<Vec<u8>> {
    Box::new(move |r| match r {
        Err(e) => reply.error(errno(&e)),
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
    })
}

fn fopen_flags(opened: Opened) -> FopenFlags {
    // Nothing is left to do at close: what must be synced was synced when it was written.
    let always = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
    if opened.direct_io {
        always | FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
    } else {
        always
    }
}

/// The inode number, or an answer of ESTALE and return from the request.
macro_rules! ino {
    ($node:expr, $reply:expr) => {
        match ino_of($node) {
            Some(ino) => ino,
            None => return $reply.error(Errno::ESTALE),
        }
    };
}

fn xattr_how(flags: i32) -> Option<XattrSet> {
    match flags {
        0 => Some(XattrSet::Any),
        libc::XATTR_CREATE => Some(XattrSet::Create),
        libc::XATTR_REPLACE => Some(XattrSet::Replace),
        _ => None,
    }
}

fn fallocate_mode(mode: i32) -> Option<FallocateMode> {
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => Some(FallocateMode::Allocate { keep_size }),
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => Some(FallocateMode::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Some(FallocateMode::ZeroRange { keep_size }),
        _ => None,
    }
}

fn rename_flags(flags: fuser::RenameFlags) -> Option<RenameFlags> {
    let known = fuser::RenameFlags::RENAME_NOREPLACE
        | fuser::RenameFlags::RENAME_EXCHANGE
        | fuser::RenameFlags::RENAME_WHITEOUT;
    if !known.contains(flags) {
        return None;
    }
    Some(RenameFlags {
        no_replace: flags.contains(fuser::RenameFlags::RENAME_NOREPLACE),
        exchange: flags.contains(fuser::RenameFlags::RENAME_EXCHANGE),
        whiteout: flags.contains(fuser::RenameFlags::RENAME_WHITEOUT),
    })
}

impl<F: FileSystem> Filesystem for Bridge<F> {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = WANTED.into_iter().chain(
            self.writeback_cache
                .then_some(InitFlags::FUSE_WRITEBACK_CACHE),
        );
        for flag in wanted {
            if let Err(missing) = config.add_capabilities(flag) {
                tracing::debug!(?missing, "the kernel's FUSE lacks a capability");
            }
        }
        if let Err(max) = config.set_max_write(MAX_WRITE) {
            tracing::debug!(max, "the largest write request is bounded");
            let _ = config.set_max_write(max);
        }
        // Requests the kernel may have in flight on its own account: read-ahead and the like.
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = ino!(parent, reply);
        self.fs.lookup(
            &ctx(req),
            parent,
            name.as_bytes(),
            Box::new(move |r| match r {
                Ok(a) => {
                    let (attr, generation) = node(&a);
                    reply.entry(&TTL, &attr, generation);
                }
                // Node 0: the kernel remembers that the name does not exist.
                Err(e) if e.errno() == libc::ENOENT => reply.entry(&TTL, &NO_ENTRY, Generation(0)),
                Err(e) => reply.error(errno(&e)),
            }),
        );
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        if let Some(ino) = ino_of(ino) {
            self.fs.forget(ino, nlookup);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let ino = ino!(ino, reply);
        self.fs.getattr(ino, attr_done(reply));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let ino = ino!(ino, reply);
        let ctx = ctx(req);
        let set = SetAttr {
            mode: mode.map(|m| m & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(time_set),
            mtime: mtime.map(time_set),
            ctime: ctime.map(crate::convert::timestamp),
            // With KILLPRIV_V2 a change of owner always clears the bits, one of size when the
            // caller is not privileged; fuser 0.18 does not pass the kernel's own word on it.
            kill_suidgid: uid.is_some() || gid.is_some() || (size.is_some() && ctx.uid != 0),
        };
        self.fs.setattr(&ctx, ino, &set, attr_done(reply));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let ino = ino!(ino, reply);
        self.fs.readlink(ino, data_done(reply));
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let parent = ino!(parent, reply);
        self.fs.mknod(
            &ctx(req),
            parent,
            name.as_bytes(),
            mode,
            umask,
            u64::from(rdev),
            entry_done(reply),
        );
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let parent = ino!(parent, reply);
        self.fs.mkdir(
            &ctx(req),
            parent,
            name.as_bytes(),
            mode,
            umask,
            entry_done(reply),
        );
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = ino!(parent, reply);
        self.fs
            .unlink(&ctx(req), parent, name.as_bytes(), empty_done(reply));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = ino!(parent, reply);
        self.fs
            .rmdir(&ctx(req), parent, name.as_bytes(), empty_done(reply));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let parent = ino!(parent, reply);
        let target = target.as_os_str().as_bytes();
        self.fs.symlink(
            &ctx(req),
            parent,
            link_name.as_bytes(),
            target,
            entry_done(reply),
        );
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let parent = ino!(parent, reply);
        let new_parent = ino!(newparent, reply);
        let Some(flags) = rename_flags(flags) else {
            return reply.error(Errno::EINVAL);
        };
        let (name, new_name) = (name.as_bytes(), newname.as_bytes());
        self.fs.rename(
            &ctx(req),
            parent,
            name,
            new_parent,
            new_name,
            flags,
            empty_done(reply),
        );
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let ino = ino!(ino, reply);
        let parent = ino!(newparent, reply);
        self.fs.link(
            &ctx(req),
            ino,
            parent,
            newname.as_bytes(),
            entry_done(reply),
        );
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let ino = ino!(ino, reply);
        self.fs.open(
            &ctx(req),
            ino,
            flags.0,
            Box::new(move |r| match r {
                Ok(opened) => reply.opened(FileHandle(opened.fh.0), fopen_flags(opened)),
                Err(e) => reply.error(errno(&e)),
            }),
        );
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let parent = ino!(parent, reply);
        self.fs.create(
            &ctx(req),
            parent,
            name.as_bytes(),
            mode,
            umask,
            flags,
            Box::new(move |r| match r {
                Ok((a, opened)) => {
                    let (attr, generation) = node(&a);
                    reply.created(
                        &TTL,
                        &attr,
                        generation,
                        FileHandle(opened.fh.0),
                        fopen_flags(opened),
                    );
                }
                Err(e) => reply.error(errno(&e)),
            }),
        );
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.release(Fh(fh.0));
        reply.ok();
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Only kernels without FOPEN_NOFLUSH ask; ENOSYS keeps them from asking again.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.fs.read(
            Fh(fh.0),
            offset,
            size,
            Box::new(move |r| match r {
                Ok(data) => reply.data(data),
                Err(e) => reply.error(errno(&e)),
            }),
        );
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let ino = ino!(ino, reply);
        let kill_suidgid = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        self.fs.write(
            &ctx(req),
            ino,
            Fh(fh.0),
            WriteArgs {
                offset,
                data,
                flags: flags.0,
                kill_suidgid,
            },
            Box::new(move |r| match r {
                // A request holds at most MAX_WRITE bytes.
                Ok(n) => reply.written(n as u32),
                Err(e) => reply.error(errno(&e)),
            }),
        );
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.fsync(Fh(fh.0), datasync, empty_done(reply));
    }

    fn opendir(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let ino = ino!(ino, reply);
        self.fs.opendir(
            &ctx(req),
            ino,
            flags.0,
            Box::new(move |r| match r {
                Ok(opened) => reply.opened(FileHandle(opened.fh.0), FopenFlags::empty()),
                Err(e) => reply.error(errno(&e)),
            }),
        );
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.fs
            .readdir(Fh(fh.0), offset, false, Box::new(Plain(reply)));
    }

    fn readdirplus(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.fs
            .readdir(Fh(fh.0), offset, true, Box::new(Plus(reply)));
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.fs.release(Fh(fh.0));
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.fsync(Fh(fh.0), datasync, empty_done(reply));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.fs.statfs(Box::new(move |r| match r {
            Ok(s) => reply.statfs(
                s.blocks,
                s.bfree,
                s.bavail,
                s.files,
                s.ffree,
                s.block_size,
                s.namelen,
                s.block_size,
            ),
            Err(e) => reply.error(errno(&e)),
        }));
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let ino = ino!(ino, reply);
        let Some(how) = xattr_how(flags) else {
            return reply.error(Errno::EINVAL);
        };
        self.fs.setxattr(
            &ctx(req),
            ino,
            name.as_bytes(),
            value,
            how,
            empty_done(reply),
        );
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let ino = ino!(ino, reply);
        self.fs
            .getxattr(ino, name.as_bytes(), xattr_done(reply, size));
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let ino = ino!(ino, reply);
        self.fs.listxattr(ino, xattr_done(reply, size));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let ino = ino!(ino, reply);
        self.fs
            .removexattr(&ctx(req), ino, name.as_bytes(), empty_done(reply));
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // default_permissions: the kernel decides.
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _req: &Request, _ino: INodeNo, _blocksize: u32, _idx: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        let ino = ino!(ino, reply);
        self.fs.ioctl(
            &ctx(req),
            ino,
            Fh(fh.0),
            IoctlArgs {
                cmd,
                input: in_data,
                out_size,
            },
            Box::new(move |r| match r {
                Ok(answer) => {
                    let len = answer.data.len().min(out_size as usize);
                    reply.ioctl(answer.result, answer.data.get(..len).unwrap_or_default());
                }
                Err(e) => reply.error(errno(&e)),
            }),
        );
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = fallocate_mode(mode) else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        self.fs
            .fallocate(&ctx(req), Fh(fh.0), mode, offset, length, empty_done(reply));
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let what = match whence {
            libc::SEEK_DATA => SeekWhat::Data,
            libc::SEEK_HOLE => SeekWhat::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        self.fs.seek(
            Fh(fh.0),
            offset,
            what,
            Box::new(move |r| match r.map(i64::try_from) {
                Ok(Ok(at)) => reply.offset(at),
                Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
                Err(e) => reply.error(errno(&e)),
            }),
        );
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        _fh_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _fh_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The kernel copies through the page cache instead, and does not ask again.
        reply.error(Errno::ENOSYS);
    }
}

/// A READDIR reply.
struct Plain(ReplyDirectory);

impl Listing for Plain {
    fn add(&mut self, entry: &DirEntry, kind: FileType, _attr: Option<&Attr>) -> bool {
        let name = OsStr::from_bytes(&entry.name);
        !self.0.add(
            INodeNo(u64::from(entry.ino)),
            entry.next,
            file_kind(kind),
            name,
        )
    }

    fn finish(self: Box<Self>, result: Result<(), FsError>) {
        match result {
            Ok(()) => self.0.ok(),
            Err(e) => self.0.error(errno(&e)),
        }
    }
}

/// A READDIRPLUS reply.
struct Plus(ReplyDirectoryPlus);

impl Listing for Plus {
    fn add(&mut self, entry: &DirEntry, _kind: FileType, attr: Option<&Attr>) -> bool {
        let Some(attr) = attr else { return true };
        // The kernel makes no node of the dots; they show their real number.
        let shown = if is_dot(&entry.name) {
            INodeNo(u64::from(attr.ino))
        } else {
            node_of(attr.ino)
        };
        let generation = Generation(u64::from(attr.generation));
        let name = OsStr::from_bytes(&entry.name);
        !self.0.add(
            shown,
            entry.next,
            name,
            &TTL,
            &file_attr(attr, shown),
            generation,
        )
    }

    fn finish(self: Box<Self>, result: Result<(), FsError>) {
        match result {
            Ok(()) => self.0.ok(),
            Err(e) => self.0.error(errno(&e)),
        }
    }
}

/// Attributes behind node 0, which nobody looks at.
const NO_ENTRY: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: SystemTime::UNIX_EPOCH,
    mtime: SystemTime::UNIX_EPOCH,
    ctime: SystemTime::UNIX_EPOCH,
    crtime: SystemTime::UNIX_EPOCH,
    kind: fuser::FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};
