//! The operations on extended attributes.

use stetfs_ondisk::ext4::acl::Acl;
use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::xattr::{self, VALUE_MAX, Value, index};

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::ops::attributes::acl::AclKind;
use crate::space::credits::WRITE_INODE;
use crate::types::{Ctx, Ino, XattrSet};
use crate::xattr::layout::Layout;
use stetfs_ondisk::num::low16;

/// Longest name with its prefix, bytes (`XATTR_NAME_MAX`).
const FULL_NAME_MAX: usize = 255;

fn errno<T>(e: i32) -> Result<T> {
    Err(FsError::Errno(e))
}

/// Index and stored name.
///
/// # Errors
/// ERANGE for an empty or too long name, EOPNOTSUPP for a prefix that ext4 does not have.
fn split(name: &[u8]) -> Result<(u8, &[u8])> {
    if name.is_empty() || name.len() > FULL_NAME_MAX {
        return errno(libc::ERANGE);
    }
    match xattr::split_name(name) {
        Some((index::RICHACL, _)) | None => errno(libc::EOPNOTSUPP),
        Some(split) => Ok(split),
    }
}

/// Whether this type of file can have attributes with this index: `user.` attributes are for
/// regular files and directories only.
fn takes(body: &InodeBody, attr_index: u8) -> bool {
    attr_index != index::USER || body.is_regular() || body.is_dir()
}

fn may_change(ctx: &Ctx, body: &InodeBody, attr_index: u8) -> Result<()> {
    let fixed = body
        .flags()
        .intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
    let foreign = attr_index == index::TRUSTED && ctx.uid != 0;
    if fixed || foreign || !takes(body, attr_index) {
        errno(libc::EPERM)
    } else {
        Ok(())
    }
}

impl Fs {
    /// The value of an attribute. ACLs have the form of `linux/posix_acl_xattr.h`.
    ///
    /// # Errors
    /// ENODATA, ERANGE (name), EOPNOTSUPP (prefix).
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let (index, short) = split(name)?;
        let inode = self.inodes.iget(ino)?;
        let body = inode.body.read();
        if let Some(kind) = AclKind::of(index) {
            if body.is_symlink() {
                return errno(libc::EOPNOTSUPP);
            }
            return match self.acl_load(&inode, &body, kind)? {
                Some(acl) => Ok(Acl::to_xattr(&acl)),
                None => errno(libc::ENODATA),
            };
        }
        if !takes(&body, index) {
            return errno(libc::ENODATA);
        }
        match self.inodes.xattr_load(&inode, &body)?.find(index, short)? {
            Some(attr) => self.value_of(&attr),
            None => errno(libc::ENODATA),
        }
    }

    /// The names of all attributes, each followed by a NUL.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inodes.iget(ino)?;
        let body = inode.body.read();
        let mut list = Vec::new();
        for attr in self.inodes.xattr_load(&inode, &body)?.all()? {
            if let Some(name) = xattr::full_name(attr.index, attr.name) {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// EEXIST and ENODATA according to `how`; ENOSPC when neither the inode nor its block has room
    /// for it; E2BIG above 64 KiB; ERANGE (name); EPERM (immutable file; `user.` on a file that
    /// cannot have it); errors of an ACL; EROFS.
    pub fn setxattr(
        &self,
        ctx: &Ctx,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: XattrSet,
    ) -> Result<()> {
        let (index, short) = split(name)?;
        if value.len() > VALUE_MAX {
            return errno(libc::E2BIG);
        }
        self.throttle()?;
        let inode = self.inodes.iget(ino)?;
        let result = self.set_attribute(ctx, &inode, (index, short), value, how);
        self.reap_values();
        result?;
        self.settle(&inode)
    }

    fn set_attribute(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        (index, short): (u8, &[u8]),
        value: &[u8],
        how: XattrSet,
    ) -> Result<()> {
        let mut body = inode.body.write();
        may_change(ctx, &body, index)?;
        if let Some(kind) = AclKind::of(index) {
            return self.acl_set(ctx, inode, &mut body, kind, Some(value));
        }
        let stored = self.inodes.xattr_load(inode, &body)?;
        let old = stored.find(index, short)?;
        match (how, old) {
            (XattrSet::Create, Some(_)) => return errno(libc::EEXIST),
            (XattrSet::Replace, None) => return errno(libc::ENODATA),
            (_, Some(old)) if old.value == Value::Bytes(value) => return Ok(()),
            _ => {}
        }
        let name = (index, short);
        let layout = self.xattr_plan(ctx, inode, &body, &stored, name, Some(value))?;
        self.xattr_commit(ctx, inode, &mut body, &layout, None)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// ENODATA (but removing a missing ACL is no error), ERANGE, EPERM, EROFS.
    pub fn removexattr(&self, ctx: &Ctx, ino: Ino, name: &[u8]) -> Result<()> {
        let name = split(name)?;
        self.throttle()?;
        let inode = self.inodes.iget(ino)?;
        let result = self.remove_attribute(ctx, &inode, name);
        self.reap_values();
        result?;
        self.settle(&inode)
    }

    /// Removes an attribute. The caller then calls [`reap_values`](Self::reap_values) to delete its
    /// value.
    pub(crate) fn remove_attribute(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        (index, short): (u8, &[u8]),
    ) -> Result<()> {
        let mut body = inode.body.write();
        may_change(ctx, &body, index)?;
        if let Some(kind) = AclKind::of(index) {
            return self.acl_set(ctx, inode, &mut body, kind, None);
        }
        let stored = self.inodes.xattr_load(inode, &body)?;
        if stored.find(index, short)?.is_none() {
            return errno(libc::ENODATA);
        }
        let layout = self.xattr_plan(ctx, inode, &body, &stored, (index, short), None)?;
        self.xattr_commit(ctx, inode, &mut body, &layout, None)
    }

    fn acl_set(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        body: &mut InodeBody,
        kind: AclKind,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let change = self.acl_plan(ctx, inode, body, kind, value)?;
        self.xattr_commit(ctx, inode, body, &change.layout, Some(change.mode))
    }

    /// Applies a planned change in a handle of its own.
    fn xattr_commit(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        body: &mut InodeBody,
        layout: &Layout,
        mode: Option<u32>,
    ) -> Result<()> {
        inode.check_alive()?;
        let _room = self
            .space
            .reserve(layout.blocks(), self.space.privileged(ctx))?;
        let _quota = self.promise_attributes(ctx, body, layout)?;
        let h = self.vol.begin(inode.ino, layout.credits() + WRITE_INODE)?;
        self.vol.whole(|| {
            self.inodes.xattr_apply(&h, inode, body, layout)?;
            if let Some(mode) = mode {
                body.set_mode(low16(mode));
            }
            body.touch(self.vol.now());
            self.inodes.write_inode(&h, inode, body)
        })
    }
}
