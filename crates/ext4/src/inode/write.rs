//! Writing an inode into the journal.

use std::sync::atomic::Ordering;

use stetfs_journal::{CommitPoint, Handle};
use stetfs_ondisk::ext4::inode::InodeView;

use super::Inode;
use super::store::InodeStore;
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::state::body::InodeBody;
use crate::state::orphan_place::OrphanPlace;
use crate::types::Ino;

impl InodeStore {
    /// Puts the body into the inode table within `h` (`credits::WRITE_INODE`), and notes for syncs
    /// that the inode changed. The caller holds the inode's lock.
    ///
    /// # Errors
    /// ESTALE when the inode is deleted. A caller that changes more than the inode calls
    /// [`Inode::check_alive`] first.
    pub(crate) fn write_inode(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        inode.check_alive()?;
        self.store_inode(h, inode, body)
    }

    /// [`write_inode`](Self::write_inode) of a directory of which only names changed. Records of
    /// files track changes of names by themselves.
    pub(crate) fn write_listing(
        &self,
        h: &Handle<'_>,
        dir: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        dir.check_alive()?;
        self.put_inode(h, dir, body)
    }

    /// [`write_inode`](Self::write_inode) for a change that is needed to read the data back (size,
    /// extents): fdatasync waits for it, too.
    pub(crate) fn write_inode_data(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        self.write_inode(h, inode, body)?;
        self.needed(h, inode);
        Ok(())
    }

    /// Notes a change of the inode that is needed to find its data.
    pub(crate) fn needed(&self, h: &Handle<'_>, inode: &Inode) {
        inode.metadata.lock().needed(&h.point());
        self.note_change(h, inode, MetadataLedger::unrecorded_need);
    }

    /// Notes a change of the inode for records of files, if there are any.
    pub(crate) fn note_change(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        change: impl FnOnce(&mut MetadataLedger, CommitPoint),
    ) {
        if self.vol.journal.records().is_some() {
            change(&mut inode.metadata.lock(), h.point());
        }
    }

    /// Notes that `count` file blocks from `first` on have a new place, or new journaled content.
    pub(crate) fn note_blocks(&self, h: &Handle<'_>, inode: &Inode, first: u32, count: u32) {
        self.note_change(h, inode, |c, point| {
            c.moved(first, count, point, &self.vol.valid());
        });
    }

    /// [`write_inode`](Self::write_inode) without the check whether the inode is deleted.
    pub(crate) fn store_inode(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        self.put_inode(h, inode, body)?;
        self.note_change(h, inode, MetadataLedger::touched);
        Ok(())
    }

    /// [`store_inode`](Self::store_inode) without the note for records.
    fn put_inode(&self, h: &Handle<'_>, inode: &Inode, body: &mut InodeBody) -> Result<()> {
        // While the inode is on the orphan list its `i_dtime` belongs to the list.
        let list = (body.orphan == Some(OrphanPlace::List)).then(|| self.orphans.lock());
        if let Some(list) = &list {
            body.set_dtime(list.next_of(inode.ino)?);
        }
        body.update_checksum(inode.ino, &self.vol.geo.checksums);
        self.change_slot(h, inode.ino, |slot| slot.copy_from_slice(body.bytes()))?;
        drop(list);
        if let Some(quotas) = self.quotas() {
            quotas.count_usage(&self.vol, h, inode, body)?;
        }
        self.no_longer_lazy(inode);
        let nameless = body.links() == 0;
        if inode.unlinked.load(Ordering::Relaxed) != nameless {
            inode.unlinked.store(nameless, Ordering::Release);
            self.cache.nameless_changed();
        }
        inode.metadata.lock().changed(&h.point());
        Ok(())
    }

    /// Changes `i_dtime` of an inode whose body another thread may hold locked. Only for neighbours
    /// on the orphan list, under the list's lock.
    pub(super) fn patch_dtime(&self, h: &Handle<'_>, ino: Ino, dtime: u32) -> Result<()> {
        self.change_slot(h, ino, |slot| {
            if let Ok(mut view) = InodeView::new(slot) {
                view.set_dtime(dtime);
                view.update_checksum(ino, &self.vol.geo.checksums);
            }
        })
    }

    fn change_slot(&self, h: &Handle<'_>, ino: Ino, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let (nr, offset) = self.space.inode_place(ino)?;
        let block = self.vol.cache.read(nr)?;
        let mut page = h.modify(&block)?;
        let slot = page
            .get_mut(offset..offset + usize::from(self.vol.geo.inode_size))
            .ok_or_else(|| FsError::corrupt("inode table", nr, "slot past the end of its block"))?;
        change(slot);
        Ok(())
    }
}
