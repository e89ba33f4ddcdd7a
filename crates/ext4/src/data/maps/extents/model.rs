//! Model test: the extent tree against a map of single blocks, with nodes so small that few extents
//! make the tree deep.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use stetfs_journal::BlockNr;
use stetfs_ondisk::ext4::extent::{Expect, Extent, MAX_LEN, NodeMut, NodeRef};

use super::tree::{Nodes, NodesMut, Tree, find};
use crate::data::maps::mapping::{EditMap, Found, Removed};
use crate::error::{FsError, Result};

/// A block that has room for 4 entries, the fewest that splitting can work with.
const NODE_LEN: usize = 12 + PER_BLOCK * 12 + 4;
const PER_BLOCK: usize = 4;

#[derive(Default)]
struct Mem {
    blocks: RefCell<HashMap<BlockNr, Vec<u8>>>,
    next: Cell<BlockNr>,
    /// Blocks that may still be allocated.
    room: Cell<u32>,
}

const FIRST_NODE: u64 = 1 << 30;

impl Nodes for Mem {
    fn read<R>(&self, nr: BlockNr, expect: &Expect, f: impl FnOnce(NodeRef<'_>) -> R) -> Result<R> {
        let bytes = self
            .blocks
            .borrow()
            .get(&nr)
            .expect("a node that was freed is read")
            .clone();
        let node = NodeRef::new(&bytes)?;
        node.check(expect)?;
        Ok(f(node))
    }

    fn blocks(&self) -> std::ops::Range<BlockNr> {
        1..1 << 47
    }

    fn ino(&self) -> u32 {
        12
    }
}

impl NodesMut for Mem {
    fn change<R>(&self, nr: BlockNr, f: impl FnOnce(&mut NodeMut<'_>) -> Result<R>) -> Result<R> {
        let mut blocks = self.blocks.borrow_mut();
        let bytes = blocks
            .get_mut(&nr)
            .expect("a node that was freed is changed");
        f(&mut NodeMut::new(&mut bytes[..])?)
    }

    fn create(
        &self,
        _near: BlockNr,
        depth: u16,
        f: impl FnOnce(&mut NodeMut<'_>) -> Result<()>,
    ) -> Result<BlockNr> {
        if self.room.get() == 0 {
            return Err(FsError::Errno(libc::ENOSPC));
        }
        self.room.set(self.room.get() - 1);
        let nr = FIRST_NODE + self.next.replace(self.next.get() + 1);
        let mut bytes = vec![0; NODE_LEN];
        f(&mut NodeMut::init(&mut bytes[..], depth)?)?;
        self.blocks.borrow_mut().insert(nr, bytes);
        Ok(nr)
    }

    fn free(&self, nr: BlockNr) -> Result<()> {
        self.blocks
            .borrow_mut()
            .remove(&nr)
            .expect("a node is freed twice");
        self.room.set(self.room.get() + 1);
        Ok(())
    }
}

/// The block and unwritten state of each mapped file block.
type Model = BTreeMap<u32, (BlockNr, bool)>;

/// Walks the whole tree: checks extent.X1 to extent.X3, and returns the mapping and the number of
/// nodes.
fn walk(mem: &Mem, root: &[u8]) -> (Model, usize) {
    fn below(mem: &Mem, node: NodeRef<'_>, expect: &Expect, out: &mut Model, met: &mut usize) {
        for e in node.extents() {
            for k in 0..e.len {
                assert!(
                    out.insert(e.block + k, (e.start + u64::from(k), e.unwritten))
                        .is_none()
                );
            }
        }
        for (i, index) in node.indexes().enumerate() {
            *met += 1;
            let expect = node.expect_child(i, expect).unwrap();
            // Checks order, ranges and depth: extent.X1 and extent.X3.
            mem.read(index.child, &expect, |child| {
                assert!(!child.is_empty(), "extent.X2");
                assert_eq!(child.first_block(0), Some(index.block), "extent.X1");
                below(mem, child, &expect, out, met);
            })
            .unwrap();
        }
    }
    let (mut out, mut met) = (Model::new(), 0);
    let (node, expect) = (NodeRef::new(root).unwrap(), Expect::root(mem.blocks()));
    node.check(&expect).unwrap();
    below(mem, node, &expect, &mut out, &mut met);
    (out, met)
}

struct Pair {
    mem: Mem,
    root: [u8; 60],
    model: Model,
    deepest: u16,
}

impl Pair {
    fn new(room: u32) -> Pair {
        let mut root = [0; 60];
        NodeMut::init(&mut root[..], 0).unwrap();
        let mem = Mem::default();
        mem.room.set(room);
        Pair {
            mem,
            root,
            model: Model::new(),
            deepest: 0,
        }
    }

    /// Maps the holes of a range. Blocks with a different `apart` are never adjacent.
    fn insert(&mut self, lblk: u32, len: u32, apart: u64, unwritten: bool) {
        let end = u64::from(lblk) + u64::from(len);
        let mut at = lblk;
        while u64::from(at) < end {
            match find(&self.mem, &self.root, at).unwrap() {
                Found::Extent(e) => at = e.logical_end() as u32,
                Found::Hole(next) => {
                    let len = (next.min(end) - u64::from(at)) as u32;
                    let new = Extent {
                        block: at,
                        len,
                        start: 1 + apart * 100_000 + u64::from(at),
                        unwritten,
                    };
                    match Tree::open(&self.mem, &mut self.root).unwrap().insert(new) {
                        Ok(()) => {
                            for k in 0..len {
                                self.model
                                    .insert(at + k, (new.start + u64::from(k), unwritten));
                            }
                        }
                        Err(e) => assert_eq!(e.errno(), libc::ENOSPC),
                    }
                    at += len;
                }
            }
        }
    }

    fn remove(&mut self, lblk: u32, len: u32) {
        let range = u64::from(lblk)..u64::from(lblk) + u64::from(len);
        let most = [u32::MAX, 1 + len % 9][lblk as usize % 2];
        loop {
            match Tree::open(&self.mem, &mut self.root)
                .unwrap()
                .remove_last(&range, most)
            {
                Ok(Removed::Nothing) => break,
                Ok(Removed::Node) => panic!("an extent tree has no empty nodes"),
                Ok(Removed::Extent(gone)) => {
                    assert!(gone.len <= most);
                    for k in 0..gone.len {
                        let was = self.model.remove(&(gone.block + k));
                        assert_eq!(was, Some((gone.start + u64::from(k), gone.unwritten)));
                    }
                }
                Err(e) => {
                    assert_eq!(e.errno(), libc::ENOSPC);
                    return;
                }
            }
        }
        assert!(self.model.range(lblk..lblk + len).next().is_none());
    }

    fn convert(&mut self, lblk: u32, len: u32, unwritten: bool) {
        let mut at = u64::from(lblk);
        let end = at + u64::from(len);
        while at < end {
            match Tree::open(&self.mem, &mut self.root)
                .unwrap()
                .convert_first(&(at..end), unwritten)
            {
                Ok(done) => {
                    assert!(done > at && done <= end);
                    for (_, state) in self.model.range_mut(at as u32..done as u32) {
                        state.1 = unwritten;
                    }
                    at = done;
                }
                Err(e) => {
                    assert_eq!(e.errno(), libc::ENOSPC);
                    return;
                }
            }
        }
    }

    fn check(&mut self) {
        let (mapped, nodes) = walk(&self.mem, &self.root);
        assert_eq!(mapped, self.model);
        assert_eq!(nodes, self.mem.blocks.borrow().len(), "nodes leak");
        self.deepest = self.deepest.max(NodeRef::new(&self.root).unwrap().depth());
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u32, u32, u64, bool),
    Remove(u32, u32),
    Convert(u32, u32, bool),
}

fn op() -> impl Strategy<Value = Op> {
    let place = || (0u32..600, 1u32..40);
    prop_oneof![
        4 => (0u32..600, 1u32..6, 0u64..3, any::<bool>()).prop_map(|(l, n, a, u)| Op::Insert(l, n, a, u)),
        1 => place().prop_map(|(l, n)| Op::Remove(l, n)),
        2 => place().prop_map(|(l, n)| Op::Convert(l, n / 4 + 1, n % 2 == 0)),
    ]
}

fn run(ops: &[Op], room: u32) -> u16 {
    let mut pair = Pair::new(room);
    for op in ops {
        match *op {
            Op::Insert(l, n, a, u) => pair.insert(l, n, a, u),
            Op::Remove(l, n) => pair.remove(l, n),
            Op::Convert(l, n, u) => pair.convert(l, n, u),
        }
        pair.check();
    }
    pair.mem.room.set(1000);
    pair.remove(0, 10_000);
    pair.check();
    let root = NodeRef::new(&pair.root).unwrap();
    assert_eq!((root.len(), root.depth()), (0, 0));
    pair.deepest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// extent.X1, extent.X2, extent.X3.
    #[test]
    fn the_tree_maps_what_the_model_maps(ops in prop::collection::vec(op(), 1..250)) {
        run(&ops, 10_000);
    }

    #[test]
    fn without_space_for_nodes_nothing_breaks(ops in prop::collection::vec(op(), 1..250), room in 0u32..12) {
        run(&ops, room);
    }
}

#[test]
fn appending_fills_nodes_and_grows_deep() {
    let mut pair = Pair::new(10_000);
    for i in 0..400u32 {
        pair.insert(i * 2, 1, 0, false);
        pair.check();
    }
    assert!(pair.deepest >= 4, "{}", pair.deepest);
    let leaves = 400usize.div_ceil(PER_BLOCK - 1);
    assert!(
        pair.mem.blocks.borrow().len() < leaves * 2,
        "nodes are left half empty"
    );
    // Filling the gaps joins everything into one extent again.
    for i in 0..400u32 {
        pair.insert(i * 2 + 1, 1, 0, false);
    }
    pair.check();
}

/// A fixed sequence of scattered blocks, conversions and holes that makes the tree deep.
#[test]
fn scattered_changes_in_a_deep_tree() {
    let mut ops = Vec::new();
    let mut x = 1u32;
    for i in 0..900u32 {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let at = (x >> 8) % 600;
        ops.push(match i % 9 {
            0 => Op::Remove(at, 3),
            1 | 2 => Op::Convert(at, 4, i % 2 == 0),
            _ => Op::Insert(at, 1, u64::from(i % 3), i % 4 == 0),
        });
    }
    assert!(run(&ops, 10_000) >= 3);
}

#[test]
fn a_full_size_extent_converts_in_two() {
    let mut pair = Pair::new(10);
    pair.insert(0, MAX_LEN, 0, false);
    pair.convert(0, MAX_LEN, true);
    pair.check();
    assert_eq!(NodeRef::new(&pair.root).unwrap().len(), 2);
    pair.convert(0, MAX_LEN, false);
    pair.check();
}
