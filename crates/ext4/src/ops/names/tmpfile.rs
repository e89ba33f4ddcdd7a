//! Files without a name (O_TMPFILE).

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::fs::Fs;
use crate::names::checks::may_add;
use crate::ops::inodes::NewFile;
use crate::ops::inodes::OpenRef;
use crate::space::credits::{NEW_INODE, ORPHAN, WRITE_INODE};
use crate::types::{Attr, Ctx, Ino};

impl Fs {
    /// Makes a regular file without a name, as if it were in the directory `parent`, and opens it
    /// with `flags` of open(2). It counts one lookup. It is deleted with its last user unless
    /// [`link`](Self::link) gives it a name, which `O_EXCL` forbids.
    ///
    /// # Errors
    /// As for [`create`](Self::create), except errors of names.
    pub fn tmpfile(
        &self,
        ctx: &Ctx,
        parent: Ino,
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Result<(Attr, OpenRef)> {
        self.throttle()?;
        let mode = libc::S_IFREG | (mode & 0o7777);
        let dir = self.inodes.iget(parent)?;
        let inode = {
            // A shared lock would be enough, except for the allocation near the directory's files.
            let dir_body = dir.body.write();
            may_add(&dir_body)?;
            let inherited = self.inherit_acl(&dir, &dir_body, mode, umask)?;
            let _room = self
                .space
                .reserve(inherited.blocks(), self.space.privileged(ctx))?;
            let blocks = inherited.blocks() * u64::from(self.vol.geo.ratio());
            let owner = self.owner_in(ctx, &dir_body);
            let promise = self.promise(ctx, owner, blocks, 1 + inherited.values())?;
            let file = NewFile {
                mode: inherited.mode,
                rdev: 0,
                again: None,
                promise: &promise,
            };
            let credits = NEW_INODE + inherited.credits() + 2 * WRITE_INODE + ORPHAN;
            let (h, inode) = self.space.begin_with_inode(dir.ino, credits, |h| {
                self.new_inode(h, (&dir, &dir_body), ctx, &file)
            })?;
            let mut body = inode.lock_new();
            let filled = self.set_inherited(&h, &inode, &mut body, &inherited);
            // Without links it is an orphan, so a crash deletes it.
            let made = filled.and(self.abandon_inode(&h, &inode, &mut body));
            drop(body);
            if let Err(e) = made {
                drop(h);
                drop(dir_body);
                self.iput(&inode);
                return Err(e);
            }
            inode
                .linkable
                .store(flags & libc::O_EXCL == 0, Ordering::Release);
            self.inodes.count_lookup(inode.ino);
            inode
        };
        let opened = self.open_inode(ctx, inode.ino, flags & !(libc::O_TRUNC | libc::O_EXCL));
        let both = opened.and_then(|open| Ok((self.attr(&inode)?, open)));
        both.inspect_err(|_| self.forget(inode.ino, 1))
    }
}
