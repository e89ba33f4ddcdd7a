//! Attributes: stat, chmod, chown, truncate, utimens, open.

use std::sync::atomic::Ordering;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::features::{Incompat, RoCompat};
use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::ops::inodes::OpenRef;
use crate::space::credits;
use crate::types::{Attr, Ctx, FileType, Ino, SetAttr, TimeSet};
use crate::xattr::Layout;
use crate::xattr::privileges::drop_privileges;
use stetfs_ondisk::num::low16;

const PERMISSIONS: u32 = 0o7777;

fn errno<T>(e: i32) -> Result<T> {
    Err(FsError::Errno(e))
}

impl Fs {
    /// The attributes of an inode, as stat(2) shows them.
    ///
    /// # Errors
    /// ESTALE when there is no such inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        let inode = self.inodes.iget(ino)?;
        self.attr(&inode)
    }

    /// [`getattr`](Self::getattr) for an inode. The caller does not hold its lock.
    pub(crate) fn attr(&self, inode: &Inode) -> Result<Attr> {
        let body = inode.body.read_nested();
        Ok(self.attr_of(inode, &body))
    }

    /// The attributes in a body that is locked.
    pub(crate) fn attr_of(&self, inode: &Inode, body: &InodeBody) -> Attr {
        // As in the kernel: backup programs take a file without blocks for a single hole.
        let inline = if body.is_inline() && body.is_regular() {
            body.size().div_ceil(512)
        } else {
            0
        };
        Attr {
            ino: inode.ino,
            generation: body.generation(),
            kind: inode.kind,
            mode: u32::from(body.mode()),
            uid: body.uid(),
            gid: body.gid(),
            nlink: u32::from(body.links()),
            size: body.size(),
            blocks: body.blocks() + inline,
            rdev: body.rdev(),
            blksize: self.vol.geo.block_size,
            atime: body.atime(),
            mtime: body.mtime(),
            ctime: body.ctime(),
            crtime: body.birth(),
            flags: body.flags().bits(),
            guarded: self.is_guarded(inode, body),
        }
    }

    /// Whether opening the file may be refused by [`may_open`](Self::may_open).
    fn is_guarded(&self, inode: &Inode, body: &InodeBody) -> bool {
        let guards = InodeFlags::IMMUTABLE | InodeFlags::APPEND | InodeFlags::ENCRYPT;
        inode.kind == FileType::Regular
            && (body.flags().intersects(guards)
                || (self.vol.writable().is_err() && !self.vol.opts.read_only))
    }

    /// Largest size of a new file, bytes.
    pub fn max_file_size(&self) -> u64 {
        self.data
            .max_size(self.vol.geo.incompat.contains(Incompat::EXTENTS))
    }

    /// Ensures that the volume may have a file of `size` bytes: sets the feature `large_file` if
    /// needed. No handle may be open.
    ///
    /// # Errors
    /// EFBIG on a volume of revision 0, which has no features.
    pub(crate) fn allow_size(&self, size: u64) -> Result<()> {
        if size <= i32::MAX as u64 || self.vol.sb.large_files.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.vol.geo.revision_0 {
            return errno(libc::EFBIG);
        }
        let h = self.vol.journal.begin(1)?;
        self.vol.change_super(&h, |sb| {
            sb.set_ro_compat(sb.ro_compat() | RoCompat::LARGE_FILE);
        })?;
        self.vol.sb.large_files.store(true, Ordering::Release);
        Ok(())
    }

    /// Changes attributes; a change of the size truncates or extends.
    ///
    /// The kernel checks permissions (`default_permissions`). This function checks immutable and
    /// append-only inodes, and clears the set-user-id bits on a new owner or, for users other than
    /// root, on a new size.
    ///
    /// # Errors
    /// EPERM; EISDIR and EINVAL (a size for a file that is not regular); EFBIG, EROFS, ENOSPC.
    pub fn setattr(&self, ctx: &Ctx, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.throttle()?;
        let inode = self.inodes.iget(ino)?;
        let result = self.set_attr(ctx, &inode, set);
        self.reap_values();
        let attr = result?;
        self.settle(&inode).map(|()| attr)
    }

    fn set_attr(&self, ctx: &Ctx, inode: &Inode, set: &SetAttr) -> Result<Attr> {
        let mut body = inode.body.write();
        let body = &mut *body;
        inode.check_alive()?;
        self.may_set(body, set)?;
        if let Some(size) = set.size {
            inode.check_alone()?;
            self.check_size(inode, body, size)?;
            self.allow_size(size)?;
            self.data.move_out(inode, body)?;
            self.resize(ctx, inode, body, size)?;
        }
        self.set_simple(ctx, inode, body, set)?;
        Ok(self.attr_of(inode, body))
    }

    fn may_set(&self, body: &InodeBody, set: &SetAttr) -> Result<()> {
        let flags = body.flags();
        if flags.contains(InodeFlags::IMMUTABLE) {
            return errno(libc::EPERM);
        }
        let now_or_none = |t: &Option<TimeSet>| !matches!(t, Some(TimeSet::At(_)));
        let harmless = set.mode.is_none()
            && set.uid.is_none()
            && set.gid.is_none()
            && set.size.is_none()
            && now_or_none(&set.atime)
            && now_or_none(&set.mtime);
        if flags.contains(InodeFlags::APPEND) && !harmless {
            return errno(libc::EPERM);
        }
        Ok(())
    }

    fn check_size(&self, inode: &Inode, body: &InodeBody, size: u64) -> Result<()> {
        match inode.kind {
            FileType::Regular if size > self.data.max_size_of(body) => errno(libc::EFBIG),
            FileType::Regular => Ok(()),
            FileType::Directory => errno(libc::EISDIR),
            _ => errno(libc::EINVAL),
        }
    }

    /// Changes the size of a file. After a crash, the file is cut off completely or unchanged: it
    /// is an orphan until its blocks are freed.
    fn resize(&self, ctx: &Ctx, inode: &Inode, body: &mut InodeBody, size: u64) -> Result<()> {
        let old = body.size();
        let now = self.vol.now();
        let lost = self.inodes.capability_removal(inode, body)?;
        let mut h = self
            .vol
            .begin(inode.ino, credits::ORPHAN + lost.credits())?;
        self.inodes.xattr_apply(&h, inode, body, &lost)?;
        if ctx.uid != 0 {
            drop_privileges(body);
        }
        body.set_mtime(now);
        body.set_ctime(now);
        if size > old {
            return self.data.truncate_body(&mut h, inode, body, size);
        }
        self.inodes.orphan_add(&h, inode, body)?;
        self.inodes.write_inode(&h, inode, body)?;
        let cut = self.data.truncate_body(&mut h, inode, body, size);
        if cut.is_err() {
            // Blocks may be left behind the new end. The old size covers them again; what was freed
            // is now holes.
            body.set_size(old);
        }
        cut.and(self.end_resize(&mut h, inode, body))
    }

    /// Removes a file that was truncated from the orphans, unless it has no name.
    fn end_resize(&self, h: &mut Handle<'_>, inode: &Inode, body: &mut InodeBody) -> Result<()> {
        h.restart(credits::ORPHAN)?;
        if body.links() > 0 || self.vol.opts.canary.truncated_orphan {
            self.inodes.orphan_del(h, inode, body)?;
        }
        self.inodes.write_inode_data(h, inode, body)
    }

    /// Changes everything except the size.
    fn set_simple(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        body: &mut InodeBody,
        set: &SetAttr,
    ) -> Result<()> {
        let now = self.vol.now();
        let ctime = self.vol.repeated_mtime(set.ctime.unwrap_or(now));
        let owner = set.uid.is_some() || set.gid.is_some();
        let strips = (owner || set.kill_suidgid) && inode.kind != FileType::Directory;
        let times = set.atime.is_some() || set.mtime.is_some() || set.ctime.is_some();
        if owner || strips || times {
            let lost = if strips {
                self.inodes.capability_removal(inode, body)?
            } else {
                Layout::default()
            };
            let [uid, gid, project] = body.owner();
            let new = [set.uid.unwrap_or(uid), set.gid.unwrap_or(gid), project];
            let _quota = match new == body.owner() {
                true => None,
                false => Some(self.promise_owner(ctx, inode, body, new)?),
            };
            let h = self
                .vol
                .begin(inode.ino, credits::WRITE_INODE + lost.credits())?;
            self.vol
                .whole(|| self.inodes.xattr_apply(&h, inode, body, &lost))?;
            if let Some(uid) = set.uid {
                body.set_uid(uid);
            }
            if let Some(gid) = set.gid {
                body.set_gid(gid);
            }
            if strips {
                drop_privileges(body);
            }
            let extra = self.vol.geo.inode_size > 128;
            let time = |t: TimeSet| match t {
                TimeSet::Now => now,
                TimeSet::At(t) => t.storable(extra),
            };
            if let Some(t) = set.atime {
                body.set_atime(self.vol.repeated_atime(time(t)));
            }
            if let Some(t) = set.mtime {
                body.set_mtime(self.vol.repeated_mtime(time(t)));
            }
            body.set_ctime(ctime);
            self.vol
                .whole(|| self.inodes.write_inode(&h, inode, body))?;
        }
        if let Some(mode) = set.mode {
            let mode = u32::from(body.mode()) & !PERMISSIONS | mode & PERMISSIONS;
            let list = self.acl_chmod_plan(ctx, inode, body, mode)?;
            let _room = self
                .space
                .reserve(list.blocks(), self.space.privileged(ctx))?;
            let _quota = self.promise_attributes(ctx, body, &list)?;
            let h = self
                .vol
                .begin(inode.ino, credits::WRITE_INODE + list.credits())?;
            self.vol.whole(|| {
                self.inodes.xattr_apply(&h, inode, body, &list)?;
                body.set_mode(low16(mode));
                body.set_ctime(ctime);
                self.inodes.write_inode(&h, inode, body)
            })?;
        }
        Ok(())
    }

    /// Opens an inode with flags of open(2); `O_TRUNC` truncates.
    ///
    /// # Errors
    /// EISDIR (a directory for writing), EPERM (immutable, append-only without `O_APPEND`), EROFS,
    /// ELOOP for a symbolic link.
    pub fn open_inode(&self, ctx: &Ctx, ino: Ino, flags: i32) -> Result<OpenRef> {
        let inode = self.inodes.iget(ino)?;
        self.check_open(&inode, flags)?;
        let open = self.open_ref(inode, flags)?;
        if flags & libc::O_TRUNC != 0 && open.inode.kind == FileType::Regular {
            self.setattr(
                ctx,
                ino,
                &SetAttr {
                    size: Some(0),
                    ..SetAttr::default()
                },
            )?;
        }
        Ok(open)
    }

    /// Continues a file that was open with `flags` when the volume was closed. Changes of the
    /// inode's flags since then do not matter for an open file.
    ///
    /// # Errors
    /// Failure to read the inode.
    pub fn go_on_with(&self, ino: Ino, flags: i32) -> Result<OpenRef> {
        self.open_ref(self.inodes.iget(ino)?, flags)
    }

    /// Checks whether an inode may be opened with flags of open(2), apart from its mode.
    ///
    /// # Errors
    /// As for [`open_inode`](Self::open_inode).
    pub fn may_open(&self, ino: Ino, flags: i32) -> Result<()> {
        self.check_open(&*self.inodes.iget(ino)?, flags)
    }

    fn check_open(&self, inode: &Inode, flags: i32) -> Result<()> {
        if inode.kind == FileType::Regular {
            self.vol.usable()?;
        }
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        match inode.kind {
            FileType::Symlink => return errno(libc::ELOOP),
            FileType::Directory if writes || flags & libc::O_TRUNC != 0 => {
                return errno(libc::EISDIR);
            }
            _ => {}
        }
        if inode.kind == FileType::Regular {
            inode.body.read().check_key()?;
        }
        let truncates = flags & libc::O_TRUNC != 0 && inode.kind == FileType::Regular;
        if writes || truncates {
            // Writes to device nodes, pipes and sockets do not reach the volume.
            if matches!(inode.kind, FileType::Regular | FileType::Directory) {
                self.vol.writable()?;
            }
            let held = inode.body.read().flags();
            let appends = flags & libc::O_APPEND != 0 && !truncates;
            if held.contains(InodeFlags::IMMUTABLE)
                || (held.contains(InodeFlags::APPEND) && !appends)
            {
                return errno(libc::EPERM);
            }
        }
        Ok(())
    }
}
