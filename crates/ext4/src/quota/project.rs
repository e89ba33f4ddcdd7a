//! Projects (feature `project`): the check that keeps names within their project.

use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::error::{FsError, Result};
use crate::inode::InodeBody;

/// Checks that a directory that passes its project on may get a name of an inode.
///
/// # Errors
/// EXDEV when the inode is of another project.
pub(crate) fn check_project(dir: &InodeBody, child: &InodeBody) -> Result<()> {
    let hands_on = dir.flags().contains(InodeFlags::PROJINHERIT);
    if hands_on && dir.project().unwrap_or(0) != child.project().unwrap_or(0) {
        return Err(FsError::Errno(libc::EXDEV));
    }
    Ok(())
}
