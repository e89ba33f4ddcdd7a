//! New files, directories, device nodes and symbolic links.

use std::sync::Arc;

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::dirent::FileType as EntryType;
use stetfs_ondisk::ext4::inode::I_BLOCK_LEN;
use stetfs_sync::RwLockWriteGuard;

use crate::data::maps::credits::{APPEND_DIR_BLOCK, SYMLINK_BODY, append_dir_space};
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::names::checks::{check_name, errno, may_add};
use crate::names::dir::{NewEntry, Plan};
use crate::names::insert_credits;
use crate::ops::attributes::Inherited;
use crate::ops::inodes::NewFile;
use crate::ops::inodes::OpenRef;
use crate::space::credits::{NEW_INODE, ORPHAN, WRITE_INODE};
use crate::types::{Attr, Ctx, Ino};

/// Longest target of a symbolic link, bytes (exclusive): `PATH_MAX`.
const TARGET_MAX: usize = 4096;

/// The description of a new file.
#[derive(Default)]
pub(crate) struct New<'a> {
    /// Requested type and permissions.
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    /// Device number of a device node.
    pub(crate) rdev: u64,
    /// Target of a symbolic link.
    pub(crate) target: Option<&'a [u8]>,
    /// Number and bytes of the inode, if recovery makes it again.
    pub(crate) again: Option<(Ino, &'a [u8])>,
}

impl New<'_> {
    /// Whether it needs a block from the start.
    fn needs_block(&self) -> bool {
        self.is_dir() || self.target.is_some_and(|t| t.len() >= I_BLOCK_LEN)
    }

    fn is_dir(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

impl Fs {
    /// Makes a regular file and opens it with `flags` of open(2). The new inode counts one lookup.
    /// `umask` is applied unless the directory has a default ACL.
    ///
    /// # Errors
    /// EEXIST, ENOENT (directory removed), ENOSPC, EPERM (immutable directory), EROFS,
    /// ENAMETOOLONG.
    pub fn create(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Result<(Attr, OpenRef)> {
        let mode = libc::S_IFREG | (mode & 0o7777);
        let inode = self.make(
            ctx,
            parent,
            name,
            &New {
                mode,
                umask,
                ..New::default()
            },
        )?;
        // The file is new, so O_TRUNC has no effect.
        let opened = self.open_inode(ctx, inode.ino, flags & !libc::O_TRUNC);
        let both = opened.and_then(|open| Ok((self.attr(&inode)?, open)));
        both.inspect_err(|_| self.forget(inode.ino, 1))
    }

    /// Makes a regular file, device node, named pipe or socket. The new inode counts one lookup.
    ///
    /// # Errors
    /// As for [`create`](Self::create); EINVAL for other types.
    pub fn mknod(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u64,
    ) -> Result<Attr> {
        let kind = match mode & libc::S_IFMT {
            0 => libc::S_IFREG,
            k
            @ (libc::S_IFREG | libc::S_IFCHR | libc::S_IFBLK | libc::S_IFIFO | libc::S_IFSOCK) => k,
            _ => return errno(libc::EINVAL),
        };
        let mode = kind | (mode & 0o7777);
        self.make_attr(
            ctx,
            parent,
            name,
            &New {
                mode,
                umask,
                rdev,
                ..New::default()
            },
        )
    }

    /// Makes a directory. The new inode counts one lookup.
    ///
    /// # Errors
    /// As for [`create`](Self::create); EMLINK when the parent cannot have more subdirectories.
    pub fn mkdir(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Result<Attr> {
        // As in mkdir(2): only the parent determines set-group-id.
        let mode = libc::S_IFDIR | (mode & 0o1777);
        self.make_attr(
            ctx,
            parent,
            name,
            &New {
                mode,
                umask,
                ..New::default()
            },
        )
    }

    /// Makes a symbolic link to `target`. The new inode counts one lookup.
    ///
    /// # Errors
    /// As for [`create`](Self::create); ENAMETOOLONG for a target of a block or more, or of 4096
    /// bytes or more; ENOENT for an empty one.
    pub fn symlink(&self, ctx: &Ctx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Attr> {
        match target.len() {
            0 => return errno(libc::ENOENT),
            n if n >= TARGET_MAX || n >= self.vol.geo.block_size as usize => {
                return errno(libc::ENAMETOOLONG);
            }
            _ if target.contains(&0) => return errno(libc::EINVAL),
            _ => {}
        }
        let mode = libc::S_IFLNK | 0o777;
        self.make_attr(
            ctx,
            parent,
            name,
            &New {
                mode,
                target: Some(target),
                ..New::default()
            },
        )
    }

    fn make_attr(&self, ctx: &Ctx, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Attr> {
        let inode = self.make(ctx, parent, name, new)?;
        self.attr(&inode).inspect_err(|_| self.forget(inode.ino, 1))
    }

    /// Makes an inode and its name for a user. The inode counts one lookup.
    pub(crate) fn make(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        new: &New<'_>,
    ) -> Result<Arc<Inode>> {
        check_name(name)?;
        self.throttle()?;
        let dir = self.inodes.iget(parent)?;
        self.names.dir_move_out(&dir)?;
        let dir_body = dir.body.write();
        may_add(&dir_body)?;
        let plan = self.names.dir_plan(&dir, &dir_body, name)?;
        if new.is_dir() {
            self.names.may_add_subdir(&dir_body)?;
        }
        let inherited = self.inherit_acl(&dir, &dir_body, new.mode, new.umask)?;
        let inode = self.make_in(ctx, (&dir, dir_body, plan), name, new, &inherited)?;
        self.settle_names(&dir)
            .inspect_err(|_| self.forget(inode.ino, 1))?;
        Ok(inode)
    }

    /// Makes an inode and its name in a locked directory according to the plan, and releases the
    /// lock. The inode counts one lookup.
    ///
    /// # Errors
    /// ENOSPC, EDQUOT: nothing was changed then. Errors of the device.
    pub(crate) fn make_in(
        &self,
        ctx: &Ctx,
        (dir, mut dir_body, plan): (&Inode, RwLockWriteGuard<'_, InodeBody>, Plan),
        name: &[u8],
        new: &New<'_>,
        inherited: &Inherited,
    ) -> Result<Arc<Inode>> {
        let blocks = inherited.blocks() + u64::from(new.needs_block());
        let room = append_dir_space(plan.new_blocks) + blocks;
        let _room = self.space.reserve(room, self.space.privileged(ctx))?;
        let grows = self.promise_dir(ctx, &mut dir_body, plan.new_blocks)?;
        let promise = self.promise(
            ctx,
            self.owner_in(ctx, &dir_body),
            blocks * u64::from(self.vol.geo.ratio()),
            1 + inherited.values(),
        )?;
        let file = NewFile {
            mode: inherited.mode,
            rdev: new.rdev,
            again: new.again,
            promise: &promise,
        };
        let (h, inode) = self.space.begin_with_inode(
            dir.ino,
            make_credits(&plan, new) + inherited.credits(),
            |h| self.new_inode(h, (dir, &dir_body), ctx, &file),
        )?;
        let mut body = inode.lock_new();
        let made = self
            .fill(&h, &inode, &mut body, dir, new, inherited)
            .and_then(|()| {
                let entry = NewEntry {
                    ino: inode.ino,
                    kind: EntryType::from_mode(new.mode),
                    name,
                };
                self.names.dir_insert(&h, dir, &mut dir_body, plan, entry)
            });
        if let Err(e) = made {
            // Everything was planned and reserved, so the device failed. The inode must not leak.
            self.drop_new(&h, &inode, &mut body);
            drop(body);
            drop(h);
            drop(dir_body);
            self.iput(&inode);
            return Err(e);
        }
        if new.is_dir() {
            self.names.add_subdir(&mut dir_body);
        }
        self.vol
            .whole(|| self.names.dir_changed(&h, dir, &mut dir_body))?;
        self.inodes
            .note_change(&h, &inode, |c, point| c.made(dir.ino, name, point));
        self.names.note_name(&h, dir, name);
        self.inodes.count_lookup(inode.ino);
        drop(body);
        drop(h);
        drop((promise, grows));
        Ok(inode)
    }

    /// Fills a new inode: attributes, `.` and `..`, a link's target.
    fn fill(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        dir: &Inode,
        new: &New<'_>,
        inherited: &Inherited,
    ) -> Result<()> {
        self.set_inherited(h, inode, body, inherited)?;
        if new.is_dir() {
            self.names.dir_init(h, inode, body, dir.ino)?;
        }
        if let Some(target) = new.target {
            self.data.write_symlink_body(h, inode, body, target)?;
        }
        self.inodes.write_inode(h, inode, body)
    }

    /// Gives up a new inode that got no name.
    pub(crate) fn drop_new(&self, h: &Handle<'_>, inode: &Inode, body: &mut InodeBody) {
        if let Err(e) = self.abandon_inode(h, inode, body) {
            self.vol.report(&e);
        }
    }
}

fn make_credits(plan: &Plan, new: &New<'_>) -> Credits {
    let body = match new {
        _ if new.is_dir() => APPEND_DIR_BLOCK,
        New {
            target: Some(_), ..
        } => SYMLINK_BODY,
        _ => 0,
    };
    insert_credits(plan) + NEW_INODE + body + 2 * WRITE_INODE + ORPHAN
}
