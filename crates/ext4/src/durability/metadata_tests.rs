//! Model test of the metadata ledger: against a slow model that keeps every change. And checks of
//! conditions that every plan must meet.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use stetfs_journal::{CommitPoint, Lane, TxId};

use super::metadata::RANGES;
use super::names::Valid;
use super::*;

/// A change in the running transaction of one of two lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Inode,
    Needed,
    Moved(u32, u32),
    Made,
    NamesChanged,
    Attributes,
    Grouped,
    Reformed,
}

#[derive(Clone, Debug)]
enum Step {
    Change(Change, u16),
    /// The running transaction of a lane becomes valid, and the next begins.
    Commit(u16),
    /// A record is written, if a record can contain the changes.
    Record,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = prop_oneof![
        4 => Just(Change::Inode),
        3 => Just(Change::Needed),
        6 => (0..200u32, 1..9u32).prop_map(|(at, len)| Change::Moved(at, len)),
        1 => Just(Change::Made),
        1 => Just(Change::NamesChanged),
        1 => Just(Change::Attributes),
        1 => Just(Change::Grouped),
        1 => Just(Change::Reformed),
    ];
    let step = prop_oneof![
        8 => (change, 0..2u16).prop_map(|(change, lane)| Step::Change(change, lane)),
        2 => (0..2u16).prop_map(Step::Commit),
        2 => Just(Step::Record),
    ];
    prop::collection::vec(step, 1..150)
}

#[derive(Default)]
struct Model {
    /// Every change, its transaction, and whether a record contains it.
    changes: Vec<(Change, TxId, bool)>,
    /// For each lane, the number of valid transactions.
    valid: [u64; 2],
    superseding: CommitPoint,
}

impl Model {
    fn running(&self, lane: u16) -> TxId {
        TxId {
            lane: Lane(lane),
            seq: self.valid[usize::from(lane)] + 1,
        }
    }

    fn is_valid(&self, tx: TxId) -> bool {
        tx.seq <= self.valid[usize::from(tx.lane.0)]
    }

    /// Changes that are in no valid transaction and in no record.
    fn open(&self) -> impl Iterator<Item = Change> + '_ {
        let open = |(_, tx, recorded): &&(Change, TxId, bool)| !recorded && !self.is_valid(*tx);
        self.changes.iter().filter(open).map(|(change, ..)| *change)
    }

    fn has(&self, wanted: &[Change]) -> bool {
        self.open().any(|change| wanted.contains(&change))
    }

    /// The newest transactions with one of these changes, or which supersede a record.
    fn upto(&self, is_wanted: impl Fn(Change) -> bool) -> CommitPoint {
        let mut all = self.superseding.clone();
        for (_, tx, _) in self.changes.iter().filter(|(c, ..)| is_wanted(*c)) {
            all.add(*tx);
        }
        all
    }
}

fn change(ledger: &mut MetadataLedger, change: Change, point: CommitPoint, valid: &Valid<'_>) {
    ledger.changed(&point);
    match change {
        Change::Inode => ledger.touched(point),
        Change::Needed => {
            ledger.needed(&point);
            ledger.unrecorded_need(point);
        }
        Change::Moved(first, count) => ledger.moved(first, count, point, valid),
        Change::Made => ledger.made(2, b"name", point),
        Change::NamesChanged => ledger.names_changed(point),
        Change::Attributes => ledger.attributes(point),
        Change::Grouped => ledger.grouped(point),
        Change::Reformed => ledger.reformed(point),
    }
}

fn compare(ledger: &mut MetadataLedger, model: &Model) {
    let is_valid = |point: &CommitPoint| point.iter().all(|tx| model.is_valid(tx));
    ledger.prune(&is_valid);
    let open: Vec<Change> = model.open().collect();
    let lazy = |c: &Change| matches!(c, Change::Inode | Change::Attributes);
    assert_eq!(ledger.any(false), !open.is_empty());
    assert_eq!(ledger.any(true), !open.iter().all(lazy));
    // All moved blocks are in the ranges, and none whose change is valid. Other blocks are in them
    // only if there are too many ranges.
    let told: BTreeSet<u64> = ledger.ranges().iter().flat_map(|(a, b)| *a..*b).collect();
    let moved = |change: &Change| match change {
        Change::Moved(first, count) => Some(u64::from(*first)..u64::from(first + count)),
        _ => None,
    };
    let all: BTreeSet<u64> = open.iter().filter_map(moved).flatten().collect();
    assert!(told.is_superset(&all));
    let ever = model.changes.iter().filter(|(c, ..)| moved(c).is_some());
    if ever.count() <= RANGES {
        assert_eq!(told, all);
    }
    assert_eq!(all.is_empty(), told.is_empty());
    let reason = match () {
        () if model.has(&[Change::Grouped]) => Some(SyncReason::Group),
        () if model.has(&[Change::Reformed]) => Some(SyncReason::Map),
        () => None,
    };
    assert_eq!(ledger.needs_commit(), reason);
    let refuses = ledger.refuses_record(1, false);
    match model.has(&[Change::NamesChanged]) {
        true => assert_eq!(refuses, Some(SyncReason::Name)),
        false => assert_eq!(refuses.is_some(), model.has(&[Change::Attributes])),
    }
    assert!(ledger.refuses_record(0, false).is_some());
    let all = |point: &CommitPoint| -> BTreeSet<TxId> { point.iter().collect() };
    assert_eq!(all(ledger.upto(true)), all(&model.upto(|_| true)));
    let needed = model.upto(|c| c == Change::Needed);
    assert_eq!(all(ledger.upto(false)), all(&needed));
}

/// durability.L5.
#[test]
fn the_ledger_of_metadata_says_what_a_slow_model_says() {
    proptest!(ProptestConfig::with_cases(2000), |(steps in steps())| {
        let (mut ledger, mut model) = (MetadataLedger::default(), Model::default());
        for step in &steps {
            match step {
                // An inode is made once, before its other changes.
                Step::Change(Change::Made, _) if !model.changes.is_empty() => continue,
                Step::Change(c, lane) => {
                    let tx = model.running(*lane);
                    model.changes.push((*c, tx, false));
                    // A name that changes again also depends on its earlier transactions.
                    if *c == Change::NamesChanged {
                        let open = model.changes.clone();
                        let other = |(c, tx, done): &&(Change, TxId, bool)| {
                            matches!(c, Change::Made | Change::NamesChanged)
                                && !done && !model.is_valid(*tx)
                        };
                        let others = open.iter().filter(other);
                        let again = others.map(|(_, tx, _)| (Change::NamesChanged, *tx, false));
                        let again: Vec<_> = again.collect();
                        model.changes.extend(again);
                    }
                    let is_valid = |point: &CommitPoint| point.iter().all(|tx| model.is_valid(tx));
                    change(&mut ledger, *c, tx.into(), &is_valid);
                }
                Step::Commit(lane) => model.valid[usize::from(*lane)] += 1,
                Step::Record => {
                    if ledger.needs_commit().or(ledger.refuses_record(1, false)).is_some() {
                        continue;
                    }
                    let mut point = CommitPoint::none();
                    for lane in [0, 1] {
                        point.add(model.running(lane));
                    }
                    ledger.recorded(&point);
                    model.superseding.merge(&point);
                    model.changes.iter_mut().for_each(|(.., recorded)| *recorded = true);
                }
            }
            compare(&mut ledger, &model);
        }
    });
}

/// Forgotten changes count as changes until their transactions are valid.
#[test]
fn what_was_out_of_memory_needs_a_commit_until_it_is_valid() {
    let tx = TxId {
        lane: Lane(0),
        seq: 3,
    };
    let mut ledger = MetadataLedger::after(tx.into());
    ledger.prune(&|point| point.is_none());
    assert_eq!(ledger.needs_commit(), Some(SyncReason::Forgotten));
    assert!(ledger.any(true) && !ledger.names_are_durable(&|point| point.is_none()));
    assert_eq!(*ledger.upto(false), tx.into());
    ledger.prune(&|_| true);
    assert!(!ledger.any(false) && ledger.needs_commit().is_none());
}

fn all_found() -> impl Iterator<Item = Found> {
    let bools = [false, true];
    let blocks = [None, Some(0), Some(3), Some(20), Some(40)];
    (0..32u32).flat_map(move |bits| {
        let is = move |bit: u32| bools[(bits >> bit & 1) as usize];
        blocks.into_iter().flat_map(move |data| {
            // A record that holds an older state must be superseded.
            let stale = if is(3) { 15 } else { 0 };
            [0, stale].map(|stale| Found {
                needs_commit: is(0).then_some(SyncReason::Group),
                changed: is(1),
                refuses_record: is(2).then_some(SyncReason::Name),
                data,
                stale,
                superseding: is(3),
                unflushed: is(4),
            })
        })
    })
}

#[test]
fn no_plan_leaves_out_what_is_not_durable() {
    let mut kinds = BTreeSet::new();
    for (is_short, is_cheap) in [(false, false), (false, true), (true, false), (true, true)] {
        let room = Room {
            most: 32,
            short: 4,
            is_short: || is_short,
            is_cheap,
        };
        for found in all_found() {
            let plan = found.plan(&room);
            kinds.insert(format!("{plan:?}"));
            let only_data = !found.changed && !found.superseding;
            let is_home = found.data == Some(0);
            if found.needs_commit.is_some() {
                assert!(matches!(plan, Plan::Commit(_)), "{found:?}");
                continue;
            }
            match plan {
                Plan::Nothing => assert!(only_data && is_home && !found.unflushed, "{found:?}"),
                Plan::Flush => assert!(only_data && is_home && found.unflushed, "{found:?}"),
                Plan::Home { again, much } => {
                    // If the step is final, only data changed. Otherwise the sync decides again,
                    // and then less is left.
                    assert!(again || only_data, "{found:?}");
                    assert_eq!(much, found.data.is_none());
                    let done = Found {
                        data: Some(0),
                        unflushed: false,
                        stale: 0,
                        ..found
                    };
                    assert!(!matches!(done.plan(&room), Plan::Home { .. }), "{found:?}");
                }
                Plan::Record => {
                    let fits = found
                        .data
                        .is_some_and(|data| data + found.stale <= room.most);
                    assert!(fits && !found.unflushed, "{found:?}");
                    assert!(found.refuses_record.is_none(), "{found:?}");
                }
                Plan::Commit(_) => {
                    assert!(!only_data, "{found:?}");
                    let large = found.data.is_none_or(|data| data + found.stale > room.most);
                    assert!(found.refuses_record.is_some() || large, "{found:?}");
                }
            }
        }
    }
    assert_eq!(kinds.len(), 10, "{kinds:?}");
}
