//! Bitmaps of the groups: reading, checking, and making those of groups that were never used.

use std::ops::Range;
use std::sync::Arc;

use stetfs_journal::{Block, Handle};
use stetfs_ondisk::ext4::bitmap;
use stetfs_ondisk::ext4::group_desc::GroupFlags;

use super::allocator::Allocator;
use super::group::GroupState;
use crate::error::{FsError, Result};
use crate::types::BlockNr;
use stetfs_ondisk::num::{count32, to_usize};

/// `Block::verified` of a bitmap whose checksum and structure are checked.
const CHECKED: u8 = 1;

/// A bitmap, and the block of its group's descriptor, which changes with it. Both are read before
/// either changes (space.S5).
pub(super) struct Bitmap {
    pub(super) block: Arc<Block>,
    pub(super) desc: Option<Arc<Block>>,
}

impl Allocator {
    /// The block bitmap of a group, checked. It is made now if the group was never used. One
    /// credit, or two if the group was never used.
    pub(super) fn block_bitmap(
        &self,
        h: &Handle<'_>,
        group: u32,
        st: &mut GroupState,
    ) -> Result<Bitmap> {
        if st.bad_blocks {
            return Err(FsError::corrupt(
                "block bitmap",
                st.desc.block_bitmap(),
                "was found damaged earlier",
            ));
        }
        let desc = self.desc_block(group)?;
        if st.has(GroupFlags::BLOCK_UNINIT) {
            let block = self.init_block_bitmap(h, group, st, desc.as_ref())?;
            return Ok(Bitmap { block, desc });
        }
        let block = self.vol.cache.read(st.desc.block_bitmap())?;
        if block.verified() != CHECKED {
            let sound = block
                .page()
                .map(|page| self.check_block_bitmap(group, st, &page));
            if let Some(Err(e)) = sound {
                st.bad_blocks = true;
                return Err(e);
            }
            block.set_verified(CHECKED);
        }
        Ok(Bitmap { block, desc })
    }

    fn check_block_bitmap(&self, group: u32, st: &GroupState, map: &[u8]) -> Result<()> {
        let nr = st.desc.block_bitmap();
        let bad = |detail: String| {
            Err(FsError::corrupt(
                "block bitmap",
                nr,
                format!("group {group}: {detail}"),
            ))
        };
        if let Some(seed) = self.vol.geo.checksums.metadata_seed()
            && !st.desc.block_bitmap_csum_matches(bitmap::checksum(
                seed,
                map,
                self.vol.geo.layout.clusters_per_group,
            ))
        {
            return bad("checksum does not match".into());
        }
        let blocks = self.vol.geo.layout.group_blocks(group);
        for zone in self.groups.zones.within(blocks) {
            let bits = self.bits_of(group, &zone);
            if bitmap::find_clear(map, bits.clone()).is_some() {
                return bad(format!(
                    "blocks of metadata (bits {bits:?}) are marked free"
                ));
            }
        }
        let free = bitmap::count_clear(map, self.vol.geo.layout.group_clusters(group) as usize);
        if count32(free) != st.desc.free_clusters() {
            return bad(format!(
                "{free} clear bits, but the descriptor counts {} free blocks",
                st.desc.free_clusters()
            ));
        }
        Ok(())
    }

    /// Bits of the group's own metadata that lie in the group itself.
    fn own_metadata(&self, group: u32, st: &GroupState) -> Vec<Range<usize>> {
        let layout = &self.vol.geo.layout;
        let blocks = layout.group_blocks(group);
        let head = u64::from(layout.group_super_overhead(group));
        let pieces = [
            (blocks.start, head),
            (st.desc.block_bitmap(), 1),
            (st.desc.inode_bitmap(), 1),
            (
                st.desc.inode_table(),
                u64::from(layout.inode_table_blocks()),
            ),
        ];
        pieces
            .into_iter()
            .filter_map(|(start, len)| {
                let (a, b) = (
                    start.max(blocks.start),
                    start.saturating_add(len).min(blocks.end),
                );
                (a < b).then(|| self.bits_of(group, &(a..b)))
            })
            .collect()
    }

    /// The bits that stand for a range of blocks of a group.
    fn bits_of(&self, group: u32, part: &Range<BlockNr>) -> Range<usize> {
        let first = self.vol.geo.layout.group_blocks(group).start;
        let ratio = u64::from(self.vol.geo.ratio());
        let bits = (part.start.saturating_sub(first) / ratio)
            ..part.end.saturating_sub(first).div_ceil(ratio);
        to_usize(bits.start)..to_usize(bits.end)
    }

    /// Makes the bitmap of a group in which only its own metadata is in use
    /// (`EXT4_BG_BLOCK_UNINIT`).
    fn init_block_bitmap(
        &self,
        h: &Handle<'_>,
        group: u32,
        st: &mut GroupState,
        desc: Option<&Arc<Block>>,
    ) -> Result<Arc<Block>> {
        let block = self.vol.cache.get(st.desc.block_bitmap());
        let clusters = self.vol.geo.layout.group_clusters(group);
        {
            let mut map = h.create(&block)?;
            for range in self.own_metadata(group, st) {
                bitmap::set_range(&mut map, range);
            }
            bitmap::set_padding(&mut map, clusters as usize);
            st.desc
                .set_free_clusters(count32(bitmap::count_clear(&map, clusters as usize)));
            self.note_block_bitmap(st, &map);
        }
        block.set_verified(CHECKED);
        st.clear(GroupFlags::BLOCK_UNINIT);
        self.write_desc(h, group, st, desc)?;
        Ok(block)
    }

    /// Puts the checksum of a changed block bitmap into the descriptor.
    pub(super) fn note_block_bitmap(&self, st: &mut GroupState, map: &[u8]) {
        if let Some(seed) = self.vol.geo.checksums.metadata_seed() {
            st.desc.set_block_bitmap_csum(bitmap::checksum(
                seed,
                map,
                self.vol.geo.layout.clusters_per_group,
            ));
        }
    }

    /// The inode bitmap of a group, checked. It is made now if no inode of the group was ever in
    /// use.
    pub(super) fn inode_bitmap(
        &self,
        h: &Handle<'_>,
        group: u32,
        st: &mut GroupState,
    ) -> Result<Bitmap> {
        let nr = st.desc.inode_bitmap();
        if st.bad_inodes {
            return Err(FsError::corrupt(
                "inode bitmap",
                nr,
                "was found damaged earlier",
            ));
        }
        let desc = self.desc_block(group)?;
        let per_group = self.vol.geo.inodes_per_group;
        if st.has(GroupFlags::INODE_UNINIT) {
            let block = self.vol.cache.get(nr);
            {
                let mut map = h.create(&block)?;
                bitmap::set_padding(&mut map, per_group as usize);
                self.note_inode_bitmap(st, &map);
            }
            block.set_verified(CHECKED);
            st.clear(GroupFlags::INODE_UNINIT);
            st.desc.set_free_inodes(per_group);
            st.desc.set_itable_unused(per_group);
            self.write_desc(h, group, st, desc.as_ref())?;
            return Ok(Bitmap { block, desc });
        }
        let block = self.vol.cache.read(nr)?;
        if block.verified() != CHECKED {
            let sound = block
                .page()
                .map(|page| self.check_inode_bitmap(group, st, &page));
            if let Some(Err(e)) = sound {
                st.bad_inodes = true;
                return Err(e);
            }
            block.set_verified(CHECKED);
        }
        Ok(Bitmap { block, desc })
    }

    fn check_inode_bitmap(&self, group: u32, st: &GroupState, map: &[u8]) -> Result<()> {
        let nr = st.desc.inode_bitmap();
        let bad = |detail: String| {
            Err(FsError::corrupt(
                "inode bitmap",
                nr,
                format!("group {group}: {detail}"),
            ))
        };
        if let Some(seed) = self.vol.geo.checksums.metadata_seed()
            && !st.desc.inode_bitmap_csum_matches(bitmap::checksum(
                seed,
                map,
                self.vol.geo.inodes_per_group,
            ))
        {
            return bad("checksum does not match".into());
        }
        let free = bitmap::count_clear(map, self.vol.geo.inodes_per_group as usize);
        if count32(free) != st.desc.free_inodes() {
            return bad(format!(
                "{free} clear bits, but the descriptor counts {} free inodes",
                st.desc.free_inodes()
            ));
        }
        Ok(())
    }

    /// Puts the checksum of a changed inode bitmap into the descriptor.
    pub(super) fn note_inode_bitmap(&self, st: &mut GroupState, map: &[u8]) {
        if let Some(seed) = self.vol.geo.checksums.metadata_seed() {
            st.desc.set_inode_bitmap_csum(bitmap::checksum(
                seed,
                map,
                self.vol.geo.inodes_per_group,
            ));
        }
    }
}
