//! One request: taken apart, and given to the file system.

use stetfs::low::{
    Ctx, FallocateMode, Ino, RenameFlags, SeekWhat, SetAttr, TimeSet, Timestamp, XattrSet,
};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::abi::{self, InHeader, fattr, op};
use super::counts;
use super::limits::MAX_WRITE;
use super::node::ino_of;
use super::port::Port;
use super::reply::{List, Reply, no_entry};
use super::times::Timed;
use crate::caller;
use crate::ops::{CopyArgs, FileSystem, IoctlArgs, OpenFile, ReadArgs, Why, WriteArgs};

/// What follows a request's header: the operation's own structure, if it has one, and the rest.
pub(super) struct Body<'a> {
    /// Where the structure is apart from the rest (io_uring); not looked at otherwise.
    operation: Option<&'a [u8]>,
    rest: &'a [u8],
}

/// A request that is too short, or has no name where one must be: EINVAL.
struct Malformed;

type Parsed<T> = Result<T, Malformed>;

impl<'a> Body<'a> {
    /// All in one.
    pub(super) fn whole(bytes: &'a [u8]) -> Body<'a> {
        Body {
            operation: None,
            rest: bytes,
        }
    }

    /// In two parts.
    pub(super) fn split(operation: &'a [u8], rest: &'a [u8]) -> Body<'a> {
        Body {
            operation: Some(operation),
            rest,
        }
    }

    /// What [`take`](Self::take) would, and it stays.
    fn peek<T: FromBytes + KnownLayout + Immutable + Copy>(&self) -> Option<T> {
        let bytes = self.operation.unwrap_or(self.rest);
        T::read_from_prefix(bytes).ok().map(|(value, _)| value)
    }

    /// Both parts, for later.
    fn copied(&self) -> (Option<Vec<u8>>, Vec<u8>) {
        (self.operation.map(<[u8]>::to_vec), self.rest.to_vec())
    }

    fn take<T: FromBytes + KnownLayout + Immutable + Copy>(&mut self) -> Parsed<T> {
        if let Some(operation) = self.operation.take() {
            let (value, _) = T::read_from_prefix(operation).map_err(|_| Malformed)?;
            return Ok(value);
        }
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Malformed)?;
        self.rest = rest;
        Ok(value)
    }

    /// A string up to its NUL.
    fn name(&mut self) -> Parsed<&'a [u8]> {
        let end = self.rest.iter().position(|b| *b == 0).ok_or(Malformed)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }

    fn bytes(&mut self, len: u32) -> Parsed<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len as usize).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// What to do after a request.
pub(super) enum Next {
    /// The next one.
    GoOn,
    /// The last request: the file system is to be shut down, then this answered.
    Destroy(Reply),
}

/// Serves the request `bytes`, whose answer goes by what `port` makes.
pub(super) fn serve_bytes<F: FileSystem>(
    fs: &F,
    port: impl FnOnce() -> Port,
    bytes: &[u8],
) -> Next {
    let Ok((header, body)) = InHeader::read_from_prefix(bytes) else {
        tracing::error!(len = bytes.len(), "a request without a header");
        return Next::GoOn;
    };
    if header.len as usize != bytes.len() {
        tracing::error!(
            len = bytes.len(),
            "a request of another length than it says"
        );
        if !matches!(header.opcode, op::FORGET | op::BATCH_FORGET) {
            Reply::new(port(), header.unique).error(libc::EINVAL);
        }
        return Next::GoOn;
    }
    let mut body = Body::whole(body);
    match header.opcode {
        // These have no answer, and never come another way.
        op::FORGET => {
            counts::count(header.opcode);
            if let (Ok(forget), Some(ino)) = (body.take::<abi::ForgetIn>(), ino_of(header.nodeid)) {
                fs.forget(ino, forget.nlookup);
            }
            Next::GoOn
        }
        op::BATCH_FORGET => {
            counts::count(header.opcode);
            forget_all(fs, body);
            Next::GoOn
        }
        _ => serve(fs, &header, body, Reply::new(port(), header.unique)),
    }
}

/// Reads of so many bytes are long.
const LONG_READ: u32 = 256 << 10;

/// Whether a request is a long read, by its head and that of the operation.
pub(super) fn is_long_read(header: &InHeader, operation: &[u8]) -> bool {
    header.opcode == op::READ
        && abi::ReadIn::read_from_prefix(operation).is_ok_and(|(arg, _)| arg.size >= LONG_READ)
}

/// Serves a request that is to be answered.
pub(super) fn serve<F: FileSystem>(
    fs: &F,
    header: &InHeader,
    body: Body<'_>,
    mut reply: Reply,
) -> Next {
    counts::count(header.opcode);
    reply.time(Timed::of(header.opcode));
    reply.show(fs.ids());
    if fs.holds_back() && changes(header.opcode, &body) {
        let (header, copy) = (*header, body.copied());
        fs.hold_back(Box::new(move |fs| {
            let body = Body {
                operation: copy.0.as_deref(),
                rest: &copy.1,
            };
            // None of these is the last request.
            let _ = serve_now(fs, &header, body, reply);
        }));
        return Next::GoOn;
    }
    serve_now(fs, header, body, reply)
}

/// Whether a request may change something of the volume.
fn changes(opcode: u32, body: &Body<'_>) -> bool {
    match opcode {
        op::IOCTL => body
            .peek::<abi::IoctlIn>()
            .is_none_or(|arg| !crate::ioctl::only_looks(arg.cmd)),
        _ => asks_who(opcode) || makes_inodes(opcode),
    }
}

/// [`serve`], whatever is held back.
fn serve_now<F: FileSystem>(fs: &F, header: &InHeader, body: Body<'_>, reply: Reply) -> Next {
    match header.opcode {
        op::DESTROY => return Next::Destroy(reply),
        // About no inode. Operations are not interrupted, and the kernel does not ask again.
        op::INTERRUPT => reply.error(libc::ENOSYS),
        op::SYNCFS => fs.sync_fs(reply.done_empty()),
        op::STATFS => fs.statfs(reply.done(|reply, s: stetfs::low::StatFs| {
            reply.value(&abi::StatfsOut {
                blocks: s.blocks,
                bfree: s.bfree,
                bavail: s.bavail,
                files: s.files,
                ffree: s.ffree,
                bsize: s.block_size,
                namelen: s.namelen,
                frsize: s.block_size,
                padding: 0,
                spare: [0; 6],
            });
        })),
        _ => {
            let Some(ino) = ino_of(header.nodeid) else {
                reply.error(libc::ESTALE);
                return Next::GoOn;
            };
            on_inode(fs, header, ino, body, reply);
        }
    }
    Next::GoOn
}

fn forget_all<F: FileSystem>(fs: &F, mut body: Body<'_>) {
    let Ok(head) = body.take::<abi::BatchForgetIn>() else {
        return;
    };
    for _ in 0..head.count {
        let Ok(one) = body.take::<abi::ForgetOne>() else {
            return;
        };
        if let Some(ino) = ino_of(one.nodeid) {
            fs.forget(ino, one.nlookup);
        }
    }
}

fn makes_inodes(opcode: u32) -> bool {
    matches!(
        opcode,
        op::MKNOD | op::MKDIR | op::SYMLINK | op::CREATE | op::TMPFILE
    )
}

/// Whether it matters who sends such a request.
fn asks_who(opcode: u32) -> bool {
    matches!(
        opcode,
        op::WRITE
            | op::FALLOCATE
            | op::COPY_FILE_RANGE
            | op::SETATTR
            | op::SETXATTR
            | op::REMOVEXATTR
            | op::IOCTL
            | op::LINK
            | op::UNLINK
            | op::RMDIR
            | op::RENAME
            | op::RENAME2
    )
}

/// Requests about an inode.
fn on_inode<F: FileSystem>(fs: &F, header: &InHeader, ino: Ino, mut body: Body<'_>, reply: Reply) {
    let ctx = match header.uid {
        // Ids that the map of the mount does not have.
        abi::NO_ID if makes_inodes(header.opcode) => return reply.error(libc::EOVERFLOW),
        abi::NO_ID if asks_who(header.opcode) => caller::identified(header.pid),
        _ => Ctx {
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
        },
    };
    let ctx = fs.ids().caller(ctx);
    let served = match header.opcode {
        op::LOOKUP
        | op::SYMLINK
        | op::MKNOD
        | op::MKDIR
        | op::UNLINK
        | op::RMDIR
        | op::RENAME
        | op::RENAME2
        | op::LINK
        | op::CREATE
        | op::TMPFILE => names(fs, header.opcode, &ctx, ino, &mut body, reply),
        op::READ
        | op::WRITE
        | op::FSYNC
        | op::FSYNCDIR
        | op::FALLOCATE
        | op::LSEEK
        | op::COPY_FILE_RANGE
        | op::READDIR
        | op::READDIRPLUS
        | op::RELEASE
        | op::RELEASEDIR
        | op::FLUSH
        | op::IOCTL => files(fs, header.opcode, &ctx, ino, &mut body, reply),
        _ => inodes(fs, header.opcode, &ctx, ino, &mut body, reply),
    };
    // A malformed request was answered EINVAL by whoever found out.
    if let Err((Malformed, reply)) = served {
        tracing::error!(opcode = header.opcode, "a malformed request");
        reply.error(libc::EINVAL);
    }
}

type Served = Result<(), (Malformed, Reply)>;

/// Gets a part of the request, or gives the reply back to be answered.
macro_rules! need {
    ($parsed:expr, $reply:ident) => {
        match $parsed {
            Ok(value) => value,
            Err(e) => return Err((e, $reply)),
        }
    };
}

/// Requests about names in the directory `dir`.
fn names<F: FileSystem>(
    fs: &F,
    opcode: u32,
    ctx: &Ctx,
    dir: Ino,
    body: &mut Body<'_>,
    reply: Reply,
) -> Served {
    match opcode {
        op::LOOKUP => {
            let name = need!(body.name(), reply);
            let entry = reply.done_lookup();
            fs.lookup(ctx, dir, name, entry);
        }
        op::MKNOD => {
            let arg: abi::MknodIn = need!(body.take(), reply);
            let name = need!(body.name(), reply);
            let rdev = u64::from(arg.rdev);
            fs.mknod(
                ctx,
                dir,
                name,
                arg.mode,
                arg.umask,
                rdev,
                reply.done_entry(),
            );
        }
        op::MKDIR => {
            let arg: abi::MkdirIn = need!(body.take(), reply);
            let name = need!(body.name(), reply);
            fs.mkdir(ctx, dir, name, arg.mode, arg.umask, reply.done_entry());
        }
        op::SYMLINK => {
            let name = need!(body.name(), reply);
            let target = need!(body.name(), reply);
            fs.symlink(ctx, dir, name, target, reply.done_entry());
        }
        op::LINK => {
            let arg: abi::LinkIn = need!(body.take(), reply);
            let name = need!(body.name(), reply);
            let Some(ino) = ino_of(arg.oldnodeid) else {
                reply.error(libc::ESTALE);
                return Ok(());
            };
            fs.link(ctx, ino, dir, name, reply.done_entry());
        }
        op::UNLINK => {
            let name = need!(body.name(), reply);
            fs.unlink(ctx, dir, name, reply.done_empty());
        }
        op::RMDIR => {
            let name = need!(body.name(), reply);
            fs.rmdir(ctx, dir, name, reply.done_empty());
        }
        op::CREATE => {
            let arg: abi::CreateIn = need!(body.take(), reply);
            let name = need!(body.name(), reply);
            let flags = arg.flags as i32;
            fs.create(
                ctx,
                dir,
                name,
                arg.mode,
                arg.umask,
                flags,
                reply.done_created(),
            );
        }
        op::TMPFILE => {
            let arg: abi::CreateIn = need!(body.take(), reply);
            let flags = arg.flags as i32;
            fs.tmpfile(ctx, dir, arg.mode, arg.umask, flags, reply.done_created());
        }
        _ => {
            let (to, flags) = if opcode == op::RENAME2 {
                let arg: abi::Rename2In = need!(body.take(), reply);
                (arg.newdir, arg.flags)
            } else {
                let arg: abi::RenameIn = need!(body.take(), reply);
                (arg.newdir, 0)
            };
            let name = need!(body.name(), reply);
            let new_name = need!(body.name(), reply);
            let Some(to) = ino_of(to) else {
                reply.error(libc::ESTALE);
                return Ok(());
            };
            let Some(flags) = rename_flags(flags) else {
                reply.error(libc::EINVAL);
                return Ok(());
            };
            fs.rename(ctx, dir, name, to, new_name, flags, reply.done_empty());
        }
    }
    Ok(())
}

/// Requests about the open file `ino`.
fn files<F: FileSystem>(
    fs: &F,
    opcode: u32,
    ctx: &Ctx,
    ino: Ino,
    body: &mut Body<'_>,
    reply: Reply,
) -> Served {
    match opcode {
        op::READ => {
            let arg: abi::ReadIn = need!(body.take(), reply);
            let args = ReadArgs {
                offset: arg.offset,
                flags: arg.flags as i32,
            };
            let file = OpenFile::new(ino, arg.fh);
            fs.read(ctx, file, args, reply.done_read(arg.size));
        }
        op::WRITE => {
            let arg: abi::WriteIn = need!(body.take(), reply);
            let data = need!(body.bytes(arg.size), reply);
            let args = WriteArgs {
                offset: arg.offset,
                data,
                flags: arg.flags as i32,
                kill_suidgid: arg.write_flags & abi::WRITE_KILL_SUIDGID != 0,
                from_cache: arg.write_flags & abi::WRITE_CACHE != 0,
            };
            fs.write(ctx, OpenFile::new(ino, arg.fh), args, reply.done_written());
        }
        op::COPY_FILE_RANGE => {
            let arg: abi::CopyFileRangeIn = need!(body.take(), reply);
            let Some(to) = ino_of(arg.nodeid_out) else {
                reply.error(libc::ESTALE);
                return Ok(());
            };
            let args = CopyArgs {
                from: OpenFile::new(ino, arg.fh_in),
                from_offset: arg.off_in,
                to: OpenFile::new(to, arg.fh_out),
                to_offset: arg.off_out,
                len: arg.len,
            };
            fs.copy_range(ctx, args, reply.done_written());
        }
        op::FSYNC | op::FSYNCDIR => {
            let arg: abi::FsyncIn = need!(body.take(), reply);
            let datasync = arg.fsync_flags & abi::FSYNC_FDATASYNC != 0;
            let file = OpenFile::new(ino, arg.fh);
            fs.fsync(ctx, file, datasync, reply.done_empty());
        }
        op::FALLOCATE => {
            let arg: abi::FallocateIn = need!(body.take(), reply);
            let Some(mode) = fallocate_mode(arg.mode as i32) else {
                reply.error(libc::EOPNOTSUPP);
                return Ok(());
            };
            fs.fallocate(
                ctx,
                OpenFile::new(ino, arg.fh),
                mode,
                arg.offset,
                arg.length,
                reply.done_empty(),
            );
        }
        op::LSEEK => {
            let arg: abi::LseekIn = need!(body.take(), reply);
            let what = match arg.whence as i32 {
                libc::SEEK_DATA => SeekWhat::Data,
                libc::SEEK_HOLE => SeekWhat::Hole,
                _ => {
                    reply.error(libc::EINVAL);
                    return Ok(());
                }
            };
            let done = reply.done(|reply, offset: u64| reply.value(&abi::LseekOut { offset }));
            fs.seek(ctx, OpenFile::new(ino, arg.fh), arg.offset, what, done);
        }
        op::READDIR | op::READDIRPLUS => {
            let arg: abi::ReadIn = need!(body.take(), reply);
            let room = (arg.size as usize).min(MAX_WRITE as usize);
            let plus = opcode == op::READDIRPLUS;
            let list = Box::new(List::new(reply, room, plus));
            fs.readdir(ctx, OpenFile::new(ino, arg.fh), arg.offset, plus, list);
        }
        op::IOCTL => {
            let arg: abi::IoctlIn = need!(body.take(), reply);
            let input = need!(body.bytes(arg.in_size), reply);
            if arg.flags & abi::IOCTL_UNRESTRICTED != 0 {
                reply.error(libc::ENOSYS);
                return Ok(());
            }
            let out_size = arg.out_size as usize;
            let done = reply.done(move |reply, answer: crate::ops::IoctlReply| {
                let head = abi::IoctlOut {
                    result: answer.result,
                    flags: 0,
                    in_iovs: 0,
                    out_iovs: 0,
                };
                let len = answer.data.len().min(out_size);
                reply.value_and(&head, answer.data.get(..len).unwrap_or_default());
            });
            let args = IoctlArgs {
                cmd: arg.cmd,
                input,
                out_size: arg.out_size,
                arg: arg.arg,
            };
            fs.ioctl(ctx, OpenFile::new(ino, arg.fh), args, done);
        }
        op::FLUSH => {
            let arg: abi::FlushIn = need!(body.take(), reply);
            fs.flush(ctx, OpenFile::new(ino, arg.fh), reply.done_empty());
        }
        _ => {
            let arg: abi::ReleaseIn = need!(body.take(), reply);
            if let Some(fh) = OpenFile::new(ino, arg.fh).fh {
                fs.release(fh);
            }
            reply.empty();
        }
    }
    Ok(())
}

/// Requests about the inode `ino` itself.
fn inodes<F: FileSystem>(
    fs: &F,
    opcode: u32,
    ctx: &Ctx,
    ino: Ino,
    body: &mut Body<'_>,
    reply: Reply,
) -> Served {
    match opcode {
        op::GETATTR => {
            let arg: abi::GetattrIn = need!(body.take(), reply);
            let why = match arg.getattr_flags & abi::GETATTR_FH {
                0 => Why::Unsaid,
                _ => Why::Looks,
            };
            fs.getattr(ctx, ino, why, reply.done_attr());
        }
        op::STATX => fs.getattr(ctx, ino, Why::Looks, reply.done_statx()),
        op::SETATTR => {
            let arg: abi::SetattrIn = need!(body.take(), reply);
            let set = fs.ids().asked(set_attr(&arg));
            let fh = if arg.valid & fattr::FH == 0 {
                0
            } else {
                arg.fh
            };
            fs.setattr(ctx, OpenFile::new(ino, fh), &set, reply.done_attr());
        }
        op::READLINK => fs.readlink(ino, reply.done_bytes()),
        op::OPEN => {
            let arg: abi::OpenIn = need!(body.take(), reply);
            fs.open(ctx, ino, arg.flags as i32, reply.done_opened());
        }
        op::OPENDIR => {
            let arg: abi::OpenIn = need!(body.take(), reply);
            fs.opendir(ctx, ino, arg.flags as i32, reply.done_opened_dir());
        }
        op::BMAP => {
            let arg: abi::BmapIn = need!(body.take(), reply);
            let done = reply.done(|reply, block: u64| reply.value(&abi::BmapOut { block }));
            fs.bmap(ino, arg.block, arg.blocksize, done);
        }
        op::SETXATTR => {
            let arg: abi::SetxattrIn = need!(body.take(), reply);
            let name = need!(body.name(), reply);
            let value = need!(body.bytes(arg.size), reply);
            let Some(how) = xattr_how(arg.flags as i32) else {
                reply.error(libc::EINVAL);
                return Ok(());
            };
            let kill_sgid = arg.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0;
            fs.setxattr(ctx, ino, name, value, how, kill_sgid, reply.done_empty());
        }
        op::GETXATTR => {
            let arg: abi::GetxattrIn = need!(body.take(), reply);
            let name = need!(body.name(), reply);
            fs.getxattr(ino, name, reply.done_xattr(arg.size));
        }
        op::LISTXATTR => {
            let arg: abi::GetxattrIn = need!(body.take(), reply);
            fs.listxattr(ctx, ino, reply.done_xattr(arg.size));
        }
        op::REMOVEXATTR => {
            let name = need!(body.name(), reply);
            fs.removexattr(ctx, ino, name, reply.done_empty());
        }
        // Among them ACCESS: the kernel does without, and does not ask again.
        _ => reply.error(libc::ENOSYS),
    }
    Ok(())
}

fn set_attr(arg: &abi::SetattrIn) -> SetAttr {
    let on = |bit: u32| arg.valid & bit != 0;
    let time = |set: u32, now: u32, sec: i64, nsec: u32| {
        if on(now) {
            Some(TimeSet::Now)
        } else {
            on(set).then_some(TimeSet::At(Timestamp { sec, nsec }))
        }
    };
    SetAttr {
        mode: on(fattr::MODE).then_some(arg.mode & 0o7777),
        uid: on(fattr::UID).then_some(arg.uid),
        gid: on(fattr::GID).then_some(arg.gid),
        size: on(fattr::SIZE).then_some(arg.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, arg.atime, arg.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, arg.mtime, arg.mtimensec),
        ctime: on(fattr::CTIME).then_some(Timestamp {
            sec: arg.ctime,
            nsec: arg.ctimensec,
        }),
        // A new owner always clears the bits; a new size when the kernel says so.
        kill_suidgid: on(fattr::UID) || on(fattr::GID) || on(fattr::KILL_SUIDGID),
    }
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

fn rename_flags(flags: u32) -> Option<RenameFlags> {
    if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT) != 0 {
        return None;
    }
    Some(RenameFlags {
        no_replace: flags & libc::RENAME_NOREPLACE != 0,
        exchange: flags & libc::RENAME_EXCHANGE != 0,
        whiteout: flags & libc::RENAME_WHITEOUT != 0,
    })
}

impl Reply {
    /// For LOOKUP: a name that does not exist is an answer too.
    fn done_lookup(self) -> stetfs::low::Done<stetfs::low::Attr> {
        Box::new(move |result| match result {
            Err(e) if e.errno() == libc::ENOENT => self.value(&no_entry()),
            other => self.done_entry()(other),
        })
    }
}
