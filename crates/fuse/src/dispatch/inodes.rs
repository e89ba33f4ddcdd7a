//! Requests about inodes.

use stetfs::low::{Ctx, Ino, SetAttr, TimeSet, Timestamp, XattrSet};

use super::body::{Body, Served, need};
use super::reply::Reply;
use crate::api::ops::{FileSystem, OpenFile, Why};
use crate::wire::abi::{self, fattr, op};

/// Serves requests about the inode `ino` itself.
pub(crate) fn serve<F: FileSystem>(
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
        // Among them is ACCESS, which the kernel does not send again.
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
