//! Early writes of a group: when memory or one transaction could not hold more, blocks are written
//! before the commit. They go to blocks that are set aside, and the commit maps these in place of
//! the files' own blocks. After an earlier crash they are free.
//!
//! AFS (Kang's dissertation, 3.4) and exF2FS steal pages early for the same purpose. Here the pages
//! go to their final places, so that the commit only writes maps.

use stetfs_block::{BlockDevice, WriteList};
use stetfs_journal::Handle;
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::overlay::Placed;
use super::price::{Cost, EarlySum};
use super::{AtomicGroup, Member};
use crate::data::content::whole::Steps;
use crate::data::maps::clusters::Space;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::types::{Ctx, Ino};
use stetfs_ondisk::num::{bounded32, to_usize};

/// Early blocks of each file, and the cost of the commit.
type Fitting = (Vec<EarlySum>, Cost);

/// Blocks that were set aside, and the promise that they are taken from.
#[derive(Default)]
struct Places {
    all: Vec<(Ino, Placed)>,
    /// Blocks of the group's own promise that are used for this.
    own: u64,
    /// Blocks promised and not set aside yet.
    left: u64,
}

impl AtomicGroup {
    /// Writes the group's blocks in memory to the volume, if the commit can use them from there.
    /// This is not possible for block maps, for clusters larger than a block, and after FIBMAP of
    /// the file. Returns whether it was done. It writes all blocks or none.
    ///
    /// The group does this when memory or a transaction could not hold more. An earlier call leaves
    /// less for the commit to write.
    ///
    /// # Errors
    /// ENOSPC: there are too few free blocks. EIO.
    pub fn write_early(&mut self, ctx: &Ctx) -> Result<bool> {
        let members = self.members.iter();
        let going: Vec<Ino> = members
            .filter(|(_, member)| member.overlay.blocks() > 0 && self.fs.may_go_early(member))
            .map(|(ino, _)| *ino)
            .collect();
        if going.is_empty() {
            return Ok(false);
        }
        let mut places = self.room_for_early(ctx, &going)?;
        let placed = self.place_early(&mut places, &going);
        let sent = placed.and_then(|()| self.send_if_it_fits(ctx, &places.all));
        let (sums, cost) = match sent {
            Ok(Some(fitting)) => fitting,
            other => {
                self.undo_early(places);
                return other.map(|_| false);
            }
        };
        for (member, sum) in self.members.values_mut().zip(sums) {
            member.early = sum;
        }
        self.cost = cost;
        let size = u64::from(self.fs.vol.geo.block_size);
        for (ino, (lblk, run)) in places.all {
            self.overlay(ino)?.written_early(lblk, run);
            self.forget(u64::from(run.len) * size);
        }
        if self.fs.vol.opts.canary.early_at_once {
            self.take_at_once()?;
        }
        Ok(true)
    }

    /// A deliberate fault: maps the early blocks before the commit.
    fn take_at_once(&mut self) -> Result<()> {
        let fs = &*self.fs;
        for member in self.members.values_mut() {
            let inode = &*member.file.inode;
            let mut body = inode.body.write();
            let mut h = fs.vol.begin(inode.ino, fs.vol.journal.max_credits())?;
            for placed in member.overlay.forget_early() {
                fs.take_early(&mut h, inode, &mut body, placed)?;
            }
            fs.inodes.write_inode_data(&h, inode, &mut body)?;
        }
        Ok(())
    }

    /// Writes blocks to these places, if one transaction can then hold the commit, and its space
    /// can be promised (atomic.A2).
    fn send_if_it_fits(&mut self, ctx: &Ctx, places: &[(Ino, Placed)]) -> Result<Option<Fitting>> {
        let mut fitting = self.fits_early(places)?;
        if fitting.is_none() {
            self.count_early()?;
            fitting = self.fits_early(places)?;
        }
        let Some((_, cost)) = &fitting else {
            return Ok(None);
        };
        let want = cost.space().saturating_sub(self.promised);
        let room = self.fs.space.reserve(want, self.fs.space.privileged(ctx))?;
        self.send_early(places)?;
        self.promised += room.keep();
        Ok(fitting)
    }

    /// Promises a block for each block to be written. A promise for holes is used for this, too.
    fn room_for_early(&mut self, ctx: &Ctx, going: &[Ino]) -> Result<Places> {
        let blocks = going.iter().map(|ino| self.member(*ino));
        let blocks = blocks.map(|member| Ok(member?.overlay.blocks() as u64));
        let need = blocks.sum::<Result<u64>>()?;
        let own = self.promised.min(self.cost.clusters).min(need);
        let more = self
            .fs
            .space
            .reserve(need - own, self.fs.space.privileged(ctx))?
            .keep();
        self.promised -= own;
        Ok(Places {
            all: Vec::new(),
            own,
            left: own + more,
        })
    }

    /// Sets blocks aside for the blocks to be written.
    fn place_early(&self, places: &mut Places, going: &[Ino]) -> Result<()> {
        for ino in going {
            let member = self.member(*ino)?;
            for run in member.overlay.kept_runs(&[]) {
                let mut at = run.start;
                let mut goal = None;
                while at < run.end {
                    let want = u32::try_from(run.end - at).unwrap_or(u32::MAX);
                    let place = self.fs.space.set_aside(&member.file.inode, goal, want)?;
                    let mut promise = self.fs.space.kept_promise(places.left);
                    promise.consumed(u64::from(place.len));
                    places.left = promise.keep();
                    places.all.push((*ino, (bounded32(at), place)));
                    goal = Some(place.end());
                    at += u64::from(place.len);
                }
            }
        }
        Ok(())
    }

    /// Undoes this: frees the places, and restores the group's promise.
    fn undo_early(&mut self, places: Places) {
        let used = places.all.iter().map(|(_, (_, run))| u64::from(run.len));
        let mut left = places.left + self.fs.space.promise_again(used.sum()).keep();
        for (_, (_, run)) in places.all {
            self.fs.space.give_back(run);
        }
        left -= places.own.min(left);
        self.promised += places.own;
        drop(self.fs.space.kept_promise(left));
    }

    /// The number of blocks that may be written early one by one, if a transaction has room for
    /// `credits` more; 0 if one of the files cannot be written early.
    pub(super) fn early_limit(&self, credits: u32) -> u64 {
        let mut nodes = 0;
        for member in self.members.values() {
            let inode = &member.file.inode;
            let found = match self.fs.may_go_early(member) {
                true => self.fs.data.tree_nodes(inode, &inode.body.read()),
                false => Ok(None),
            };
            let Ok(Some(found)) = found else { return 0 };
            nodes += found;
        }
        self.fs
            .early_blocks(nodes, self.members.len() as u64, credits)
    }

    /// The early blocks of each file together with these places, if one transaction can then hold
    /// the commit.
    fn fits_early(&self, places: &[(Ino, Placed)]) -> Result<Option<Fitting>> {
        let mut sums = Vec::with_capacity(self.members.len());
        let mut total = Cost::default();
        for (ino, member) in &self.members {
            let of_it = places.iter().filter(|(of, _)| of == ino);
            let new: Vec<Placed> = of_it.map(|(_, placed)| *placed).collect();
            let body = member.file.inode.body.read();
            let fs = &self.fs;
            let sum = member
                .early
                .and(fs.early_sum(&member.file.inode, &body, &new)?);
            total = total
                + match new.is_empty() {
                    true => fs.changes_cost(member, &body, &[], member.overlay.size())?,
                    false => fs.changes_cost_early(member, &body, &sum)?,
                };
            sums.push(sum);
        }
        Ok(self.fits(total).then_some((sums, total)))
    }

    /// Counts the early blocks again, without those that were changed or cut off since.
    pub(super) fn count_early(&mut self) -> Result<()> {
        for member in self.members.values_mut() {
            let inode = &member.file.inode;
            let body = inode.body.read();
            let early = member.overlay.early_runs();
            member.early = self.fs.early_sum(inode, &body, &early)?;
        }
        Ok(())
    }

    /// Writes the content of blocks to their places.
    fn send_early(&self, places: &[(Ino, Placed)]) -> Result<()> {
        let size = u64::from(self.fs.vol.geo.block_size);
        let mut list = WriteList::new();
        for (ino, (lblk, run)) in places {
            let overlay = &self.member(*ino)?.overlay;
            for (lblk, nr) in (*lblk..).zip(run.start..run.end()) {
                let page = overlay.page(lblk).ok_or(FsError::Errno(libc::EIO))?;
                list.push(nr * size, page);
            }
        }
        Ok(list.submit(&**self.fs.vol.cache.device())?)
    }

    /// Copies the early blocks into `buf`, which holds the file from `offset` on.
    pub(super) fn read_early(&self, member: &Member, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = u64::from(self.fs.vol.geo.block_size);
        let end = offset.saturating_add(buf.len() as u64);
        let mut page = Vec::new();
        for lblk in member.overlay.within(offset / size..end.div_ceil(size)) {
            let Some(nr) = member.overlay.early(lblk) else {
                continue;
            };
            page.resize(to_usize(size), 0);
            self.fs.vol.cache.device().read(nr * size, &mut page)?;
            if let Some((part, at)) = member.overlay.part(lblk, &(offset..end))
                && let Some(from) = page.get(part)
                && let Some(to) = buf.get_mut(at..at + from.len())
            {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// Makes the early blocks durable.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn settle_early(&self) -> Result<()> {
        let mut members = self.members.values();
        let is_needed = members.any(|member| !member.overlay.early_runs().is_empty());
        let opts = &self.fs.vol.opts;
        if is_needed && opts.barrier && !opts.canary.early_volatile {
            self.fs.vol.cache.device().flush()?;
        }
        Ok(())
    }

    /// Frees the early blocks.
    pub(super) fn give_back_early(&mut self) {
        for member in self.members.values_mut() {
            member.early = EarlySum::default();
            for (_, run) in member.overlay.forget_early() {
                self.fs.space.give_back(run);
            }
        }
    }
}

impl Fs {
    /// Whether blocks of a file can get new places: only with extents and without clusters, and if
    /// no caller was told the present places.
    fn may_go_early(&self, member: &Member) -> bool {
        let inode = &member.file.inode;
        let told = inode.told.load(std::sync::atomic::Ordering::Acquire);
        let is_tree = inode.body.read().flags().contains(InodeFlags::EXTENTS);
        is_tree && self.vol.geo.ratio() == 1 && !told
    }

    /// Maps early blocks in place of the file's own blocks.
    pub(super) fn take_early(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        (lblk, run): Placed,
    ) -> Result<()> {
        let end = u64::from(lblk) + u64::from(run.len);
        self.data
            .remove_range(h, inode, body, u64::from(lblk)..end, Steps::Whole)?;
        self.space.take_set_aside(h, run)?;
        let space = Space {
            run,
            new: Some(run),
        };
        self.data.map_new(h, inode, body, lblk, &space, false)?;
        self.inodes.note_blocks(h, inode, lblk, run.len);
        Ok(())
    }
}
