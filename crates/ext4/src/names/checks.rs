//! What must hold before a name may come or go.

use stetfs_journal::Ino;
use stetfs_ondisk::ext4::dirent;
use stetfs_ondisk::ext4::features::RoCompat;
use stetfs_ondisk::ext4::inode::{InodeFlags, LINK_MAX};

use super::store::Namespace;
use crate::error::{FsError, Result};
use crate::inode::InodeBody;

pub(super) fn errno<T>(e: i32) -> Result<T> {
    Err(FsError::Errno(e))
}

/// A name that may be looked up.
///
/// # Errors
/// ENOENT if empty, ENAMETOOLONG above 255 bytes, EINVAL with a slash or NUL.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => errno(libc::ENOENT),
        n if n > dirent::NAME_MAX => errno(libc::ENAMETOOLONG),
        _ if !dirent::valid_name(name) => errno(libc::EINVAL),
        _ => Ok(()),
    }
}

/// Whether the name is `.` or `..`.
pub(super) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// A body that is a directory's.
pub(super) fn check_dir(body: &InodeBody) -> Result<()> {
    if body.is_dir() {
        Ok(())
    } else {
        errno(libc::ENOTDIR)
    }
}

/// A name may be added to the directory.
///
/// # Errors
/// ENOTDIR, EPERM if it is immutable, ENOENT if it was removed.
pub(super) fn may_add(dir: &InodeBody) -> Result<()> {
    check_dir(dir)?;
    match () {
        () if dir.flags().contains(InodeFlags::IMMUTABLE) => errno(libc::EPERM),
        () if dir.links() == 0 => errno(libc::ENOENT),
        () => Ok(()),
    }
}

/// Names may be taken away from the directory.
pub(super) fn may_remove(dir: &InodeBody) -> Result<()> {
    may_add(dir)?;
    if dir.flags().contains(InodeFlags::APPEND) {
        errno(libc::EPERM)
    } else {
        Ok(())
    }
}

/// The names of this inode may change.
pub(super) fn may_unname(victim: &InodeBody) -> Result<()> {
    if victim
        .flags()
        .intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
    {
        errno(libc::EPERM)
    } else {
        Ok(())
    }
}

/// An entry must not name the directory it is in or another inode that is locked already: locking
/// it would wait forever. Only damage makes such entries.
pub(super) fn check_distinct(dirs: &[Ino], child: Ino) -> Result<()> {
    match dirs.iter().find(|d| **d == child) {
        Some(dir) => Err(FsError::corrupt(
            "directory",
            0,
            format!("an entry of directory {dir} leads back to it"),
        )),
        None => Ok(()),
    }
}

impl Namespace {
    /// # Errors
    /// EMLINK if the directory can have no more subdirectories.
    pub(super) fn may_add_subdir(&self, dir: &InodeBody) -> Result<()> {
        let unlimited =
            self.vol.geo.ro_compat.contains(RoCompat::DIR_NLINK) && self.dir_is_indexed(dir);
        if dir.links() >= LINK_MAX && !unlimited {
            errno(libc::EMLINK)
        } else {
            Ok(())
        }
    }

    /// Counts a new subdirectory. A directory with more than 65000 links shows 1 (`dir_nlink`).
    pub(super) fn add_subdir(&self, dir: &mut InodeBody) {
        let links = dir.links();
        let uncounted = links == 1 || links >= LINK_MAX;
        let now = if uncounted && self.dir_is_indexed(dir) {
            1
        } else {
            links + 1
        };
        dir.set_links(now);
    }

    /// Counts a subdirectory that went.
    pub(super) fn drop_subdir(&self, dir: &mut InodeBody) {
        let links = dir.links();
        if links > 2 {
            dir.set_links(links - 1);
        }
    }
}
