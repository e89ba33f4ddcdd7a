//! Inode flags that users see and set (`chattr`; FS_IOC_GETFLAGS, FS_IOC_SETFLAGS).

use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::space::credits::WRITE_INODE;
use crate::types::{Ctx, Ino};

/// `EXT4_FL_USER_VISIBLE`.
const VISIBLE: u32 = 0x725b_dfff;
/// `EXT4_FL_USER_MODIFIABLE`.
const MODIFIABLE: u32 = 0x624b_c0ff;

/// Flags that only root may change.
const ROOT_ONLY: InodeFlags = InodeFlags::IMMUTABLE
    .union(InodeFlags::APPEND)
    .union(InodeFlags::JOURNAL_DATA);

/// Flags of files whose content cannot be mapped directly from the device.
const NEVER_MAPPED: InodeFlags = InodeFlags::JOURNAL_DATA
    .union(InodeFlags::INLINE_DATA)
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::VERITY);

/// Flags that control changes of content, or its place on the volume. They must not change while
/// the file is in an atomic group, because the group relies on them until its end.
const OF_CONTENT: InodeFlags = InodeFlags::IMMUTABLE
    .union(InodeFlags::APPEND)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::EXTENTS);

/// Flags that are allowed on this type of file.
fn meaningful(body: &InodeBody) -> InodeFlags {
    match () {
        () if body.is_dir() => InodeFlags::all(),
        () if body.is_regular() => InodeFlags::all() - InodeFlags::DIRECTORY_ONLY,
        () => InodeFlags::OTHER_FILES,
    }
}

/// Whether a file that is to have these flags could not be mapped for DAX. (No access through FUSE
/// uses DAX, nor does the kernel on most devices: the flag is kept for other users of the volume.)
fn excludes(body: &InodeBody, asked: InodeFlags) -> bool {
    let either = body.flags() | asked;
    !body.is_dir() && either.contains(InodeFlags::DAX) && either.intersects(NEVER_MAPPED)
}

impl Fs {
    /// The inode's flags (`EXT4_*_FL`) that are visible to users.
    pub fn get_flags(&self, ino: Ino) -> Result<u32> {
        let inode = self.inodes.iget(ino)?;
        let flags = inode.body.read().flags().bits();
        Ok(flags & VISIBLE)
    }

    /// Sets the flags that users may set; other flags stay unchanged.
    ///
    /// # Errors
    /// EPERM for a caller that is neither owner nor root; for a caller other than root that changes
    /// `immutable`, `append only` or `data journaling`; and for an inode that is immutable and
    /// stays so. EOPNOTSUPP for unknown flags, flags that cannot be changed, and flags not allowed
    /// on this type of file. EBUSY for flags that control changes of content, or its place, while
    /// the file is in an atomic group. A change of EXTENTS migrates the map to the other kind; if
    /// that fails (EOPNOTSUPP, EINVAL, ENOSPC), no flag changes.
    pub fn set_flags(&self, ctx: &Ctx, ino: Ino, flags: u32) -> Result<()> {
        self.throttle()?;
        let inode = self.inodes.iget(ino)?;
        // A change that ends synchronous mode is itself synchronous.
        let was_synchronous = self.is_synchronous(&inode.body.read());
        self.change_flags(ctx, &inode, flags)?;
        match was_synchronous {
            true => self.commit_inode(&inode),
            false => self.settle(&inode),
        }
    }

    fn change_flags(&self, ctx: &Ctx, inode: &Inode, flags: u32) -> Result<()> {
        let mut body = inode.body.write();
        inode.check_alive()?;
        if ctx.uid != 0 && !ctx.owns(body.uid()) {
            return Err(FsError::Errno(libc::EPERM));
        }
        if flags & !VISIBLE != 0 {
            return Err(FsError::Errno(libc::EOPNOTSUPP));
        }
        let old = body.flags();
        let asked = InodeFlags::from_bits_retain(flags);
        let changed = (old ^ asked) & InodeFlags::from_bits_retain(VISIBLE);
        if ctx.uid != 0 && changed.intersects(ROOT_ONLY) {
            return Err(FsError::Errno(libc::EPERM));
        }
        let both = old & asked;
        if both.contains(InodeFlags::IMMUTABLE) && !changed.is_empty() {
            return Err(FsError::Errno(libc::EPERM));
        }
        let new_bits = asked & changed;
        if changed.contains(InodeFlags::CASEFOLD)
            || !meaningful(&body).contains(new_bits)
            || excludes(&body, asked)
        {
            return Err(FsError::Errno(libc::EOPNOTSUPP));
        }
        let modifiable = InodeFlags::from_bits_retain(MODIFIABLE);
        let new = (old - modifiable) | (asked & modifiable);
        if new == old {
            return Ok(());
        }
        if changed.intersects(OF_CONTENT) && !self.vol.opts.canary.guard_grouped {
            inode.check_alone()?;
        }
        let migration = match changed.contains(InodeFlags::EXTENTS) {
            true => Some(self.plan_migration(inode, &body)?),
            false => None,
        };
        if changed.contains(InodeFlags::JOURNAL_DATA) && body.is_regular() {
            self.data.move_out(inode, &mut body)?;
            self.data
                .switch_data_journaling(inode, new.contains(InodeFlags::JOURNAL_DATA))?;
        }
        match migration {
            Some(migration) => self.migrate(ctx, inode, &mut body, new, &migration),
            None => {
                let h = self.vol.begin(inode.ino, WRITE_INODE)?;
                body.set_flags(new);
                body.touch(self.vol.now());
                self.vol
                    .whole(|| self.inodes.write_inode(&h, inode, &mut body))
            }
        }
    }
}
