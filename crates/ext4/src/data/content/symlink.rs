//! Targets of symbolic links: short ones in the inode, others in a block.

use stetfs_journal::Handle;

use crate::content;
use crate::data::maps::map::Mapping;
use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use stetfs_ondisk::num::to_usize;

impl DataStore {
    pub(crate) fn read_long_link(&self, inode: &Inode, body: &InodeBody) -> Result<Vec<u8>> {
        let bad = |block, what: &str| {
            let e = FsError::corrupt(
                "symbolic link",
                block,
                format!("inode {}: {what}", inode.ino),
            );
            self.vol.report(&e);
            e
        };
        let size = body.size();
        if size == 0 || size > u64::from(self.vol.geo.block_size) {
            return Err(bad(
                0,
                &format!("its target has {size} bytes, which is not possible"),
            ));
        }
        if body.is_inline() {
            let mut target = vec![0; to_usize(size)];
            self.read_inline(inode, body, 0, &mut target)?;
            return match target.contains(&0) {
                true => Err(bad(0, "the target is shorter than its size")),
                false => Ok(target),
            };
        }
        let Mapping::Mapped {
            start,
            unwritten: false,
            ..
        } = self.map(inode, body, 0, 1)?
        else {
            return Err(bad(0, "it has no block"));
        };
        let block = self.vol.cache.read(start)?;
        let page = content::look(&block)?;
        match page.get(..to_usize(size)) {
            Some(target) if !target.contains(&0) => Ok(target.to_vec()),
            _ => Err(bad(start, "the target is shorter than its size")),
        }
    }

    /// Stores the target of a new symbolic link and writes the inode (`credits::SYMLINK_BODY`). The
    /// caller has reserved a block unless the target is below 60 bytes.
    ///
    /// # Errors
    /// ENAMETOOLONG for a target that does not fit in a block with a zero behind it; ENOENT for an
    /// empty one; ENOSPC.
    pub(crate) fn write_symlink_body(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        target: &[u8],
    ) -> Result<()> {
        if target.is_empty() {
            return Err(FsError::Errno(libc::ENOENT));
        }
        if target.len() >= self.vol.geo.block_size as usize {
            return Err(FsError::Errno(libc::ENAMETOOLONG));
        }
        if body.set_inline_symlink(target) {
            return self.inodes.write_inode_data(h, inode, body);
        }
        self.init_map(body)?;
        let nr = self.add_meta_block(h, inode, body, 0)?;
        let block = self.vol.cache.get(nr);
        {
            let mut page = h.create(&block)?;
            if let Some(to) = page.get_mut(..target.len()) {
                to.copy_from_slice(target);
            }
        }
        body.set_size(target.len() as u64);
        self.inodes.write_inode_data(h, inode, body)
    }
}
