//! Planning the change of an attribute: in the inode, in the block, or with an inode for the value.

use stetfs_ondisk::ext4::xattr::{self, Attr, Value};

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::types::Ctx;
use crate::xattr::layout::{Layout, Stored};

fn is_enospc(e: &FsError) -> bool {
    matches!(e, FsError::Errno(libc::ENOSPC))
}

impl Fs {
    /// Plans to set `name` to `value`, or to remove it. The value goes to the same place as in the
    /// kernel: the inode or the attribute block; and an inode of its own if there is no room or the
    /// value is large, and the volume has such inodes. That inode is written at once. The caller
    /// holds the inode's lock and no handle.
    ///
    /// # Errors
    /// ENOSPC; damage; errors of the device.
    pub(crate) fn xattr_plan(
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

    /// Plans the layout of a new inode that has exactly these attributes (index, value; no names),
    /// with `room` bytes behind its fields. Values that do not fit there go into inodes with the
    /// owner of `dir`.
    ///
    /// # Errors
    /// As for [`xattr_plan`](Self::xattr_plan).
    pub(crate) fn xattr_plan_new(
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
