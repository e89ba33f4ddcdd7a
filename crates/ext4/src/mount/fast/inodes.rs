//! Replay of attributes and blocks of inodes in fast commits.

use stetfs_journal::Change;
use stetfs_ondisk::ext4::extent::LOGICAL_END;
use stetfs_ondisk::ext4::inode::{GOOD_OLD_INODE_SIZE, InodeFlags, InodeView};
use stetfs_ondisk::stet::record::Run;

use super::{Replay, wrong};
use crate::error::Result;
use crate::inode::InodeBody;
use crate::types::Ino;

/// Flags that say how an inode holds its content. The volume determines these; replay takes the
/// other flags from the log.
const CONTENT: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::INLINE_DATA)
    .union(InodeFlags::INDEX);
/// Credits to change an inode and its map.
const CREDITS: u32 = 8;

impl Replay<'_> {
    /// Gives an inode these attributes. A `fresh` inode was just made and maps nothing.
    pub(super) fn set_attributes(&self, ino: Ino, bytes: &[u8], fresh: bool) -> Result<()> {
        let inode = self.inode(ino)?;
        let mut body = inode.body.write();
        let body = &mut *body;
        let mut h = self
            .fs
            .vol
            .journal
            .begin(self.fs.data.map_credits(body) + CREDITS)?;
        let new = self.attributes(ino, body, bytes, fresh)?;
        if new.is_inline() && !body.is_inline() {
            self.fs.data.remove_all(&mut h, &inode, body)?;
            let blocks = body.blocks();
            *body = new;
            body.set_blocks(blocks)?;
        } else {
            *body = new;
        }
        self.fs.inodes.write_inode_data(&h, &inode, body)
    }

    /// The new state of an inode with these attributes: values that the volume knows better stay.
    fn attributes(
        &self,
        ino: Ino,
        old: &InodeBody,
        bytes: &[u8],
        fresh: bool,
    ) -> Result<InodeBody> {
        let geo = &self.fs.vol.geo;
        let mut whole = vec![0; usize::from(geo.inode_size)];
        if let Some(part) = whole.get_mut(..bytes.len()) {
            part.copy_from_slice(bytes);
        }
        let given = InodeBody::new(whole.into(), geo)?;
        if given.kind() != old.kind() {
            return Err(wrong(format!(
                "inode {ino} has mode {:o}, not {:o}",
                given.mode(),
                old.mode()
            )));
        }
        let mut all = old.bytes().to_vec();
        // Attributes of the inode that the fast commit does not contain are behind the extra
        // fields. So the extra fields keep their size.
        let extra = usize::from(old.extra_isize().min(given.extra_isize()));
        let behind = if fresh || given.is_inline() {
            GOOD_OLD_INODE_SIZE..bytes.len()
        } else {
            GOOD_OLD_INODE_SIZE + 2..GOOD_OLD_INODE_SIZE + extra.max(2)
        };
        for part in [0..GOOD_OLD_INODE_SIZE, behind] {
            if let (Some(to), Some(from)) = (all.get_mut(part.clone()), bytes.get(part)) {
                to.copy_from_slice(from);
            }
        }
        let mut new = InodeBody::new(all.into(), geo)?;
        if given.is_dir() {
            // The content of the directory was not logged, but its entries were.
            new.set_size(old.size());
            new.set_links(old.links());
        } else if fresh || given.links() == 0 {
            new.set_links(old.links());
        }
        new.set_file_acl(old.file_acl());
        new.set_blocks(old.blocks())?;
        new.set_dtime(0);
        let mut flags = given.flags() - CONTENT;
        if given.is_inline() && !given.is_dir() {
            flags |= InodeFlags::INLINE_DATA;
        } else if given.is_mapped() && !(fresh && self.is_block_mapped(&given)) {
            flags |= old.flags() & CONTENT;
            new.i_block_mut().copy_from_slice(old.i_block());
        } else if given.is_mapped() {
            flags |= old.flags() & InodeFlags::INDEX;
            new.i_block_mut().fill(0);
        }
        new.set_flags(flags);
        new.orphan = old.orphan;
        new.tally = old.tally.clone();
        new.check(ino, &geo.layout)?;
        Ok(new)
    }

    /// Whether it has a block map although new inodes of the volume have extents.
    fn is_block_mapped(&self, given: &InodeBody) -> bool {
        !given.is_dir() && !given.flags().contains(InodeFlags::EXTENTS)
    }

    /// Changes a range of an inode's map to the state in the change.
    pub(super) fn set_range(&self, i: usize, ino: Ino, change: &Change) -> Result<()> {
        let inode = self.inode(ino)?;
        let mut body = inode.body.write();
        let body = &mut *body;
        if body.is_inline() && self.moves_out(i, ino)? {
            match inode.is_dir() {
                true => self.fs.names.move_out(&inode, body)?,
                false => self.fs.data.move_out(&inode, body)?,
            }
        }
        if body.is_inline() || !body.is_mapped() {
            return Err(wrong(format!(
                "block changes of inode {ino}, which cannot have blocks"
            )));
        }
        let mut h = self
            .fs
            .vol
            .journal
            .begin(self.fs.data.map_credits(body) + CREDITS)?;
        match change {
            Change::AddRange { extent, .. } => {
                if extent.logical_end() > LOGICAL_END {
                    return Err(wrong(format!(
                        "{extent:?} of inode {ino} ends beyond the largest file"
                    )));
                }
                let run = Run {
                    lblk: extent.block,
                    len: extent.len,
                    start: extent.start,
                    unwritten: extent.unwritten,
                };
                self.fs.map_logged(&mut h, &inode, body, run)?;
            }
            Change::DelRange { block, len, .. } => {
                let start = u64::from(*block);
                let range = start..start + u64::from(*len);
                self.fs.data.unmap(&mut h, &inode, body, range)?;
            }
            _ => {}
        }
        self.fs.inodes.write_inode_data(&h, &inode, body)
    }

    /// Whether the content of an inline inode is to move out. The log says this behind the blocks.
    fn moves_out(&self, i: usize, ino: Ino) -> Result<bool> {
        let next = self.next_attributes(i, ino);
        let Some(Change::Inode { bytes, .. }) = next.and_then(|at| self.changes.get(at)) else {
            return Ok(false);
        };
        let next = InodeView::new(&bytes[..])?;
        Ok(!next.flags().contains(InodeFlags::INLINE_DATA))
    }
}
