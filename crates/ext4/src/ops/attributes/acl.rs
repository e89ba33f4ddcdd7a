//! POSIX access control lists: attributes that are tied to the mode.

use stetfs_ondisk::ext4::acl::{Acl, AclError};
use stetfs_ondisk::ext4::xattr::index;

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::types::Ctx;
use crate::xattr::layout::{Layout, Stored};

/// The kind of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclKind {
    /// Permissions for the file (`access`).
    Access,
    /// Permissions that new files in the directory inherit (`default`).
    Default,
}

impl AclKind {
    /// The kind of list that an attribute with this name index holds.
    pub(crate) fn of(attr_index: u8) -> Option<AclKind> {
        match attr_index {
            index::POSIX_ACL_ACCESS => Some(AclKind::Access),
            index::POSIX_ACL_DEFAULT => Some(AclKind::Default),
            _ => None,
        }
    }

    pub(crate) fn index(self) -> u8 {
        match self {
            AclKind::Access => index::POSIX_ACL_ACCESS,
            AclKind::Default => index::POSIX_ACL_DEFAULT,
        }
    }
}

/// The change of an inode by a new list.
pub(crate) struct AclChange {
    pub(crate) layout: Layout,
    pub(crate) mode: u32,
}

fn refused(e: AclError) -> FsError {
    FsError::Errno(match e {
        AclError::Invalid(_) => libc::EINVAL,
        AclError::Version(_) => libc::EOPNOTSUPP,
    })
}

impl Fs {
    /// The list stored under `kind`, if there is one.
    fn stored_acl(&self, stored: &Stored, kind: AclKind, inode: &Inode) -> Result<Option<Acl>> {
        let Some(attr) = stored.find(kind.index(), b"")? else {
            return Ok(None);
        };
        Acl::from_disk(&self.value_of(&attr)?)
            .map_err(|e| FsError::corrupt("ACL", 0, format!("inode {}: {e}", inode.ino)))
    }

    /// The list of an inode whose lock is held.
    pub(crate) fn acl_load(
        &self,
        inode: &Inode,
        body: &InodeBody,
        kind: AclKind,
    ) -> Result<Option<Acl>> {
        if body.is_symlink() {
            return Ok(None);
        }
        self.stored_acl(&self.inodes.xattr_load(inode, body)?, kind, inode)
    }

    /// Plans a change of a list, in the format that programs use for the attribute; `None` removes
    /// it. An access list equivalent to a mode becomes the mode.
    ///
    /// # Errors
    /// EPERM for a caller that is neither owner nor root; EINVAL for an invalid list; EACCES for a
    /// default list of a file that is not a directory; EOPNOTSUPP for a symbolic link; ENOSPC.
    pub(crate) fn acl_plan(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        body: &InodeBody,
        kind: AclKind,
        value: Option<&[u8]>,
    ) -> Result<AclChange> {
        if body.is_symlink() {
            return Err(FsError::Errno(libc::EOPNOTSUPP));
        }
        if ctx.uid != 0 && ctx.uid != body.uid() {
            return Err(FsError::Errno(libc::EPERM));
        }
        let acl = match value {
            None | Some([]) => None,
            Some(bytes) => Acl::from_xattr(bytes).map_err(refused)?,
        };
        if kind == AclKind::Default && acl.is_some() && !body.is_dir() {
            return Err(FsError::Errno(libc::EACCES));
        }
        let mut mode = u32::from(body.mode());
        let mut keep = acl.as_ref();
        if let (AclKind::Access, Some(acl)) = (kind, &acl) {
            mode = (mode & !0o777) | acl.mode_bits();
            if ctx.uid != 0 && ctx.gid != body.gid() {
                mode &= !libc::S_ISGID;
            }
            keep = keep.filter(|acl| !acl.is_minimal());
        }
        let bytes = keep.map(Acl::to_disk);
        let stored = self.inodes.xattr_load(inode, body)?;
        let name = (kind.index(), &b""[..]);
        let layout = self.xattr_plan(ctx, inode, body, &stored, name, bytes.as_deref())?;
        Ok(AclChange { layout, mode })
    }

    /// Plans the change of the access list by chmod to `mode`: its entries for the mode's classes
    /// get the new permissions. The caller applies it with `xattr_apply`, together with the new
    /// mode.
    pub(crate) fn acl_chmod_plan(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        body: &InodeBody,
        mode: u32,
    ) -> Result<Layout> {
        if body.is_symlink() {
            return Ok(Layout::default());
        }
        let stored = self.inodes.xattr_load(inode, body)?;
        let Some(mut acl) = self.stored_acl(&stored, AclKind::Access, inode)? else {
            return Ok(Layout::default());
        };
        acl.chmod(mode);
        let name = (AclKind::Access.index(), &b""[..]);
        self.xattr_plan(ctx, inode, body, &stored, name, Some(&acl.to_disk()))
    }
}
