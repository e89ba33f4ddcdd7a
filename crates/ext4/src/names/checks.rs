//! Checks before a name is added or removed.

use stetfs_journal::Ino;
use stetfs_ondisk::ext4::dirent;
use stetfs_ondisk::ext4::features::RoCompat;
use stetfs_ondisk::ext4::inode::{InodeFlags, LINK_MAX};

use super::store::Namespace;
use crate::error::{FsError, Result};
use crate::inode::InodeBody;

pub(crate) fn errno<T>(e: i32) -> Result<T> {
    Err(FsError::Errno(e))
}

/// Checks that a name may be looked up.
///
/// # Errors
/// ENOENT if it is empty, ENAMETOOLONG above 255 bytes, EINVAL with a slash or NUL.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => errno(libc::ENOENT),
        n if n > dirent::NAME_MAX => errno(libc::ENAMETOOLONG),
        _ if !dirent::valid_name(name) => errno(libc::EINVAL),
        _ => Ok(()),
    }
}

/// Whether the name is `.` or `..`.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Checks that a body is that of a directory.
pub(crate) fn check_dir(body: &InodeBody) -> Result<()> {
    if body.is_dir() {
        Ok(())
    } else {
        errno(libc::ENOTDIR)
    }
}

/// Checks that a name may be added to the directory.
///
/// # Errors
/// ENOTDIR; EPERM if it is immutable; ENOENT if it was removed.
pub(crate) fn may_add(dir: &InodeBody) -> Result<()> {
    check_dir(dir)?;
    match () {
        () if dir.flags().contains(InodeFlags::IMMUTABLE) => errno(libc::EPERM),
        () if dir.links() == 0 => errno(libc::ENOENT),
        () => Ok(()),
    }
}

/// Checks that names may be removed from the directory.
pub(crate) fn may_remove(dir: &InodeBody) -> Result<()> {
    may_add(dir)?;
    if dir.flags().contains(InodeFlags::APPEND) {
        errno(libc::EPERM)
    } else {
        Ok(())
    }
}

/// Checks that the names of this inode may change.
pub(crate) fn may_unname(victim: &InodeBody) -> Result<()> {
    if victim
        .flags()
        .intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
    {
        errno(libc::EPERM)
    } else {
        Ok(())
    }
}

/// Checks that an entry does not name its own directory or another inode that is already locked:
/// locking it again would wait forever. Only damage makes such entries.
pub(crate) fn check_distinct(dirs: &[Ino], child: Ino) -> Result<()> {
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
    /// Checks that the directory can have one more subdirectory.
    ///
    /// # Errors
    /// EMLINK if the directory can have no more subdirectories.
    pub(crate) fn may_add_subdir(&self, dir: &InodeBody) -> Result<()> {
        let unlimited =
            self.vol.geo.ro_compat.contains(RoCompat::DIR_NLINK) && self.dir_is_indexed(dir);
        if dir.links() >= LINK_MAX && !unlimited {
            errno(libc::EMLINK)
        } else {
            Ok(())
        }
    }

    /// Counts a new subdirectory. A directory with more than 65000 links shows 1 (`dir_nlink`).
    pub(crate) fn add_subdir(&self, dir: &mut InodeBody) {
        let links = dir.links();
        let uncounted = links == 1 || links >= LINK_MAX;
        let now = if uncounted && self.dir_is_indexed(dir) {
            1
        } else {
            links + 1
        };
        dir.set_links(now);
    }

    /// Counts the removal of a subdirectory.
    pub(crate) fn drop_subdir(&self, dir: &mut InodeBody) {
        let links = dir.links();
        if links > 2 {
            dir.set_links(links - 1);
        }
    }
}
