//! The model of the swarm's further operations: flags, owners, access control lists, further kinds
//! of names, and copies.

use std::sync::Arc;

use stetfs::low::{DataMode, FileType};
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::{Kind, Node, State};
use crate::workload::op::{Flag, KEPT_FLAGS};

/// The extended attribute with the access ACL.
pub const ACL: &str = "system.posix_acl_access";

/// The flags that a new file inherits from its directory (`EXT4_FL_INHERITED`), of those that are
/// kept.
pub(super) fn inherited(dir: u32, kind: &Kind) -> u32 {
    let mode = match kind {
        Kind::File(_) => libc::S_IFREG,
        Kind::Dir(_) => libc::S_IFDIR,
        Kind::Symlink(_) => libc::S_IFLNK,
        Kind::Special(_) => libc::S_IFIFO,
    };
    let flags = InodeFlags::from_bits_retain(dir).inherited_by(mode as u16);
    flags.bits() & KEPT_FLAGS
}

/// An access ACL that gives a user permissions beside the mode, and the mode that stat(2) then
/// shows.
pub fn access_list(mode: u32, user: u32, perms: u16) -> (Vec<u8>, u32) {
    let class = |shift: u32| (mode >> shift & 7) as u16;
    let mask = perms | class(3);
    let nobody = u32::MAX;
    let entries = [
        (0x01, class(6), nobody),
        (0x02, perms, user),
        (0x04, class(3), nobody),
        (0x10, mask, nobody),
        (0x20, class(0), nobody),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perms, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(perms.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    (bytes, mode & !0o070 | u32::from(mask) << 3)
}

impl Node {
    /// Whether one of its flags forbids changes.
    pub fn is_guarded(&self) -> bool {
        self.flags & (Flag::Immutable.bit() | Flag::Append.bit()) != 0
    }
}

impl State {
    /// Whether a flag of any file or directory forbids changes.
    pub fn has_guarded(&self) -> bool {
        self.nodes.values().any(|node| node.is_guarded())
    }

    /// Whether an atomic group is open.
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// A file of the open group, as the group sees it.
    pub fn grouped(&self, path: &str) -> Option<&Arc<Node>> {
        self.group.as_ref()?.get(&self.find(path)?)
    }

    /// Sets the data mode from here on.
    pub fn set_data(&mut self, data: DataMode) {
        self.journaled = data.keeps_whole();
    }

    pub(super) fn set_flag(&mut self, path: &str, flag: Flag, on: bool, at: usize) {
        let bit = flag.bit() & KEPT_FLAGS;
        let has = self.node(path).map_or(0, |node| node.flags) & bit != 0;
        if bit != 0 && has != on {
            self.change(path, at).flags ^= bit;
        }
    }

    pub(super) fn set_acl(&mut self, path: &str, user: u32, perms: u16, at: usize) {
        let Some(node) = self.node(path) else { return };
        let (list, mode) = access_list(node.mode, user, perms);
        if node.xattrs.get(ACL) != Some(&list) {
            let node = self.change(path, at);
            node.mode = mode;
            node.xattrs.insert(ACL.into(), list);
        }
    }

    pub(super) fn whiteout(&mut self, from: &str, to: &str, at: usize) {
        self.rename(from, to, at);
        self.add(from, Kind::Special(FileType::CharDevice), 0, at);
    }

    pub(super) fn copy(
        &mut self,
        from: &str,
        offset: u64,
        (to, to_at): (&str, u64),
        len: usize,
        at: usize,
    ) {
        let content = self.node(from).and_then(Node::content);
        let start = offset as usize;
        let bytes = content.and_then(|c| c.data.get(start..start + len));
        let bytes = bytes.map(<[u8]>::to_vec).unwrap_or_default();
        self.write(to, to_at, &bytes, at);
    }

    /// Closes all files that are held open.
    pub(super) fn remount(&mut self) {
        self.group = None;
        let held: Vec<u32> = self.held.keys().copied().collect();
        held.into_iter().for_each(|held| self.close(held));
    }
}
