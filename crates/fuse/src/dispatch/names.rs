//! Requests about names.

use stetfs::low::{Ctx, Ino, RenameFlags};

use super::body::{Body, Served, need};
use super::reply::{Reply, no_entry};
use crate::api::ops::{FileSystem, NewNode};
use crate::wire::abi::{self, op};
use crate::wire::node::ino_of;

/// Serves requests about names in the directory `dir`.
pub(crate) fn serve<F: FileSystem>(
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
            let (node, rdev) = (new_node(arg.mode, arg.umask), u64::from(arg.rdev));
            fs.mknod(ctx, dir, name, node, rdev, reply.done_entry());
        }
        op::MKDIR => {
            let arg: abi::MkdirIn = need!(body.take(), reply);
            let name = need!(body.name(), reply);
            let node = new_node(arg.mode, arg.umask);
            fs.mkdir(ctx, dir, name, node, reply.done_entry());
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
            let (node, flags) = (new_node(arg.mode, arg.umask), arg.flags as i32);
            fs.create(ctx, dir, name, node, flags, reply.done_created());
        }
        op::TMPFILE => {
            let arg: abi::CreateIn = need!(body.take(), reply);
            let (node, flags) = (new_node(arg.mode, arg.umask), arg.flags as i32);
            fs.tmpfile(ctx, dir, node, flags, reply.done_created());
        }
        _ => return rename(fs, opcode, ctx, dir, body, reply),
    }
    Ok(())
}

/// RENAME and RENAME2, from the directory `dir`.
fn rename<F: FileSystem>(
    fs: &F,
    opcode: u32,
    ctx: &Ctx,
    dir: Ino,
    body: &mut Body<'_>,
    reply: Reply,
) -> Served {
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
    Ok(())
}

fn new_node(mode: u32, umask: u32) -> NewNode {
    NewNode { mode, umask }
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
    /// The answer for LOOKUP: a name that does not exist is an answer, too.
    fn done_lookup(self) -> stetfs::low::Done<stetfs::low::Attr> {
        Box::new(move |result| match result {
            Err(e) if e.errno() == libc::ENOENT => self.value(&no_entry()),
            other => self.done_entry()(other),
        })
    }
}
