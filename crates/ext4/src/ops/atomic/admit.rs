//! Admission of changes to a group: the check, before a change, that the commit will have room for
//! it.

use std::ops::Range;

use stetfs_ondisk::num::to_usize;

use super::overlay::runs_of;
use super::price::Cost;
use super::{AtomicGroup, Member};
use crate::error::{FsError, Result};
use crate::quota::Owner;
use crate::types::{Ctx, Ino};

/// The needs of a change of a file, in the present state of the group.
struct Needs {
    /// Blocks that must be loaded into memory.
    new: Vec<u32>,
    /// The cost of the commit after the change.
    total: Cost,
    /// Whether the change adds clusters, and the owner of the file.
    adds_clusters: bool,
    owner: Owner,
}

impl AtomicGroup {
    /// Admits changes of these ranges of bytes, ascending, and of the file's size. Afterwards their
    /// blocks are in memory with their former content, and the commit can write them.
    pub(super) fn admit(
        &mut self,
        ctx: &Ctx,
        ino: Ino,
        size: u64,
        ranges: &[Range<u64>],
    ) -> Result<()> {
        self.fs.throttle()?;
        let mut needs = self.needs(ctx, ino, size, ranges)?;
        if !self.has_room(&needs) && self.write_early(ctx)? && !self.fs.vol.opts.canary.admit_stale
        {
            // Pages that were in memory are no longer there.
            needs = self.needs(ctx, ino, size, ranges)?;
        }
        if !self.fits(needs.total) {
            // Early blocks that were changed since no longer count.
            self.count_early()?;
            needs.total = self.total(ino, &needs.new, size)?;
        }
        if !self.fits(needs.total) {
            return Err(self.full());
        }
        let pages = self.load(self.member(ino)?, ranges, &needs.new)?;
        if needs.adds_clusters {
            // Checked as if all new blocks of the group were one owner's. The promise ends at once:
            // the commit does not check limits again.
            let ratio = u64::from(self.fs.vol.geo.ratio());
            let blocks = needs.total.charged().saturating_mul(ratio);
            drop(self.fs.promise(ctx, needs.owner, blocks, 0)?);
        }
        let bytes = self.bytes_of(&needs);
        self.keep(bytes)?;
        let exact = || self.total(ino, &needs.new, size);
        match self.promise(ctx, needs.total, exact) {
            Ok((total, promised)) => (self.cost, self.promised) = (total, promised),
            Err(e) => {
                self.forget(bytes);
                return Err(e);
            }
        }
        let overlay = self.overlay(ino)?;
        let places = pages
            .into_iter()
            .map(|(lblk, page)| overlay.insert(lblk, page));
        let places: Vec<_> = places.flatten().collect();
        self.give_back(places);
        Ok(())
    }

    /// The needs of a change of these ranges of a file that is to have `size` bytes.
    fn needs(&self, ctx: &Ctx, ino: Ino, size: u64, ranges: &[Range<u64>]) -> Result<Needs> {
        let member = self.member(ino)?;
        let new = self.new_blocks(member, ranges);
        let from = ranges.first().map(|range| range.start);
        let (more, owner) = self.prepare(ctx, member, (size, from), &new)?;
        let mut total = self.cost + more;
        // Blocks that were cut off, and are inside the file again, must be unmapped.
        let returns = member.overlay.is_cut() && size > member.overlay.size();
        if returns || !self.fits(total) {
            total = self.total(ino, &new, size)?;
        }
        Ok(Needs {
            new,
            total,
            adds_clusters: more.clusters > 0,
            owner,
        })
    }

    fn bytes_of(&self, needs: &Needs) -> u64 {
        needs.new.len() as u64 * u64::from(self.fs.vol.geo.block_size)
    }

    /// Whether one transaction and the memory can hold the change together with earlier ones.
    fn has_room(&self, needs: &Needs) -> bool {
        self.fits(needs.total) && self.has_memory(self.bytes_of(needs))
    }

    /// Whether one transaction can hold it.
    pub(super) fn fits(&self, cost: Cost) -> bool {
        self.fs.group_credits(cost) <= self.fs.vol.journal.max_credits()
    }

    /// Blocks that ranges of bytes touch and that the overlay does not hold in memory.
    fn new_blocks(&self, member: &Member, ranges: &[Range<u64>]) -> Vec<u32> {
        let blocks = ranges
            .iter()
            .flat_map(|range| self.fs.data.blocks_of(range));
        let mut new: Vec<u32> = blocks
            .filter_map(|lblk| u32::try_from(lblk).ok())
            .filter(|lblk| member.overlay.page(*lblk).is_none())
            .collect();
        new.dedup();
        new
    }

    /// Prepares a file for this size and for changes of these blocks, from byte `from` on. Returns
    /// their cost and their owner.
    fn prepare(
        &self,
        ctx: &Ctx,
        member: &Member,
        (size, from): (u64, Option<u64>),
        new: &[u32],
    ) -> Result<(Cost, Owner)> {
        let (fs, inode) = (&self.fs, &member.file.inode);
        let mut body = inode.body.write();
        inode.check_alive()?;
        fs.data.check_changeable(&body, from)?;
        if size > fs.data.max_size_of(&body) {
            return Err(FsError::Errno(libc::EFBIG));
        }
        fs.allow_size(size)?;
        let moved = fs.promise_move_out(ctx, &mut body)?;
        fs.data.move_out(inode, &mut body)?;
        drop(moved);
        let cost = fs.blocks_cost(inode, &body, &runs_of(new.iter().copied()))?;
        Ok((cost, body.owner()))
    }

    /// The cost of the commit with these new blocks of a file, and its new size.
    pub(super) fn total(&self, ino: Ino, new: &[u32], size: u64) -> Result<Cost> {
        let mut sum = Cost::default();
        for (nr, member) in &self.members {
            let body = member.file.inode.body.read();
            let (more, size) = match *nr == ino {
                true => (new, size),
                false => (&[][..], member.overlay.size()),
            };
            sum = sum + self.fs.changes_cost(member, &body, more, size)?;
        }
        Ok(sum)
    }

    /// The content of these blocks: read where a range covers only a part of the block, else
    /// zeroes.
    fn load(
        &self,
        member: &Member,
        ranges: &[Range<u64>],
        new: &[u32],
    ) -> Result<Vec<(u32, Box<[u8]>)>> {
        let size = u64::from(self.fs.vol.geo.block_size);
        let edges: Vec<u64> = ranges
            .iter()
            .flat_map(|r| [r.start, r.end])
            .filter(|at| !at.is_multiple_of(size))
            .map(|at| at / size)
            .collect();
        let mut pages = Vec::with_capacity(new.len());
        for lblk in new {
            let mut page = vec![0; to_usize(size)].into_boxed_slice();
            if edges.contains(&u64::from(*lblk)) {
                let at = u64::from(*lblk) * size;
                self.read_below(member, at, &mut page)?;
                self.read_early(member, at, &mut page)?;
            }
            pages.push((*lblk, page));
        }
        Ok(pages)
    }

    /// Promises space for the commit; takes the cost from `exact` if there is too little space for
    /// `total`. Returns the cost, and the clusters promised.
    fn promise(
        &self,
        ctx: &Ctx,
        mut total: Cost,
        exact: impl Fn() -> Result<Cost>,
    ) -> Result<(Cost, u64)> {
        let is_privileged = self.fs.space.privileged(ctx);
        let more = |total: Cost| {
            let want = total.space().saturating_sub(self.promised);
            self.fs.space.reserve(want, is_privileged)
        };
        let room = match more(total) {
            Err(FsError::Errno(libc::ENOSPC)) => {
                total = exact()?;
                more(total)?
            }
            room => room?,
        };
        Ok((total, self.promised + room.keep()))
    }
}
