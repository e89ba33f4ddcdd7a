//! Where the newest content of each block of a file is.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use stetfs_cache::PageRef;
use stetfs_journal::{Block, BlockNr, CommitPoint, FlushMark, Stamp};

use super::recorded::Recorded;

/// Full checks of the invariants are for ledgers of at most so many blocks.
const CHECKED: usize = 64;

/// A data block that was changed.
pub(crate) struct Changed {
    pub(crate) lblk: u32,
    pub(crate) block: Arc<Block>,
    /// Its home holds nothing of the file yet.
    pub(crate) fresh: bool,
}

/// The ledger of one file's data. See the module for its verbs.
#[derive(Default)]
pub(crate) struct DataLedger {
    /// By file block.
    dirty: BTreeMap<u32, Dirty>,
    /// New blocks whose data could not be written, and is not dirty any more. They are held, so
    /// that the cache keeps them: what the device has there is not the file's.
    lost: BTreeMap<u32, Arc<Block>>,
    /// Blocks that were taken, and are not answered for.
    leaving: usize,
    /// Blocks that were new when they became dirty, since the file was last sent after its writer.
    behind: u64,
    /// When the oldest is to go home by itself; none while somebody sees to that.
    due: Option<Instant>,
    /// The transaction that last made blocks of this ledger reachable; it commits only after them.
    ordered: Option<CommitPoint>,
    /// So did an earlier one, which may be committing and still wait for its part.
    ordered_before: bool,
    /// What records hold; none where files have no records.
    records: Option<Records>,
    /// Blocks went home since the device was last known to be flushed.
    unflushed: Option<FlushMark>,
}

struct Dirty {
    block: Arc<Block>,
    /// Its home holds nothing of the file yet.
    fresh: bool,
}

#[derive(Default)]
struct Records {
    held: Recorded,
    /// durability.L1
    unlogged: BTreeSet<u32>,
}

impl Records {
    /// Those of a file with these dirty blocks; none of them is in a record yet if they are new.
    fn of<'r>(records: &'r mut Option<Records>, dirty: &BTreeMap<u32, Dirty>) -> &'r mut Records {
        records.get_or_insert_with(|| Records {
            unlogged: dirty.keys().copied().collect(),
            ..Records::default()
        })
    }
}

/// A block on its way home.
pub(crate) struct Leaving {
    pub(crate) lblk: u32,
    /// Held, so that the cache keeps it.
    pub(crate) block: Arc<Block>,
    /// The snapshot that is written.
    pub(crate) page: PageRef,
    fresh: bool,
}

/// What stands in the way of freeing blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropping {
    /// None of them is dirty or leaving.
    Nothing,
    /// Nothing.
    Free,
    /// Another transaction made some reachable, and may commit without the one that frees them.
    Awaited,
    /// So did one before the one that frees them, which made some reachable itself.
    AwaitedBefore,
}

/// Where the newest content is of a block that a transaction is about to journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overwriting {
    /// Dirty, and what is dirty was made reachable by this transaction alone: the block may change
    /// once more on its way home.
    Own,
    /// Dirty, and an earlier transaction may commit with what the block holds now.
    Awaited,
    /// It, or others of the file, are on their way home.
    Leaving,
    /// At home, or in a transaction.
    Home,
}

/// The dirty data of a file that no record holds.
pub(crate) struct Unlogged {
    /// File block, and its content; `None` if it is too much.
    pub(crate) pages: Option<Vec<(u32, BlockNr, PageRef)>>,
    /// A record that is still alive holds older content of one of them, or of these blocks, which
    /// are not dirty any more: they went home for a transaction that is not valid, and a
    /// recovery would put the older content there.
    pub(crate) superseding: bool,
    /// See `superseding`.
    pub(crate) stale: Vec<u32>,
    /// What went home before may not be durable.
    pub(crate) unflushed: bool,
}

impl Unlogged {
    /// None.
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
    /// From here on records hold some of the file.
    pub(crate) fn keep_records(&mut self) {
        Records::of(&mut self.records, &self.dirty);
    }

    /// Blocks were changed; those that a transaction made reachable by `reachable_by`. Gives how
    /// many were not dirty before.
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

    /// Takes out dirty blocks from `from` to `last`, at most `room`, and adds them to `out`. Gives
    /// where to go on, or `None` when there are no more.
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

    /// What was lost of a block has newer content in its place.
    pub(crate) fn replaced(&mut self, lblk: u32) {
        self.lost.remove(&lblk);
    }

    /// `count` of the blocks that were taken are at home, or said to be lost; the device had got
    /// them before the `mark`.
    pub(crate) fn came_home(&mut self, count: usize, mark: impl FnOnce() -> FlushMark) {
        debug_assert!(count <= self.leaving, "durability.L3: they were not taken");
        self.leaving = self.leaving.saturating_sub(count);
        if count > 0 {
            self.unflushed = Some(mark());
        }
        self.is_awaited_no_more();
        self.check();
    }

    /// A block could not be written. Says whether that leaves a block without content.
    pub(crate) fn was_lost(&mut self, block: &Leaving) -> bool {
        if block.fresh {
            self.lost.insert(block.lblk, Arc::clone(&block.block));
        }
        block.fresh
    }

    /// What freeing this range of file blocks in the transaction `by` has to wait for.
    pub(crate) fn dropping(&self, range: &Range<u32>, by: &CommitPoint) -> Dropping {
        let is_any = self.leaving > 0 || self.dirty.range(range.clone()).next().is_some();
        match is_any {
            false => Dropping::Nothing,
            true if self.ordered.as_ref().is_some_and(|p| p != by) => Dropping::Awaited,
            true if self.ordered_before => Dropping::AwaitedBefore,
            true => Dropping::Free,
        }
    }

    /// Where the newest content of a block is that the transaction `by` is about to journal.
    pub(crate) fn overwriting(&self, lblk: u32, by: &CommitPoint) -> Overwriting {
        let own = !self.ordered_before && self.ordered.as_ref() == Some(by);
        match self.dirty.contains_key(&lblk) {
            true if own => Overwriting::Own,
            true => Overwriting::Awaited,
            false if self.leaving > 0 || self.lost.contains_key(&lblk) => Overwriting::Leaving,
            false => Overwriting::Home,
        }
    }

    /// Forgets a range of file blocks. Gives how many of them were dirty.
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

    /// The record with this stamp holds these blocks as they are.
    pub(crate) fn record(&mut self, blocks: impl Iterator<Item = u32>, record: Stamp) {
        let records = Records::of(&mut self.records, &self.dirty);
        for lblk in blocks {
            records.held.add(lblk, record);
            records.unlogged.remove(&lblk);
        }
        self.check();
    }

    /// The same of those among them that are dirty, or on their way home: should they not get
    /// there, the record is all that is left of them.
    pub(crate) fn record_dirty(&mut self, blocks: impl Iterator<Item = u32>, record: Stamp) {
        let leaves = self.leaving > 0;
        let blocks = blocks.filter(|lblk| leaves || self.dirty.contains_key(lblk));
        let blocks: Vec<u32> = blocks.collect();
        self.record(blocks.into_iter(), record);
    }

    /// Forgets records up to `horizon`, and those that are not alive.
    pub(crate) fn prune(&mut self, horizon: Stamp, is_alive: impl Fn(Stamp) -> bool) {
        let Records { held, unlogged } = Records::of(&mut self.records, &self.dirty);
        held.prune(horizon, is_alive, |lblk| {
            if self.dirty.contains_key(&lblk) {
                unlogged.insert(lblk);
            }
        });
    }

    /// The dirty data that no record holds, up to `most` blocks, after [`prune`](Self::prune);
    /// `is_flushed` says what is durable. Nothing is on its way home: the flush lock is held.
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

    /// The newest record that holds the block, as it is or as it was.
    pub(crate) fn record_of(&self, lblk: u32) -> Option<Stamp> {
        self.records.as_ref()?.held.of(lblk)
    }

    /// The lost blocks, but for those that have newer data. The inode's lock is held, so there will
    /// be no more of that.
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

    /// Blocks that [`take_lost`](Self::take_lost) gave are still as they were.
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

    /// How many blocks are dirty.
    pub(crate) fn dirty_blocks(&self) -> u64 {
        self.dirty.len() as u64
    }

    /// Whether a block was taken and is not answered for.
    pub(crate) fn has_leaving(&self) -> bool {
        self.leaving > 0
    }

    /// The last dirty block.
    pub(crate) fn last(&self) -> Option<u32> {
        self.dirty.last_key_value().map(|(lblk, _)| *lblk)
    }

    /// What is dirty is to go home at `due` at the latest; `None` is never.
    pub(crate) fn is_due_at(&mut self, due: Option<Instant>) {
        self.due = match (self.due, due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// When it is.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Somebody sees to what is dirty now; what comes later has an age of its own.
    pub(crate) fn is_seen_to(&mut self) {
        self.due = None;
    }

    /// Counts new blocks. Says whether there are `most` since it last said so: the file is written
    /// as a stream.
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

    /// Asserts the invariants where that is cheap.
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

    /// As if an earlier transaction waited for it.
    #[cfg(test)]
    pub(crate) fn was_ordered_before(&mut self) {
        self.ordered_before = true;
    }
}
