//! The initial content of an inode.

use super::{GOOD_OLD_INODE_SIZE, InodeFlags, InodeView};
use crate::ext4::time::Timestamp;
use crate::num::count16;
use core::mem::offset_of;

/// The initial fields of a new inode. Size, blocks, attributes and `i_block` are empty.
#[derive(Debug, Clone, Copy)]
pub struct NewInode {
    /// File type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub links: u16,
    /// Flags. The extent root that `EXTENTS` requires is written separately.
    pub flags: InodeFlags,
    /// Generation; must differ from that of the number's previous use.
    pub generation: u32,
    /// All four times.
    pub now: Timestamp,
    /// Project number; 0 is the default project.
    pub project: u32,
    /// Wanted `i_extra_isize` (`s_want_extra_isize`, usually
    /// [`FULL_EXTRA_ISIZE`](super::FULL_EXTRA_ISIZE)), cut to what fits in the inode.
    pub extra_isize: u16,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> InodeView<B> {
    /// Overwrites all bytes, attributes included, with a new inode. The caller updates the
    /// checksum.
    pub fn init(&mut self, new: &NewInode) {
        let room = self.bytes().len().saturating_sub(GOOD_OLD_INODE_SIZE);
        let extra = usize::from(new.extra_isize).min(room) & !3;
        self.bytes_mut().fill(0);
        if extra > 0 {
            self.put(
                offset_of!(super::RawInode, extra_isize),
                &count16(extra).to_le_bytes(),
            );
        }
        self.set_mode(new.mode);
        self.set_uid(new.uid);
        self.set_gid(new.gid);
        self.set_links(new.links);
        self.set_flags(new.flags);
        self.set_generation(new.generation);
        self.set_project(new.project);
        self.set_atime(new.now);
        self.set_ctime(new.now);
        self.set_mtime(new.now);
        self.set_crtime(new.now);
    }
}
