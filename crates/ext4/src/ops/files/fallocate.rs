//! fallocate(2) in all its modes.

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::space::credits;
use crate::types::{Ctx, FallocateMode};
use stetfs_ondisk::ext4::inode::InodeFlags;

impl Fs {
    /// Allocates, punches or zeroes `len` bytes from `offset` on. A change that no transaction can
    /// hold takes several; after a crash between them the finished part stands. For a file opened
    /// with O_DSYNC the change is durable on return.
    ///
    /// # Errors
    /// EINVAL for an empty range; EFBIG; EPERM (immutable, append-only); ENOSPC (before anything is
    /// allocated); EIO.
    pub fn fallocate(
        &self,
        ctx: &Ctx,
        f: &OpenRef,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.change_range(ctx, f, mode, offset, len)?;
        if f.is_unheld() {
            self.inodes.limit_windows(&f.inode);
        }
        match f.flags & libc::O_DSYNC {
            0 => self.settle(&f.inode),
            _ => self.commit_inode(&f.inode),
        }
    }

    fn change_range(
        &self,
        ctx: &Ctx,
        f: &OpenRef,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.throttle()?;
        let inode = &f.inode;
        let mut guard = inode.body.write();
        let body = &mut *guard;
        let only_adds = matches!(mode, FallocateMode::Allocate { .. });
        self.data
            .check_changeable(body, only_adds.then_some(u64::MAX))?;
        inode.check_alone()?;
        let end = match offset.checked_add(len) {
            _ if len == 0 => return Err(FsError::Errno(libc::EINVAL)),
            Some(end) if end <= self.data.max_size_of(body) => end,
            _ => return Err(FsError::Errno(libc::EFBIG)),
        };
        let moved = match only_adds {
            true => Some(self.promise_move_out(ctx, body)?),
            false => None,
        };
        self.data.move_out(inode, body)?;
        drop(moved);
        // A block map cannot have allocated, unwritten blocks.
        let punches = matches!(mode, FallocateMode::PunchHole);
        if !punches && !body.flags().contains(InodeFlags::EXTENTS) {
            return Err(FsError::Errno(libc::EOPNOTSUPP));
        }
        if !punches {
            self.allow_size(end)?;
        }
        let range = offset..end;
        let (promise, _quota) = match mode {
            FallocateMode::PunchHole => (None, None),
            _ => {
                let (clusters, nodes) = self.data.space_for(inode, body, &range)?;
                let blocks = clusters * u64::from(self.vol.geo.ratio());
                let quota = self.promise(ctx, body.owner(), blocks, 0)?;
                quota.give(body);
                let promise = self
                    .space
                    .reserve(clusters + nodes, self.space.privileged(ctx))?;
                (Some(promise), Some(quota))
            }
        };
        let mut h = self.vol.begin(
            inode.ino,
            self.data.map_credits(body) + 4 * credits::WRITE_INODE,
        )?;
        let result = self.data.change_blocks(&mut h, inode, body, mode, &range);
        drop(promise);
        let now = self.vol.now();
        body.set_mtime(now);
        body.set_ctime(now);
        // Also after an error: the tree contains what was done so far.
        match self.vol.opts.canary.lax_fallocate {
            true => self.inodes.store_inode(&h, inode, body)?,
            false => self.data.write_inode_step(&h, inode, body)?,
        }
        result
    }
}
