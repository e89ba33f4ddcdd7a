//! Planning the change of an attribute: in the inode, in the block, or with an inode for the value.

use stetfs_ondisk::ext4::xattr::{self, Attr, Value};

use super::layout::{Layout, Stored};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::types::Ctx;

fn is_enospc(e: &FsError) -> bool {
    matches!(e, FsError::Errno(libc::ENOSPC))
}

impl Fs {
    /// Plans to set `name` to `value`, or to remove it. The value goes where the kernel would put
    /// it: into the inode or the attribute block, and where there is no room or it is large,
    /// into an inode of its own, if the volume has such. That is written at once. The caller
    /// holds the inode's lock and no handle.
    ///
    /// # Errors
    /// ENOSPC; damage; the device's.
    pub(super) fn xattr_plan(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        body: &InodeBody,
        stored: &Stored,
        (index, name): (u8, &[u8]),
        value: Option<&[u8]>,
    ) -> Result<Layout> {
        let size = self.vol.geo.block_size as usize;
        let Some(bytes) = value.filter(|v| self.inodes.has_values() && !v.is_empty()) else {
            return stored.with(size, index, name, value);
        };
        if bytes.len() <= xattr::large_value(size) {
            let reserve = xattr::block_reserve(size);
            match stored.with_value(size, index, name, Some(Value::Bytes(bytes)), reserve) {
                Err(e) if is_enospc(&e) => {}
                other => return other,
            }
        }
        let new = self.new_value(inode, body, bytes, self.space.privileged(ctx))?;
        let mut layout = stored.with_value(size, index, name, Some(new.entry(name)), 0)?;
        layout.added.push(new);
        Ok(layout)
    }

    /// Plans the places of a new inode that has exactly these attributes (index, value; no names),
    /// with `room` bytes behind its fields. Values that find no room there go into inodes that
    /// belong to whom `dir` belongs to.
    ///
    /// # Errors
    /// As [`xattr_plan`](Self::xattr_plan).
    pub(super) fn xattr_plan_new(
        &self,
        dir: &Inode,
        dir_body: &InodeBody,
        room: usize,
        lists: &[(u8, &[u8])],
    ) -> Result<Layout> {
        let size = self.vol.geo.block_size as usize;
        let attr = |index, value| Attr {
            index,
            name: b"",
            value,
        };
        let mut attrs: Vec<Attr<'_>> = lists
            .iter()
            .map(|(index, list)| attr(*index, Value::Bytes(list)))
            .collect();
        match Layout::of(room, size, &attrs) {
            Err(e) if is_enospc(&e) && self.inodes.has_values() => {}
            other => return other,
        }
        let mut added = Vec::new();
        for (at, (index, list)) in attrs.iter_mut().zip(lists) {
            let new = self.new_value(dir, dir_body, list, true)?;
            *at = attr(*index, new.entry(b""));
            added.push(new);
        }
        let mut layout = Layout::of(room, size, &attrs)?;
        layout.added = added;
        Ok(layout)
    }
}
