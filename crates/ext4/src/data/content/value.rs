//! The content of inodes that hold attribute values: written once, through the journal.

use stetfs_journal::{Credits, Handle};

use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::space::{AllocFor, credits};
use stetfs_ondisk::num::count32;

/// The most blocks of a value that are allocated at once.
const RUN: u32 = 64;

impl DataStore {
    /// Clusters to reserve for [`write_value`](Self::write_value) of `len` bytes. Two levels of the
    /// map are enough for any placement.
    pub(crate) fn value_space(&self, len: usize) -> u64 {
        let cluster = u64::from(self.vol.geo.block_size) * u64::from(self.vol.geo.ratio());
        (len as u64).div_ceil(cluster) + 4
    }

    /// Writes the content of a new inode, in as many transactions as needed. The inode is an orphan
    /// meanwhile.
    ///
    /// # Errors
    /// ENOSPC; errors of the device.
    pub(crate) fn write_value(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        value: &[u8],
    ) -> Result<()> {
        let size = self.vol.geo.block_size as usize;
        let mut lblk = 0u32;
        let mut rest = value;
        while !rest.is_empty() {
            let blocks = count32(rest.len().div_ceil(size));
            let want = blocks.min(RUN).min(self.map_room(body, lblk));
            let need = want as Credits + credits::ALLOC_BLOCKS + self.map_credits(body);
            self.more_credits(h, inode, body, need)?;
            let space = self
                .alloc_for(h, inode, body, (lblk, want), u64::MAX, AllocFor::Meta)?
                .ok_or(FsError::Errno(libc::ENOSPC))?;
            self.map_new(h, inode, body, lblk, &space, false)?;
            let run = space.run;
            let (now, later) = rest.split_at(rest.len().min(run.len as usize * size));
            for (nr, piece) in (run.start..).zip(now.chunks(size)) {
                let block = self.vol.cache.get(nr);
                let mut page = h.create(&block)?;
                for (to, from) in page.iter_mut().zip(piece) {
                    *to = *from;
                }
            }
            lblk += run.len;
            rest = later;
        }
        self.more_credits(h, inode, body, credits::WRITE_INODE)?;
        body.set_size(value.len() as u64);
        self.write_inode_step(h, inode, body)
    }
}
