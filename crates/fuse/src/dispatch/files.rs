//! Requests about open files.

use stetfs::low::{Ctx, FallocateMode, Ino, SeekWhat};

use super::body::{Body, Served, need};
use super::reply::{List, Reply};
use crate::api::ops::{CopyArgs, FileSystem, IoctlArgs, IoctlReply, OpenFile, ReadArgs, WriteArgs};
use crate::wire::abi::{self, op};
use crate::wire::limits::MAX_WRITE;
use crate::wire::node::ino_of;

/// Serves requests about the open file `ino`.
pub(crate) fn serve<F: FileSystem>(
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
        op::WRITE => return write(fs, ctx, ino, body, reply),
        op::COPY_FILE_RANGE => return copy_range(fs, ctx, ino, body, reply),
        op::FSYNC | op::FSYNCDIR => {
            let arg: abi::FsyncIn = need!(body.take(), reply);
            let datasync = arg.fsync_flags & abi::FSYNC_FDATASYNC != 0;
            let file = OpenFile::new(ino, arg.fh);
            fs.fsync(ctx, file, datasync, reply.done_empty());
        }
        op::FALLOCATE => return fallocate(fs, ctx, ino, body, reply),
        op::LSEEK => return seek(fs, ctx, ino, body, reply),
        op::READDIR | op::READDIRPLUS => {
            let arg: abi::ReadIn = need!(body.take(), reply);
            let room = (arg.size as usize).min(MAX_WRITE as usize);
            let plus = opcode == op::READDIRPLUS;
            let list = Box::new(List::new(reply, room, plus));
            fs.readdir(ctx, OpenFile::new(ino, arg.fh), arg.offset, plus, list);
        }
        op::IOCTL => return ioctl(fs, ctx, ino, body, reply),
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

/// WRITE to the open file `ino`.
fn write<F: FileSystem>(fs: &F, ctx: &Ctx, ino: Ino, body: &mut Body<'_>, reply: Reply) -> Served {
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
    Ok(())
}

/// COPY_FILE_RANGE from the open file `ino`.
fn copy_range<F: FileSystem>(
    fs: &F,
    ctx: &Ctx,
    ino: Ino,
    body: &mut Body<'_>,
    reply: Reply,
) -> Served {
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
    Ok(())
}

/// FALLOCATE of the open file `ino`.
fn fallocate<F: FileSystem>(
    fs: &F,
    ctx: &Ctx,
    ino: Ino,
    body: &mut Body<'_>,
    reply: Reply,
) -> Served {
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
    Ok(())
}

/// LSEEK in the open file `ino`, to data or a hole.
fn seek<F: FileSystem>(fs: &F, ctx: &Ctx, ino: Ino, body: &mut Body<'_>, reply: Reply) -> Served {
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
    Ok(())
}

/// IOCTL on the open file `ino`.
fn ioctl<F: FileSystem>(fs: &F, ctx: &Ctx, ino: Ino, body: &mut Body<'_>, reply: Reply) -> Served {
    let arg: abi::IoctlIn = need!(body.take(), reply);
    let input = need!(body.bytes(arg.in_size), reply);
    if arg.flags & abi::IOCTL_UNRESTRICTED != 0 {
        reply.error(libc::ENOSYS);
        return Ok(());
    }
    let out_size = arg.out_size as usize;
    let done = reply.done(move |reply, answer: IoctlReply| {
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
    Ok(())
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
