//! Model test: the block map against a map of single blocks, with indirect blocks so small that few
//! file blocks reach all three levels.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use proptest::prelude::*;
use stetfs_journal::BlockNr;
use stetfs_ondisk::ext4::blockmap::{Shape, pointer, set_pointer};
use stetfs_ondisk::ext4::extent::{Extent, LOGICAL_END};

use super::edit::{BlockMap, IndirectMut};
use super::lookup::{Indirect, find};
use crate::data::maps::mapping::{EditMap, Found, Removed};
use crate::error::{FsError, Result};

/// Bytes of a block: 4 numbers.
const BLOCK: u32 = 16;
/// File blocks of the largest file: 12 + 4 + 16 + 64.
const END: u32 = 96;
const FIRST_NODE: BlockNr = 1 << 20;

#[derive(Default)]
struct Mem {
    blocks: RefCell<HashMap<BlockNr, Vec<u8>>>,
    next: Cell<BlockNr>,
    /// Blocks that may still be allocated.
    room: Cell<u32>,
    /// Allocated blocks that are not filled yet.
    promised: RefCell<Vec<BlockNr>>,
}

impl Indirect for Mem {
    fn read<R>(&self, nr: BlockNr, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let bytes = self.blocks.borrow().get(&nr).cloned();
        let gone = || FsError::corrupt("block map", nr, "not an indirect block");
        Ok(f(&bytes.ok_or_else(gone)?))
    }

    fn shape(&self) -> Shape {
        Shape::new(BLOCK)
    }

    fn ino(&self) -> u32 {
        12
    }
}

impl IndirectMut for Mem {
    fn change<R>(&self, nr: BlockNr, f: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let mut blocks = self.blocks.borrow_mut();
        Ok(f(blocks.get_mut(&nr).expect("a block that was freed")))
    }

    fn allocate(&self, _near: BlockNr) -> Result<BlockNr> {
        if self.room.get() == 0 {
            return Err(FsError::Errno(libc::ENOSPC));
        }
        self.room.set(self.room.get() - 1);
        let nr = FIRST_NODE + self.next.replace(self.next.get() + 1);
        self.promised.borrow_mut().push(nr);
        Ok(nr)
    }

    fn create(&self, nr: BlockNr, f: impl FnOnce(&mut [u8])) -> Result<()> {
        self.promised.borrow_mut().retain(|p| *p != nr);
        let mut bytes = vec![0; BLOCK as usize];
        f(&mut bytes);
        self.blocks.borrow_mut().insert(nr, bytes);
        Ok(())
    }

    fn free(&self, nr: BlockNr) -> Result<()> {
        let mut promised = self.promised.borrow_mut();
        let known = promised.len();
        promised.retain(|p| *p != nr);
        let made = self.blocks.borrow_mut().remove(&nr).is_some();
        assert!(made || promised.len() < known, "freed twice");
        self.room.set(self.room.get() + 1);
        Ok(())
    }
}

struct Pair {
    mem: Mem,
    root: [u8; 60],
    model: BTreeMap<u32, BlockNr>,
}

impl Pair {
    fn new(room: u32) -> Pair {
        let mem = Mem::default();
        mem.room.set(room);
        Pair {
            mem,
            root: [0; 60],
            model: BTreeMap::new(),
        }
    }

    fn find(&self, lblk: u32) -> Found {
        find(&self.mem, &self.root, lblk, u32::MAX).unwrap()
    }

    fn insert(&mut self, lblk: u32, len: u32, apart: u64) {
        let end = lblk + len;
        let mut at = lblk;
        while at < end {
            match self.find(at) {
                Found::Extent(e) => at = e.logical_end() as u32,
                Found::Hole(next) => {
                    let leaf = self.mem.shape().leaf(u64::from(at)).end;
                    let to = next.min(u64::from(end)).min(leaf) as u32;
                    let new = Extent {
                        block: at,
                        len: to - at,
                        start: 1 + apart * 1000 + u64::from(at),
                        unwritten: false,
                    };
                    match BlockMap::open(&self.mem, &mut self.root).insert(new) {
                        Ok(()) => {
                            for k in 0..new.len {
                                self.model.insert(at + k, new.start + u64::from(k));
                            }
                        }
                        Err(e) => assert_eq!(e.errno(), libc::ENOSPC),
                    }
                    at = to;
                }
            }
        }
    }

    fn remove(&mut self, range: Range<u64>) {
        let most = [u32::MAX, 1 + range.end as u32 % 9][range.start as usize % 2];
        loop {
            match BlockMap::open(&self.mem, &mut self.root)
                .remove_last(&range, most)
                .unwrap()
            {
                Removed::Nothing => break,
                Removed::Node => panic!("an indirect block was left empty (blockmap.B2)"),
                Removed::Extent(gone) => {
                    assert!(gone.len <= most);
                    for k in 0..gone.len {
                        let was = self.model.remove(&(gone.block + k));
                        assert_eq!(was, Some(gone.start + u64::from(k)));
                    }
                }
            }
        }
        let left = self.model.keys().any(|k| range.contains(&u64::from(*k)));
        assert!(!left, "something is still mapped in {range:?}");
    }

    /// Compares all mapped blocks with the model, and counts the indirect blocks.
    fn check(&self) {
        let mut mapped = BTreeMap::new();
        let mut at = 0;
        while at < END {
            match self.find(at) {
                Found::Hole(next) => {
                    assert!(next > u64::from(at));
                    at = next.min(u64::from(END)) as u32;
                }
                Found::Extent(e) => {
                    assert_eq!(e.block, at);
                    mapped.extend((0..e.len).map(|k| (at + k, e.start + u64::from(k))));
                    at += e.len;
                }
            }
        }
        assert_eq!(mapped, self.model);
        let shape = self.mem.shape();
        let leaves: std::collections::BTreeSet<u64> = self
            .model
            .keys()
            .filter(|k| **k >= 12)
            .map(|k| shape.leaf(u64::from(*k)).start)
            .collect();
        let blocks = self.mem.blocks.borrow();
        let filled = blocks
            .values()
            .filter(|b| (0..4).any(|i| (1..FIRST_NODE as u32).contains(&pointer(b, i))))
            .count();
        assert_eq!(filled, leaves.len(), "one indirect block per leaf");
        let empty = blocks.values().any(|b| b.iter().all(|b| *b == 0));
        assert!(
            !empty && self.mem.promised.borrow().is_empty(),
            "blockmap.B2, or a leak"
        );
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u32, u32, u64),
    Remove(u32, u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0u32..END, 1u32..8, 0u64..3).prop_map(|(l, n, a)| Op::Insert(l, n.min(END - l), a)),
        1 => (0u32..END, 1u32..30).prop_map(|(l, n)| Op::Remove(l, n)),
    ]
}

fn run(ops: &[Op], room: u32) {
    let mut pair = Pair::new(room);
    for op in ops {
        match *op {
            Op::Insert(l, n, a) => pair.insert(l, n, a),
            Op::Remove(l, n) => pair.remove(u64::from(l)..u64::from(l + n)),
        }
        pair.check();
    }
    pair.remove(0..1 << 32);
    pair.check();
    assert_eq!(pair.root, [0; 60]);
    assert_eq!(pair.mem.room.get(), room, "indirect blocks leak");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_map_maps_what_the_model_maps(ops in prop::collection::vec(op(), 1..120)) {
        run(&ops, 1000);
    }

    #[test]
    fn without_space_for_nodes_nothing_breaks(ops in prop::collection::vec(op(), 1..120), room in 0u32..10) {
        run(&ops, room);
    }
}

#[test]
fn the_largest_map() {
    let mut pair = Pair::new(1000);
    pair.insert(0, END, 0);
    pair.check();
    // 1 + (1 + 4) + (1 + 4 + 16).
    assert_eq!(pair.mem.blocks.borrow().len(), 27);
    assert_eq!(pair.find(END), Found::Hole(LOGICAL_END));
    let beyond = Extent {
        block: END,
        len: 1,
        start: 5,
        unwritten: false,
    };
    let e = BlockMap::open(&pair.mem, &mut pair.root)
        .insert(beyond)
        .unwrap_err();
    assert_eq!(e.errno(), libc::EFBIG);
    pair.remove(0..u64::from(END));
    pair.check();
}

/// Makes every pointer of a large map in turn lead to every indirect block above and beside it. The
/// result is an answer, or an error that names the loop if there is one; never an endless walk
/// (blockmap.B1).
#[test]
fn loops_are_errors() {
    let mut pair = Pair::new(1000);
    pair.insert(0, END, 0);
    let nodes: Vec<BlockNr> = pair.mem.blocks.borrow().keys().copied().collect();
    let mut loops = 0;
    for holder in &nodes {
        for i in 0..4 {
            let good = pair.mem.blocks.borrow()[holder].clone();
            for target in &nodes {
                let bad = |b: &mut Vec<u8>| set_pointer(b, i, *target as u32).unwrap();
                pair.mem.blocks.borrow_mut().get_mut(holder).map(bad);
                for lblk in 0..END {
                    if let Err(e) = find(&pair.mem, &pair.root, lblk, u32::MAX) {
                        assert_eq!(e.errno(), libc::EUCLEAN);
                        loops += u32::from(e.to_string().contains("back to itself"));
                    }
                }
                let map = BlockMap::open(&pair.mem, &mut pair.root);
                if let Err(e) = map.last(&(0..u64::from(END))) {
                    assert_eq!(e.errno(), libc::EUCLEAN);
                }
                if holder == target {
                    let told = (0..END)
                        .filter_map(|l| find(&pair.mem, &pair.root, l, 1).err())
                        .any(|e| e.to_string().contains("back to itself"));
                    assert!(told, "{holder} leads to itself and nobody says so");
                }
            }
            pair.mem.blocks.borrow_mut().insert(*holder, good);
        }
    }
    assert!(loops > 0);
    pair.check();
}

/// Indirect blocks that name nothing, which no implementation should leave, are freed with the
/// file.
#[test]
fn empty_indirect_blocks_are_freed() {
    let mut pair = Pair::new(1000);
    pair.insert(0, END, 0);
    let empty: Vec<BlockNr> = pair.mem.blocks.borrow().keys().copied().collect();
    for nr in empty {
        let leaf = {
            let blocks = pair.mem.blocks.borrow();
            pointer(&blocks[&nr], 0) < FIRST_NODE as u32
        };
        if leaf {
            pair.mem.blocks.borrow_mut().insert(nr, vec![0; 16]);
        }
    }
    let mut steps = 0;
    loop {
        match BlockMap::open(&pair.mem, &mut pair.root)
            .remove_last(&(0..1 << 32), u32::MAX)
            .unwrap()
        {
            Removed::Nothing => break,
            _ => steps += 1,
        }
        assert!(steps < 100);
    }
    assert!(pair.mem.blocks.borrow().is_empty());
    assert_eq!(pair.root, [0; 60]);
}
