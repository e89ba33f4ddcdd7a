//! Inline data: content in the inode itself (feature `inline_data`), in `i_block` and, for the
//! rest, in the attribute `system.data` behind the inode's fields.
//!
//! Inline data is read and written in the inode while it fits there. A change that needs more room
//! (a longer file, a hole, any change of a directory's entries) first moves the content to blocks,
//! in a transaction of its own. It never moves back.

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::inode::{I_BLOCK_LEN, InodeFlags};
use stetfs_ondisk::ext4::xattr::{Value, index};

use crate::data::content::pages::{Holds, Pages};
use crate::data::maps::credits::APPEND_DIR_BLOCK;
use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::space::credits::WRITE_INODE;
use stetfs_ondisk::num::to_usize;

/// Name of the attribute, without its prefix.
const DATA: &[u8] = b"data";

/// The inline content of an inode.
pub(crate) struct Inline {
    /// All bytes that there is room for; the file's size may be less.
    pub(crate) bytes: Vec<u8>,
    /// The file's size.
    size: usize,
}

impl Inline {
    /// The content of the file.
    fn content(&self) -> Result<&[u8]> {
        let content = self.bytes.get(..self.size);
        content.ok_or_else(|| FsError::corrupt("inline data", 0, "it ends before the file does"))
    }

    /// The part in `i_block`, and the part in the attribute.
    pub(crate) fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(I_BLOCK_LEN.min(self.bytes.len()))
    }
}

impl DataStore {
    /// The inline content of an inode.
    ///
    /// # Errors
    /// EUCLEAN if its parts are shorter than the size of the inode.
    pub(crate) fn inline(&self, inode: &Inode, body: &InodeBody) -> Result<Inline> {
        let stored = self.inodes.xattr_load(inode, body)?;
        let rest = match stored.find(index::SYSTEM, DATA)?.map(|a| a.value) {
            Some(Value::Bytes(rest)) => rest,
            Some(Value::Inode { .. }) | None => &[],
        };
        let bytes = [body.i_block(), rest].concat();
        if body.size() > bytes.len() as u64 {
            let detail = format!(
                "inode {}: {} bytes in the inode, which holds {}",
                inode.ino,
                body.size(),
                bytes.len()
            );
            return self
                .vol
                .noted(Err(FsError::corrupt("inline data", 0, detail)));
        }
        let size = to_usize(body.size());
        Ok(Inline { bytes, size })
    }

    /// Copies inline content from byte `offset` on, and zeroes behind its end.
    pub(in crate::data) fn read_inline(
        &self,
        inode: &Inode,
        body: &InodeBody,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let inline = self.inline(inode, body)?;
        // No content behind the end.
        let at = usize::try_from(offset).map_or(inline.size, |at| at.min(inline.size));
        let (_, from) = inline.content()?.split_at(at);
        let len = from.len().min(buf.len());
        let (copied, behind) = buf.split_at_mut(len);
        copied.copy_from_slice(from.split_at(len).0);
        behind.fill(0);
        Ok(())
    }

    /// Writes inline content if it fits into the inode. Returns `false` if not; then nothing
    /// changed.
    pub(crate) fn write_inline(
        &self,
        inode: &Inode,
        body: &mut InodeBody,
        offset: u64,
        data: &[u8],
    ) -> Result<bool> {
        inode.check_alive()?;
        let mut inline = self.inline(inode, body)?;
        let end = offset.saturating_add(data.len() as u64);
        if end > inline.bytes.len() as u64 {
            return Ok(false);
        }
        // The bytes behind the end are not content yet, and may be anything.
        let size = body.size();
        if let Some(behind) = inline.bytes.get_mut(to_usize(size)..) {
            behind.fill(0);
        }
        if let Some(to) = inline.bytes.get_mut(to_usize(offset)..to_usize(end)) {
            to.copy_from_slice(data);
        }
        let (head, rest) = inline.parts();
        let layout = if rest.is_empty() {
            None
        } else {
            let stored = self.inodes.xattr_load(inode, body)?;
            let bs = self.vol.geo.block_size as usize;
            Some(stored.with(bs, index::SYSTEM, DATA, Some(rest))?)
        };
        if layout.as_ref().is_some_and(|l| l.blocks() > 0) {
            return Ok(false);
        }
        let h = self.vol.begin(
            inode.ino,
            WRITE_INODE + layout.as_ref().map_or(0, crate::xattr::Layout::credits),
        )?;
        self.vol.whole(|| {
            if let Some(layout) = &layout {
                self.inodes.xattr_apply(&h, inode, body, layout)?;
            }
            body.i_block_mut().copy_from_slice(head);
            let now = self.vol.now();
            body.set_mtime(now);
            body.set_ctime(now);
            body.set_size(size.max(end));
            self.inodes.write_inode_data(&h, inode, body)
        })?;
        Ok(true)
    }

    /// Moves the inline content of a file that is not a directory to a block, if there is any. The
    /// caller holds the inode's lock and no handle.
    ///
    /// # Errors
    /// ENOSPC; EUCLEAN.
    pub(crate) fn move_out(&self, inode: &Inode, body: &mut InodeBody) -> Result<()> {
        if !body.is_inline() {
            return Ok(());
        }
        if body.is_dir() {
            return Err(FsError::Errno(libc::EISDIR));
        }
        let inline = self.inline(inode, body)?;
        let content = inline.content()?;
        self.move_out_by(inode, body, |h, body| {
            if content.is_empty() {
                return Ok(());
            }
            let nr = self.add_meta_block(h, inode, body, 0)?;
            let mut pages = Pages::new(self, inode, self.data_path(h, body));
            let put = pages.put(0, nr, 0, content, Holds::New);
            pages.done();
            self.inodes.note_blocks(h, inode, 0, 1);
            put
        })
    }

    /// Gives an inode with inline content a map. `fill` writes the content into one block.
    ///
    /// # Errors
    /// ENOSPC; EUCLEAN.
    pub(crate) fn move_out_by(
        &self,
        inode: &Inode,
        body: &mut InodeBody,
        fill: impl FnOnce(&Handle<'_>, &mut InodeBody) -> Result<()>,
    ) -> Result<()> {
        inode.check_alive()?;
        let bs = self.vol.geo.block_size as usize;
        let stored = self.inodes.xattr_load(inode, body)?;
        let layout = stored.with(bs, index::SYSTEM, DATA, None)?;
        let room = crate::data::maps::credits::append_dir_space(1) + layout.blocks();
        let _room = self.space.reserve(room, true)?;
        let need = APPEND_DIR_BLOCK + layout.credits() + 2 * WRITE_INODE;
        let h = self.vol.begin(inode.ino, need)?;
        self.vol.whole(|| {
            self.inodes.xattr_apply(&h, inode, body, &layout)?;
            let flags = body.flags() - InodeFlags::INLINE_DATA;
            body.set_flags(flags);
            self.init_map(body)?;
            fill(&h, body)?;
            self.inodes.write_inode_data(&h, inode, body)
        })
    }
}
