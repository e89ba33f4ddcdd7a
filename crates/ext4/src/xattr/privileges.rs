//! Privileges that a file loses when an unprivileged caller changes it: set-user-id, set-group-id
//! and `security.capability`.

use stetfs_ondisk::ext4::xattr::index;
use stetfs_ondisk::num::low16;

use super::Layout;
use crate::error::Result;
use crate::inode::{Inode, InodeBody, InodeStore};

const SUID: u32 = libc::S_ISUID;
const SGID: u32 = libc::S_ISGID;

/// The attributes that the file loses in a change by an unprivileged caller: its capability and
/// set-id bits.
pub(crate) struct Dropped {
    pub(crate) capability: Layout,
    /// Whether there is anything to lose.
    pub(crate) any: bool,
}

/// The mode without set-user-id, and without set-group-id if the group may execute.
fn without_suidgid(mode: u32) -> u32 {
    let sgid = if mode & libc::S_IXGRP != 0 { SGID } else { 0 };
    mode & !(SUID | sgid)
}

/// Clears set-user-id and set-group-id, as a change by an unprivileged user does. Returns
/// whether they were set; the caller writes the inode.
pub(crate) fn drop_privileges(body: &mut InodeBody) -> bool {
    let mode = u32::from(body.mode());
    if body.is_dir() || without_suidgid(mode) == mode {
        return false;
    }
    body.set_mode(low16(without_suidgid(mode)));
    true
}

impl InodeStore {
    /// Plans the removal of `security.capability`, which a new owner or new content requires.
    pub(crate) fn capability_removal(&self, inode: &Inode, body: &InodeBody) -> Result<Layout> {
        let stored = self.xattr_load(inode, body)?;
        match stored.find(index::SECURITY, b"capability")? {
            Some(_) => stored.with(
                self.vol.geo.block_size as usize,
                index::SECURITY,
                b"capability",
                None,
            ),
            None => Ok(Layout::default()),
        }
    }

    /// The attributes that a write by an unprivileged user removes from the inode: set-user-id and
    /// set-group-id, and `security.capability`.
    pub(crate) fn privileges_to_drop(&self, inode: &Inode, body: &InodeBody) -> Result<Dropped> {
        let capability = self.capability_removal(inode, body)?;
        let any = !capability.is_empty()
            || without_suidgid(u32::from(body.mode())) != u32::from(body.mode());
        Ok(Dropped { capability, any })
    }
}
