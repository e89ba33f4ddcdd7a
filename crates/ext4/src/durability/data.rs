//! `DataLedger`: the place of the newest content of each block of a file.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use stetfs_cache::PageRef;
use stetfs_journal::{Block, BlockNr, CommitPoint, FlushMark, Stamp};
use stetfs_sync::timed::Instant;

use super::recorded::Recorded;

/// Ledgers with more blocks than this skip the full check of the invariants.
const CHECKED: usize = 64;

/// A data block that was changed.
pub(crate) struct Changed {
    pub(crate) lblk: u32,
    pub(crate) block: Arc<Block>,
    /// The home location holds nothing of the file yet.
    pub(crate) fresh: bool,
}

/// The ledger of one file's data. The module documentation lists its verbs.
#[derive(Default)]
pub(crate) struct DataLedger {
    /// Dirty blocks, by file block.
    dirty: BTreeMap<u32, Dirty>,
    /// New blocks whose data could not be written and which are no longer dirty. They are held so
    /// that the cache keeps them, because the device does not have the file's content there.
    lost: BTreeMap<u32, Arc<Block>>,
    /// Number of blocks that are being written back, with the result still open.
    leaving: usize,
    /// Blocks that were new when they became dirty, since the file was last written back as a
    /// stream.
    behind: u64,
    /// The time at which the oldest dirty block is to be written back; `None` while a thread writes
    /// them back.
    due: Option<Instant>,
    /// The transaction that last made blocks of this ledger reachable. It commits only after their
    /// data is written.
    ordered: Option<CommitPoint>,
    /// An earlier transaction also made blocks reachable; it may be committing and waiting for
    /// their data.
    ordered_before: bool,
    /// The blocks that records hold; `None` if the file has no records.
    records: Option<Records>,
    /// Blocks were written back since the device was last known to be flushed.
    unflushed: Option<FlushMark>,
}

struct Dirty {
    block: Arc<Block>,
    /// The home location holds nothing of the file yet.
    fresh: bool,
}

#[derive(Default)]
struct Records {
    held: Recorded,
    /// durability.L1
    unlogged: BTreeSet<u32>,
}

impl Records {
    /// The records of a file with these dirty blocks. When they are new, no record holds any of the
    /// blocks.
    fn of<'r>(records: &'r mut Option<Records>, dirty: &BTreeMap<u32, Dirty>) -> &'r mut Records {
        records.get_or_insert_with(|| Records {
            unlogged: dirty.keys().copied().collect(),
            ..Records::default()
        })
    }
}

/// A block that is being written back.
pub(crate) struct Leaving {
    pub(crate) lblk: u32,
    /// Held so that the cache keeps the block.
    pub(crate) block: Arc<Block>,
    /// The snapshot that is written.
    pub(crate) page: PageRef,
    fresh: bool,
}

/// The condition for freeing blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropping {
    /// None of the blocks is dirty or being written back.
    Nothing,
    /// The blocks can be freed at once.
    Free,
    /// Another transaction made some reachable, and may commit without the transaction that frees
    /// them.
    Awaited,
    /// Both the freeing transaction and an earlier one made some reachable; the earlier one may
    /// commit first.
    AwaitedBefore,
}

/// The place of the newest content of a block that a transaction is about to journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overwriting {
    /// Dirty, and only this transaction made dirty blocks reachable: the block may change again
    /// before it is written back.
    Own,
    /// Dirty, and an earlier transaction may commit with the present content of the block.
    Awaited,
    /// The block, or others of the file, are being written back.
    Leaving,
    /// At its home location, or in a transaction.
    Home,
}

/// The dirty data of a file that no record holds.
pub(crate) struct Unlogged {
    /// File block, block number and content; `None` if there is too much for a record.
    pub(crate) pages: Option<Vec<(u32, BlockNr, PageRef)>>,
    /// A live record holds older content of one of these blocks or of the `stale` ones. A recovery
    /// would write that content over the newer one.
    pub(crate) superseding: bool,
    /// Blocks that are no longer dirty, but of which a live record holds older content: they were
    /// written back for a transaction that is not yet valid.
    pub(crate) stale: Vec<u32>,
    /// Blocks that were written back earlier may not be durable.
    pub(crate) unflushed: bool,
}

impl Unlogged {
    /// No dirty data outside records.
    pub(crate) fn nothing() -> Unlogged {
        Unlogged {
            pages: Some(Vec::new()),
            superseding: false,
            stale: Vec::new(),
            unflushed: false,
        }
    }
}

impl DataLedger {
    /// Keeps track of records from here on.
    pub(crate) fn keep_records(&mut self) {
        Records::of(&mut self.records, &self.dirty);
    }

    /// Notes changed blocks. If a transaction made them reachable, `reachable_by` names it. Returns
    /// how many were not dirty before.
    pub(crate) fn change(
        &mut self,
        blocks: Vec<Changed>,
        reachable_by: Option<CommitPoint>,
    ) -> u64 {
        let mut new = 0;
        for Changed { lblk, block, fresh } in blocks {
            if let Some(records) = &mut self.records {
                records.held.changed(lblk);
                records.unlogged.insert(lblk);
            }
            match self.dirty.entry(lblk) {
                Entry::Occupied(mut dirty) => dirty.get_mut().block = block,
                Entry::Vacant(place) => {
                    place.insert(Dirty { block, fresh });
                    new += 1;
                }
            }
        }
        if let Some(point) = reachable_by {
            self.ordered_before |= self.ordered.as_ref().is_some_and(|old| *old != point);
            self.ordered = Some(point);
        }
        self.check();
        new
    }

    /// Takes dirty blocks out for write-back, from `from` to `last`, at most `room`, and passes
    /// them to `out`. Returns the block to continue with, or `None` when there are no more.
    pub(crate) fn take(
        &mut self,
        from: u32,
        last: u32,
        room: usize,
        mut out: impl FnMut(Leaving),
    ) -> Option<u32> {
        if self.dirty.is_empty() || from > last {
            return None;
        }
        let mut rest = self.dirty.split_off(&from);
        let mut next = None;
        let mut taken = 0;
        while let Some(entry) = rest.first_entry() {
            if *entry.key() > last {
                break;
            }
            if taken >= room {
                next = Some(*entry.key());
                break;
            }
            let (lblk, Dirty { block, fresh }) = entry.remove_entry();
            if let Some(records) = &mut self.records {
                records.unlogged.remove(&lblk);
            }
            if let Some(page) = block.page() {
                taken += 1;
                out(Leaving {
                    lblk,
                    block,
                    page,
                    fresh,
                });
            }
        }
        self.dirty.append(&mut rest);
        self.leaving += taken;
        self.check();
        next
    }

    /// Forgets the lost content of a block: newer content has replaced it.
    pub(crate) fn replaced(&mut self, lblk: u32) {
        self.lost.remove(&lblk);
    }

    /// Ends the write-back of `count` blocks: they are at their home locations, or reported as
    /// lost. The device received them before `mark`.
    pub(crate) fn came_home(&mut self, count: usize, mark: impl FnOnce() -> FlushMark) {
        debug_assert!(count <= self.leaving, "durability.L3: they were not taken");
        self.leaving = self.leaving.saturating_sub(count);
        if count > 0 {
            self.unflushed = Some(mark());
        }
        self.is_awaited_no_more();
        self.check();
    }

    /// Notes that a block could not be written. Returns whether its home location holds nothing of
    /// the file.
    pub(crate) fn was_lost(&mut self, block: &Leaving) -> bool {
        if block.fresh {
            self.lost.insert(block.lblk, Arc::clone(&block.block));
        }
        block.fresh
    }

    /// The condition for the transaction `by` to free this range of file blocks.
    pub(crate) fn dropping(&self, range: &Range<u32>, by: &CommitPoint) -> Dropping {
        let is_any = self.leaving > 0 || self.dirty.range(range.clone()).next().is_some();
        match is_any {
            false => Dropping::Nothing,
            true if self.ordered.as_ref().is_some_and(|p| p != by) => Dropping::Awaited,
            true if self.ordered_before => Dropping::AwaitedBefore,
            true => Dropping::Free,
        }
    }

    /// The place of the newest content of a block that the transaction `by` is about to journal.
    pub(crate) fn overwriting(&self, lblk: u32, by: &CommitPoint) -> Overwriting {
        let own = !self.ordered_before && self.ordered.as_ref() == Some(by);
        match self.dirty.contains_key(&lblk) {
            true if own => Overwriting::Own,
            true => Overwriting::Awaited,
            false if self.leaving > 0 || self.lost.contains_key(&lblk) => Overwriting::Leaving,
            false => Overwriting::Home,
        }
    }

    /// Forgets a range of file blocks. Returns how many of them were dirty.
    pub(crate) fn free(&mut self, range: Range<u32>) -> u64 {
        let mut gone = self.dirty.split_off(&range.start);
        let mut kept = gone.split_off(&range.end);
        self.dirty.append(&mut kept);
        if let Some(records) = &mut self.records {
            for lblk in gone.keys() {
                records.unlogged.remove(lblk);
            }
        }
        self.lost.retain(|lblk, _| !range.contains(lblk));
        if self.dirty.is_empty() {
            self.due = None;
        }
        self.is_awaited_no_more();
        self.check();
        gone.len() as u64
    }

    /// Notes that the record with this stamp holds these blocks as they are.
    pub(crate) fn record(&mut self, blocks: impl Iterator<Item = u32>, record: Stamp) {
        let records = Records::of(&mut self.records, &self.dirty);
        for lblk in blocks {
            records.held.add(lblk, record);
            records.unlogged.remove(&lblk);
        }
        self.check();
    }

    /// [`record`](Self::record) for those of the blocks that are dirty or being written back: if
    /// the write-back fails, only the record has their content.
    pub(crate) fn record_dirty(&mut self, blocks: impl Iterator<Item = u32>, record: Stamp) {
        let leaves = self.leaving > 0;
        let blocks = blocks.filter(|lblk| leaves || self.dirty.contains_key(lblk));
        let blocks: Vec<u32> = blocks.collect();
        self.record(blocks.into_iter(), record);
    }

    /// Forgets records up to `horizon`, and records that are not alive.
    pub(crate) fn prune(&mut self, horizon: Stamp, is_alive: impl Fn(Stamp) -> bool) {
        let Records { held, unlogged } = Records::of(&mut self.records, &self.dirty);
        held.prune(horizon, is_alive, |lblk| {
            if self.dirty.contains_key(&lblk) {
                unlogged.insert(lblk);
            }
        });
    }

    /// The dirty data that no record holds, up to `most` blocks, after [`prune`](Self::prune);
    /// `is_flushed` tells what is durable. No write-back is under way, because the caller holds the
    /// write-back lock.
    pub(crate) fn unlogged(
        &mut self,
        most: usize,
        horizon: Stamp,
        is_alive: impl Fn(Stamp) -> bool,
        is_flushed: impl Fn(FlushMark) -> bool,
    ) -> Unlogged {
        self.unflushed = self.unflushed.filter(|mark| !is_flushed(*mark));
        let mut out = Unlogged {
            pages: Some(Vec::new()),
            superseding: false,
            stale: Vec::new(),
            unflushed: self.unflushed.is_some(),
        };
        self.prune(horizon, is_alive);
        let Records { held, unlogged } = Records::of(&mut self.records, &self.dirty);
        out.superseding = !held.older().is_empty();
        let older = held.older().iter();
        let stale = older.filter(|lblk| !self.dirty.contains_key(lblk));
        out.stale.extend(stale);
        if unlogged.len() > most {
            out.pages = None;
        }
        if let Some(pages) = &mut out.pages {
            let dirty = |lblk: &u32| Some((*lblk, &self.dirty.get(lblk)?.block));
            let page = |(lblk, block): (u32, &Arc<Block>)| Some((lblk, block.nr(), block.page()?));
            pages.extend(unlogged.iter().filter_map(dirty).filter_map(page));
        }
        debug_assert!(self.is_consistent(), "durability.L1, durability.L2");
        out
    }

    /// The newest record that holds the block, in its present or an older state.
    pub(crate) fn record_of(&self, lblk: u32) -> Option<Stamp> {
        self.records.as_ref()?.held.of(lblk)
    }

    /// Takes the lost blocks, except those that have newer data. The caller holds the inode's lock,
    /// so no more blocks are lost meanwhile.
    pub(crate) fn take_lost(&mut self) -> BTreeMap<u32, Arc<Block>> {
        let mut lost = std::mem::take(&mut self.lost);
        lost.retain(|lblk, _| match self.dirty.get_mut(lblk) {
            Some(dirty) => {
                dirty.fresh = true;
                false
            }
            None => true,
        });
        lost
    }

    /// Puts back blocks from [`take_lost`](Self::take_lost).
    pub(crate) fn lose_again(&mut self, mut lost: BTreeMap<u32, Arc<Block>>) {
        self.lost.append(&mut lost);
    }

    /// Forgets lost blocks of a range that is about to be freed.
    pub(crate) fn forget_lost(&mut self, range: &Range<u32>) {
        self.lost.retain(|lblk, _| !range.contains(lblk));
    }

    /// Whether there is a lost block.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether there is a dirty block.
    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The number of dirty blocks.
    pub(crate) fn dirty_blocks(&self) -> u64 {
        self.dirty.len() as u64
    }

    /// Whether a write-back is under way.
    pub(crate) fn has_leaving(&self) -> bool {
        self.leaving > 0
    }

    /// The dirty block with the highest number.
    pub(crate) fn last(&self) -> Option<u32> {
        self.dirty.last_key_value().map(|(lblk, _)| *lblk)
    }

    /// Sets the time at which dirty data is to be written back, unless an earlier one is set;
    /// `None` sets no time.
    pub(crate) fn is_due_at(&mut self, due: Option<Instant>) {
        self.due = match (self.due, due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// The time at which dirty data is to be written back.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Clears that time, because a thread writes the data back now. Data that becomes dirty later
    /// gets its own time.
    pub(crate) fn is_seen_to(&mut self) {
        self.due = None;
    }

    /// Counts new blocks. Returns true once for every `most` blocks: the file is written as a
    /// stream.
    pub(crate) fn is_stream(&mut self, added: u64, most: u64) -> bool {
        self.behind += added;
        let is_stream = self.behind >= most;
        if is_stream {
            self.behind = 0;
        }
        is_stream
    }

    /// durability.L4
    fn is_awaited_no_more(&mut self) {
        if self.dirty.is_empty() && self.leaving == 0 {
            self.ordered = None;
            self.ordered_before = false;
        }
    }

    /// Asserts the invariants if that is cheap.
    fn check(&self) {
        debug_assert!(
            self.dirty.len() > CHECKED || self.is_consistent(),
            "durability.L1, durability.L2, durability.L4"
        );
    }

    fn is_consistent(&self) -> bool {
        let ordered = self.ordered.is_some() || self.ordered_before;
        let unordered = !ordered || self.has_dirty() || self.has_leaving();
        unordered
            && self.records.as_ref().is_none_or(|records| {
                let unlogged = |lblk: &&u32| !records.held.is_current(**lblk);
                let consistent = self.dirty.keys().filter(unlogged).eq(&records.unlogged);
                consistent && records.held.is_consistent()
            })
    }

    /// Simulates an earlier transaction that waits for the data.
    #[cfg(test)]
    pub(crate) fn was_ordered_before(&mut self) {
        self.ordered_before = true;
    }
}
