//! Dispatch of a request: it is parsed, and passed to the file system.

mod body;
mod files;
mod inodes;
mod names;
pub(crate) mod reply;

pub(crate) use body::Body;

use stetfs::low::{Ctx, Ino};
use zerocopy::FromBytes;

use self::body::Malformed;
use self::reply::Reply;
use crate::api::ops::FileSystem;
use crate::helper::caller;
use crate::transport::port::Port;
use crate::wire::abi::{self, InHeader, op};
use crate::wire::node::ino_of;
use crate::wire::times::Timed;
use crate::wire::{counts, ioctl};

/// The next step after a request.
pub(crate) enum Next {
    /// Take the next request.
    GoOn,
    /// Shut the file system down, then answer this last request.
    Destroy(Reply),
}

/// Serves the request `bytes`, answered through the port that `port` makes.
pub(crate) fn serve_bytes<F: FileSystem>(
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
            "the request's length differs from its header"
        );
        if !matches!(header.opcode, op::FORGET | op::BATCH_FORGET) {
            Reply::new(port(), header.unique).error(libc::EINVAL);
        }
        return Next::GoOn;
    }
    let mut body = Body::whole(body);
    match header.opcode {
        // These have no answer, and come only this way.
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

/// Minimum length of a long read in bytes.
const LONG_READ: u32 = 256 << 10;

/// Whether a request is a long read, by its header and the operation's.
pub(crate) fn is_long_read(header: &InHeader, operation: &[u8]) -> bool {
    header.opcode == op::READ
        && abi::ReadIn::read_from_prefix(operation).is_ok_and(|(arg, _)| arg.size >= LONG_READ)
}

/// Serves a request that has an answer.
pub(crate) fn serve<F: FileSystem>(
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
            // None of these is the last request.
            let _ = serve_now(fs, &header, copy.body(), reply);
        }));
        return Next::GoOn;
    }
    serve_now(fs, header, body, reply)
}

/// Whether a request may change something on the volume.
fn changes(opcode: u32, body: &Body<'_>) -> bool {
    match opcode {
        op::IOCTL => body
            .peek::<abi::IoctlIn>()
            .is_none_or(|arg| !ioctl::only_looks(arg.cmd)),
        _ => asks_who(opcode) || makes_inodes(opcode),
    }
}

/// [`serve`] without holding back.
fn serve_now<F: FileSystem>(fs: &F, header: &InHeader, body: Body<'_>, reply: Reply) -> Next {
    match header.opcode {
        op::DESTROY => return Next::Destroy(reply),
        // These concern no inode. Operations cannot be interrupted, and the kernel does not ask
        // again.
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

/// Whether the sender of such a request matters.
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

/// Serves requests about an inode.
fn on_inode<F: FileSystem>(fs: &F, header: &InHeader, ino: Ino, mut body: Body<'_>, reply: Reply) {
    let ctx = match header.uid {
        // Ids that the mount's mapping does not have.
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
        | op::TMPFILE => names::serve(fs, header.opcode, &ctx, ino, &mut body, reply),
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
        | op::IOCTL => files::serve(fs, header.opcode, &ctx, ino, &mut body, reply),
        _ => inodes::serve(fs, header.opcode, &ctx, ino, &mut body, reply),
    };
    // The parser found a malformed request: it is answered with EINVAL.
    if let Err((Malformed, reply)) = served {
        tracing::error!(opcode = header.opcode, "a malformed request");
        reply.error(libc::EINVAL);
    }
}
