//! Model test of the data ledger: against a slow model in which each block has its own state.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use stetfs_journal::{CommitPoint, Lane, TxId};
use stetfs_testkit::Mkfs;

use super::*;
use crate::testing::{mkfs, open};

const BLOCKS: u32 = 8;
/// Home location of the first block; the others follow.
const HOME: u64 = 2000;

#[derive(Clone, Debug)]
enum Step {
    /// These blocks change; a transaction may make them reachable and new.
    Change(BTreeSet<u32>, Option<u64>),
    /// Dirty blocks from here on are taken for write-back, so many at most.
    Take(u32, usize),
    /// The write-back of the taken blocks ends; these blocks failed.
    Answer(BTreeSet<u32>),
    /// A transaction frees a range.
    Free(u32, u32, u64),
    /// A record holds those of these blocks that are dirty, or older in an earlier record.
    Record(BTreeSet<u32>),
    /// A record holds all of these blocks, of a file whose data is journaled: only dirty ones are
    /// written back outside the journal.
    RecordDirty(BTreeSet<u32>),
    /// The oldest records end, so many of them.
    Forget(u64),
    TakeLost,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let blocks = || prop::collection::btree_set(0..BLOCKS, 1..4);
    let tx = 1..4u64;
    let step = prop_oneof![
        4 => (blocks(), prop::option::of(tx.clone())).prop_map(|(b, tx)| Step::Change(b, tx)),
        3 => (0..BLOCKS, 1..6usize).prop_map(|(from, room)| Step::Take(from, room)),
        4 => prop::collection::btree_set(0..BLOCKS, 0..6).prop_map(Step::Answer),
        2 => (0..BLOCKS, 1..4u32, tx).prop_map(|(at, len, tx)| Step::Free(at, at + len, tx)),
        3 => blocks().prop_map(Step::Record),
        1 => blocks().prop_map(Step::RecordDirty),
        1 => (0..3u64).prop_map(Step::Forget),
        2 => Just(Step::TakeLost),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Clone, Copy, Default)]
struct Block {
    dirty: bool,
    fresh: bool,
    /// It is being written back, and was new when it was taken or not.
    leaving: Option<bool>,
    lost: bool,
    /// Stamp of its newest record, and whether the record holds its present state.
    record: Option<(u64, bool)>,
}

#[derive(Default)]
struct Model {
    blocks: [Block; BLOCKS as usize],
    /// Transactions that made blocks reachable since the file was last clean, in order.
    ordered: Vec<u64>,
    stamp: u64,
    horizon: u64,
}

impl Model {
    fn which(&self, is: impl Fn(&Block) -> bool) -> Vec<u32> {
        (0..BLOCKS)
            .filter(|b| is(&self.blocks[*b as usize]))
            .collect()
    }

    fn leaves(&self) -> bool {
        self.blocks.iter().any(|b| b.leaving.is_some())
    }

    /// Dirty blocks whose present state is in no record.
    fn unlogged(&self) -> Vec<u32> {
        self.which(|b| b.dirty && b.record.is_none_or(|(_, current)| !current))
    }

    fn is_older(block: &Block) -> bool {
        block.record.is_some_and(|(_, current)| !current)
    }

    fn rest(&mut self) {
        if !self.blocks.iter().any(|b| b.dirty || b.leaving.is_some()) {
            self.ordered.clear();
        }
    }
}

fn point(tx: u64) -> CommitPoint {
    let lane = Lane(0);
    TxId { lane, seq: tx }.into()
}

/// The model and the ledger under the same steps.
struct Pair<'a> {
    fs: &'a crate::fs::Fs,
    model: Model,
    ledger: DataLedger,
    leaving: Vec<Leaving>,
}

impl Pair<'_> {
    fn change(&mut self, which: &BTreeSet<u32>, tx: Option<u64>) {
        let new = which
            .iter()
            .filter(|b| !self.model.blocks[**b as usize].dirty)
            .count();
        let changed = which.iter().map(|lblk| Changed {
            lblk: *lblk,
            block: self.fs.vol.cache.read(HOME + u64::from(*lblk)).unwrap(),
            fresh: tx.is_some(),
        });
        let changed: Vec<_> = changed.collect();
        assert_eq!(self.ledger.change(changed, tx.map(point)), new as u64);
        for lblk in which {
            let block = &mut self.model.blocks[*lblk as usize];
            if !block.dirty {
                (block.dirty, block.fresh) = (true, tx.is_some());
            }
            block.record = block.record.map(|(stamp, _)| (stamp, false));
        }
        self.model.ordered.extend(tx);
    }

    fn take(&mut self, from: u32, room: usize) {
        let all = self.model.which(|b| b.dirty);
        let mut rest = all.into_iter().filter(|lblk| *lblk >= from);
        let expected: Vec<u32> = rest.by_ref().take(room).collect();
        let leaving = &mut self.leaving;
        let before = leaving.len();
        let next = self
            .ledger
            .take(from, BLOCKS, room, |block| leaving.push(block));
        let taken: Vec<u32> = leaving[before..].iter().map(|l| l.lblk).collect();
        assert_eq!((&taken, next), (&expected, rest.next()));
        for lblk in taken {
            let block = &mut self.model.blocks[lblk as usize];
            (block.dirty, block.leaving) = (false, Some(block.fresh));
        }
    }

    fn answer(&mut self, failed: &BTreeSet<u32>) {
        for leaving in self.leaving.iter().filter(|l| failed.contains(&l.lblk)) {
            let block = &mut self.model.blocks[leaving.lblk as usize];
            assert_eq!(Some(self.ledger.was_lost(leaving)), block.leaving);
            block.lost |= block.leaving == Some(true);
        }
        for leaving in self.leaving.iter().filter(|l| !failed.contains(&l.lblk)) {
            self.ledger.replaced(leaving.lblk);
            self.model.blocks[leaving.lblk as usize].lost = false;
        }
        let mark = || self.fs.vol.journal.flush_mark();
        self.ledger.came_home(self.leaving.len(), mark);
        self.leaving.clear();
        self.model.blocks.iter_mut().for_each(|b| b.leaving = None);
        self.model.rest();
    }

    fn free(&mut self, from: u32, end: u32, tx: u64) {
        let range = || from..end;
        let dirty = self.model.which(|b| b.dirty);
        let dirty = dirty.iter().filter(|lblk| range().contains(lblk)).count();
        let expected = match &self.model.ordered[..] {
            _ if dirty == 0 => Dropping::Nothing,
            [.., last] if *last != tx => Dropping::Awaited,
            all if all.iter().any(|other| *other != tx) => Dropping::AwaitedBefore,
            _ => Dropping::Free,
        };
        assert_eq!(self.ledger.dropping(&range(), &point(tx)), expected);
        assert_eq!(self.ledger.free(range()), dirty as u64);
        for lblk in range().filter(|lblk| *lblk < BLOCKS) {
            let block = &mut self.model.blocks[lblk as usize];
            (block.dirty, block.lost) = (false, false);
        }
        self.model.rest();
    }

    fn record_dirty(&mut self, which: &BTreeSet<u32>) {
        self.model.stamp += 1;
        let stamp = self.model.stamp;
        let leaves = self.model.leaves();
        self.ledger.record_dirty(which.iter().copied(), stamp);
        for lblk in which {
            let block = &mut self.model.blocks[*lblk as usize];
            if block.dirty || leaves {
                block.record = Some((stamp, true));
            }
        }
    }

    fn record(&mut self, which: &BTreeSet<u32>) {
        self.model.stamp += 1;
        let stamp = self.model.stamp;
        // As in a sync: the blocks to log, and those that a recovery would put back.
        let held: Vec<u32> = self.model.which(|b| b.dirty || Model::is_older(b));
        let held: Vec<u32> = held.into_iter().filter(|b| which.contains(b)).collect();
        self.ledger.record(held.iter().copied(), stamp);
        for lblk in held {
            self.model.blocks[lblk as usize].record = Some((stamp, true));
        }
    }

    fn forget(&mut self, count: u64) {
        let horizon = (self.model.horizon + count).min(self.model.stamp);
        self.model.horizon = horizon;
        for block in &mut self.model.blocks {
            block.record = block.record.filter(|(stamp, _)| *stamp > horizon);
        }
    }

    fn take_lost(&mut self) {
        let expected = self.model.which(|b| b.lost && !b.dirty);
        for block in &mut self.model.blocks {
            block.fresh |= block.lost && block.dirty;
            block.lost = false;
        }
        assert!(self.ledger.take_lost().into_keys().eq(expected));
    }

    /// Compares the answers to a transaction that is about to journal a block.
    fn compare_overwriting(&self) {
        let model = &self.model;
        for (tx, lblk) in (1..4u64).flat_map(|tx| (0..BLOCKS).map(move |lblk| (tx, lblk))) {
            let block = model.blocks[lblk as usize];
            let alone = !model.ordered.is_empty() && model.ordered.iter().all(|by| *by == tx);
            let expected = match block.dirty {
                true if alone => Overwriting::Own,
                true => Overwriting::Awaited,
                false if block.lost || model.leaves() => Overwriting::Leaving,
                false => Overwriting::Home,
            };
            assert_eq!(self.ledger.overwriting(lblk, &point(tx)), expected);
        }
    }

    /// Compares the answers to a sync.
    fn compare(&mut self) {
        let model = &self.model;
        let horizon = model.horizon;
        let said = self
            .ledger
            .unlogged(usize::MAX, horizon, |s| s > horizon, |_| true);
        let pages = said.pages.unwrap();
        let homes = pages
            .iter()
            .all(|(lblk, nr, _)| *nr == HOME + u64::from(*lblk));
        let pages: Vec<u32> = pages.iter().map(|(lblk, ..)| *lblk).collect();
        assert!(homes && pages == model.unlogged(), "{pages:?}");
        assert_eq!(said.stale, model.which(|b| Model::is_older(b) && !b.dirty));
        assert_eq!(said.superseding, model.blocks.iter().any(Model::is_older));
        assert!(!said.unflushed);
        let limited = self.ledger.unlogged(0, horizon, |s| s > horizon, |_| true);
        assert_eq!(limited.pages.is_none(), !pages.is_empty());
        for lblk in 0..BLOCKS {
            let record = model.blocks[lblk as usize].record;
            assert_eq!(self.ledger.record_of(lblk), record.map(|(stamp, _)| stamp));
        }
        assert_eq!(self.ledger.last(), model.which(|b| b.dirty).last().copied());
        assert_eq!(self.ledger.has_lost(), model.blocks.iter().any(|b| b.lost));
    }
}

/// durability.L1 to durability.L4.
#[test]
fn it_says_what_a_slow_model_says() {
    let fs = open(&mkfs(32, &Mkfs::blocks(4096)));
    proptest!(ProptestConfig::with_cases(2000), |(steps in steps())| {
        let mut pair = Pair {
            fs: &fs,
            model: Model::default(),
            ledger: DataLedger::default(),
            leaving: Vec::new(),
        };
        for step in &steps {
            // While blocks are written back the write-back lock is held, so these steps would wait.
            let leaves = pair.model.leaves();
            match step {
                Step::Change(blocks, tx) => pair.change(blocks, *tx),
                Step::Take(from, room) if !leaves => pair.take(*from, *room),
                Step::Answer(failed) => pair.answer(failed),
                Step::Free(from, end, tx) if !leaves => pair.free(*from, *end, *tx),
                Step::Record(blocks) if !leaves => pair.record(blocks),
                // A record of a file whose data is journaled does not wait.
                Step::RecordDirty(blocks) => pair.record_dirty(blocks),
                Step::Forget(count) => pair.forget(*count),
                Step::TakeLost => pair.take_lost(),
                Step::Take(..) | Step::Free(..) | Step::Record(_) => {}
            }
            pair.compare_overwriting();
            if !pair.model.leaves() {
                pair.compare();
            }
        }
    });
}
