//! Whether the commit of a group will have room for a change: found out before it is made.

use std::ops::Range;

use stetfs_ondisk::num::to_usize;

use super::overlay::runs_of;
use super::price::Cost;
use super::{AtomicGroup, Member};
use crate::error::{FsError, Result};
use crate::quota::Owner;
use crate::types::{Ctx, Ino};

/// The needs of a change of a file, as the group is now.
struct Needs {
    /// Blocks that come into memory.
    new: Vec<u32>,
    /// The cost of the commit then.
    total: Cost,
    /// Of that, whether the change adds clusters, and whose they are.
    adds_clusters: bool,
    owner: Owner,
}

impl AtomicGroup {
    /// Sees to it that these ranges of bytes, ascending, can be changed, and that the file can have
    /// this size: their blocks are in memory then, with what was there, and the commit can do it.
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
            // Pages that were in memory are not any more.
            needs = self.needs(ctx, ino, size, ranges)?;
        }
        if !self.fits(needs.total) {
            // Early blocks that were changed since count no more.
            self.count_early()?;
            needs.total = self.total(ino, &needs.new, size)?;
        }
        if !self.fits(needs.total) {
            return Err(self.full());
        }
        let pages = self.load(self.member(ino)?, ranges, &needs.new)?;
        if needs.adds_clusters {
            // As if all new blocks of the group were one owner's. The promise ends at once: at the
            // commit nobody asks for limits again.
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

    /// The needs of a change of these ranges of a file that is to have this size.
    fn needs(&self, ctx: &Ctx, ino: Ino, size: u64, ranges: &[Range<u64>]) -> Result<Needs> {
        let member = self.member(ino)?;
        let new = self.new_blocks(member, ranges);
        let from = ranges.first().map(|range| range.start);
        let (more, owner) = self.prepare(ctx, member, (size, from), &new)?;
        let mut total = self.cost + more;
        // Blocks that were cut off, and come to be within the file again, have to be taken away.
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

    /// Whether one transaction and memory hold it beside what is there.
    fn has_room(&self, needs: &Needs) -> bool {
        self.fits(needs.total) && self.has_memory(self.bytes_of(needs))
    }

    /// Whether one transaction can hold it.
    pub(super) fn fits(&self, cost: Cost) -> bool {
        self.fs.group_credits(cost) <= self.fs.vol.journal.max_credits()
    }

    /// Blocks that ranges of bytes touch and that the overlay does not have in memory.
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

    /// Makes ready for a file to have this size and these blocks changed, from that byte on. Gives
    /// what they take, and whose they will be.
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

    /// What the commit takes with these new blocks of a file, and its new size.
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

    /// The content of these blocks where a range covers only a part of them, else zeroes.
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

    /// Has space promised for the commit, as `exact` says if there is too little for `total`. Gives
    /// what it takes, and clusters promised.
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
