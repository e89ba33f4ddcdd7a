//! Inode allocation: choice of group and number, and the state of the inode table.

use std::sync::atomic::Ordering;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::bitmap;
use stetfs_ondisk::ext4::group_desc::GroupFlags;
use stetfs_ondisk::ext4::inode::{InodeFlags, InodeView};

use super::allocator::Allocator;
use super::bitmaps::Bitmap;
use super::group::Counts;
use super::group::HeldBack;
use super::parts::Around;
use super::scan::{FreeMap, Overlay};
use crate::content;
use crate::error::{FsError, Result};
use crate::state::inode::Inode;
use crate::types::{Ino, ROOT_INO};
use stetfs_ondisk::num::bounded32;

impl Allocator {
    /// Allocates an inode number near `parent`, and a generation for it. Directories spread (Orlov
    /// allocator); other files stay with their directory (`parts`). The inode table block is made
    /// ready; the caller writes the slot. Credits: part of `credits::NEW_INODE`.
    ///
    /// # Errors
    /// ENOSPC when no inode is free; some may wait for a commit
    /// ([`begin_with_inode`](Self::begin_with_inode)).
    pub(crate) fn alloc_inode(
        &self,
        h: &Handle<'_>,
        parent: &Inode,
        parent_flags: InodeFlags,
        mode: u32,
    ) -> Result<(Ino, u32)> {
        let is_dir = mode & libc::S_IFMT == libc::S_IFDIR;
        let home = self
            .vol
            .geo
            .layout
            .locate_inode(parent.ino)
            .map_or(0, |(g, _)| g);
        let spread = parent.ino == ROOT_INO || parent_flags.contains(InodeFlags::TOPDIR);
        let mut around = self.around(h, home);
        if is_dir {
            around = around.at(self.group_for_dir(&around, spread));
        }
        let flex = 1u32 << self.vol.geo.log_groups_per_flex.min(31);
        for group in around.for_inode(flex) {
            if self.groups.group_free_inodes(group) == 0 {
                continue;
            }
            if let Some(index) = self.take_inode(h, group, is_dir, None)? {
                let ino = group * self.vol.geo.inodes_per_group + index + 1;
                return Ok((ino, self.next_generation()));
            }
        }
        Err(FsError::Errno(libc::ENOSPC))
    }

    /// A group for a new directory. For a directory that is to be apart from its siblings, it is a
    /// group with more than average room and few directories; else a group near the parent that is
    /// not crowded.
    fn group_for_dir(&self, around: &Around, spread: bool) -> u32 {
        let groups = &self.groups;
        let count = groups.count();
        let avg_inodes = bounded32(groups.free_inodes() / u64::from(count));
        let avg_blocks = bounded32(groups.free_blocks() / u64::from(count));
        let roomy = |g: u32| {
            let free = groups.group_free_inodes(g);
            free > 0 && free >= avg_inodes && groups.available(g) >= avg_blocks
        };
        // The search is bounded: any group is acceptable in the end.
        const LOOKS: usize = 256;
        if spread {
            let groups_of_part = u64::from(around.part_len());
            let start = ((u64::from(self.next_generation()) * groups_of_part) >> 32) as u32;
            let best = around
                .round(start)
                .filter(|g| roomy(*g))
                .take(LOOKS)
                .min_by_key(|g| groups.group_dirs(*g));
            if let Some(g) = best {
                return g;
            }
        }
        let per_group = self.vol.geo.inodes_per_group;
        let max_dirs = bounded32(groups.used_dirs() / u64::from(count)) + per_group / 16;
        let min_inodes = avg_inodes.saturating_sub(per_group / 4).max(1);
        let min_blocks = avg_blocks.saturating_sub(self.vol.geo.layout.clusters_per_group / 4);
        let fits = |g: &u32| {
            groups.group_dirs(*g) < max_dirs
                && groups.group_free_inodes(*g) >= min_inodes
                && groups.available(*g) >= min_blocks
        };
        let mut near = around.round(0).take(LOOKS);
        near.find(fits).unwrap_or(around.first)
    }

    /// Allocates an inode number that was claimed, or that is free.
    ///
    /// # Errors
    /// `Corrupt` when it is in use.
    pub(crate) fn take_claimed_inode(&self, h: &Handle<'_>, ino: Ino, is_dir: bool) -> Result<()> {
        let place = self.vol.geo.layout.locate_inode(ino);
        let (group, index) = place.ok_or(FsError::Errno(libc::ESTALE))?;
        match self.take_inode(h, group, is_dir, Some(index))? {
            Some(_) => Ok(()),
            None => Err(FsError::corrupt(
                "inode bitmap",
                0,
                format!("inode {ino}, which a file-level record makes, is not free"),
            )),
        }
    }

    /// Allocates an inode of a group: the given one, or the first free one. Returns its index in
    /// the group.
    fn take_inode(
        &self,
        h: &Handle<'_>,
        group: u32,
        is_dir: bool,
        exactly: Option<u32>,
    ) -> Result<Option<u32>> {
        let per_group = self.vol.geo.inodes_per_group;
        let mut guard = self.groups.lock(group)?;
        let st = &mut *guard;
        let before = Counts::of(st);
        let Bitmap { block, desc } = match self.inode_bitmap(h, group, st) {
            Ok(bitmap) => bitmap,
            Err(e @ FsError::Corrupt { .. }) => {
                self.out_of_use(group, before, guard, &e);
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let reserved = if group == 0 {
            self.vol.geo.first_ino - 1
        } else {
            0
        };
        if let (Some(index), Some(claims)) = (exactly, &mut st.pending_inodes) {
            claims.remove(index, 1);
        }
        let (first, end) = exactly.map_or((reserved, per_group), |i| (i, i + 1));
        // Drop the view before the change, or the change would copy the page.
        let free = FreeMap::new(
            &content::look(&block)?,
            st.pending_inodes.as_deref(),
            per_group,
        )
        .next_free(first, end);
        let Some(index) = free else {
            return Ok(None);
        };
        let unused = st.desc.itable_unused();
        let used = per_group.saturating_sub(unused);
        let fresh = self.vol.geo.has_group_checksums() && index >= used;
        if exactly.is_none() && !fresh && self.is_in_use(st.desc.inode_table(), group, index)? {
            st.bad_inodes = true;
            let detail = format!("group {group}: its inode {index} is in use, but marked free");
            let e = FsError::corrupt("inode bitmap", block.nr(), detail);
            self.out_of_use(group, before, guard, &e);
            return Ok(None);
        }
        {
            let mut map = h.modify(&block)?;
            bitmap::set(&mut map, index as usize);
            self.note_inode_bitmap(st, &map);
        }
        if st.has(GroupFlags::BLOCK_UNINIT) {
            // A group with inodes also has an initialised block bitmap, as the kernel leaves it.
            match self.block_bitmap(h, group, st) {
                Ok(_) | Err(FsError::Corrupt { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        if fresh {
            self.init_table(h, st.desc.inode_table(), used, index)?;
            st.desc.set_itable_unused(per_group - index - 1);
        }
        st.desc
            .set_free_inodes(st.desc.free_inodes().saturating_sub(1));
        if is_dir {
            st.desc.set_used_dirs(st.desc.used_dirs().saturating_add(1));
        }
        self.write_desc(h, group, st, desc.as_ref())?;
        self.groups.publish(group, before, st)?;
        Ok(Some(index))
    }

    /// Whether the inode at a place of a group's inode table belongs to a file. An inode with a
    /// wrong checksum does not count.
    fn is_in_use(&self, table: u64, group: u32, index: u32) -> Result<bool> {
        let (nr, offset) = self.vol.geo.layout.inode_position(table, index);
        let block = self.vol.cache.read(nr)?;
        let page = content::look(&block)?;
        let size = usize::from(self.vol.geo.inode_size);
        let slot = page.get(offset..offset + size).ok_or_else(|| {
            FsError::corrupt("inode table", nr, "an inode past the end of its block")
        })?;
        let view = InodeView::new(slot)?;
        let ino = group * self.vol.geo.inodes_per_group + index + 1;
        Ok(view.links() > 0
            && view.dtime() == 0
            && view.verify_checksum(ino, &self.vol.geo.checksums))
    }

    /// Zeroes the blocks of the inode table that come into use with the inodes from `used` to
    /// `index`; mke2fs may have left any content there.
    fn init_table(&self, h: &Handle<'_>, table: u64, used: u32, index: u32) -> Result<()> {
        let per_block = self.vol.geo.layout.inodes_per_block();
        let first = used.div_ceil(per_block);
        for block in first..=index / per_block {
            let block = self.vol.cache.get(table + u64::from(block));
            drop(h.create(&block)?);
        }
        Ok(())
    }

    /// Frees an inode number; it is allocated again once the transaction is valid. Credits: part of
    /// `credits::FREE_INODE`. If the group's bitmap is damaged, or says that the inode is free
    /// already, the number stays as it is and the caller goes on, as in the kernel.
    ///
    /// # Errors
    /// Errors of the device and the journal.
    pub(crate) fn free_inode(&self, h: &Handle<'_>, ino: Ino, is_dir: bool) -> Result<()> {
        let (group, index) = self
            .vol
            .geo
            .layout
            .locate_inode(ino)
            .ok_or(FsError::Errno(libc::ESTALE))?;
        let mut guard = self.groups.lock(group)?;
        let st = &mut *guard;
        let before = Counts::of(st);
        let Bitmap { block, desc } = match self.inode_bitmap(h, group, st) {
            Ok(bitmap) => bitmap,
            Err(e @ FsError::Corrupt { .. }) => {
                // The number stays in use until e2fsck finds it.
                self.out_of_use(group, before, guard, &e);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        {
            let mut map = h.modify(&block)?;
            if !bitmap::clear(&mut map, index as usize) {
                drop(map);
                let detail = format!("inode {ino} is freed but is free already");
                let e = FsError::corrupt("inode bitmap", block.nr(), detail);
                self.out_of_use(group, before, guard, &e);
                return Ok(());
            }
            self.note_inode_bitmap(st, &map);
        }
        if self.vol.opts.canary.unlogged_inode_bitmap {
            h.leave_out(&block);
        }
        st.desc
            .set_free_inodes(st.desc.free_inodes().saturating_add(1));
        if is_dir {
            st.desc.set_used_dirs(st.desc.used_dirs().saturating_sub(1));
        }
        Overlay::of(&mut st.pending_inodes, self.vol.geo.inodes_per_group).insert(index, 1);
        self.write_desc(h, group, st, desc.as_ref())?;
        self.groups.publish(group, before, st)?;
        drop(guard);
        let fs = self.me.clone();
        h.after_commit(Box::new(move || {
            if let Some(fs) = fs.upgrade() {
                fs.told(fs.inode_is_free(group, index));
            }
        }));
        Ok(())
    }

    fn inode_is_free(&self, group: u32, index: u32) -> Result<()> {
        if self.groups.keep_freed.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.hold_back(HeldBack::Inode { group, index }) {
            true => Ok(()),
            false => self.hand_back_inode(group, index),
        }
    }

    /// Makes this number available from here on.
    pub(super) fn hand_back_inode(&self, group: u32, index: u32) -> Result<()> {
        let mut guard = self.groups.lock(group)?;
        let st = &mut *guard;
        let before = Counts::of(st);
        if let Some(pending) = &mut st.pending_inodes {
            pending.remove(index, 1);
            if pending.count() == 0 {
                st.pending_inodes = None;
            }
        }
        self.groups.publish(group, before, st)
    }
}
