//! The extent tree: lookup, and the changes of shape that edits consist of.
//!
//! Invariants after each public call, also after one that failed for lack of space:
//! * **extent.X1** Entries of a node are sorted and disjoint; an index names the first file block
//!   of its child.
//! * **extent.X2** Only the root may be empty.
//! * **extent.X3** All leaves are at the same depth, at most [`MAX_DEPTH`] below the root.

use std::ops::Range;

use smallvec::SmallVec;
use stetfs_journal::BlockNr;
use stetfs_ondisk::ext4::extent::{
    Expect, Extent, Index, LOGICAL_END, MAX_DEPTH, NodeMut, NodeRef,
};

use super::extent::splice;
use crate::data::maps::mapping::Found;
use crate::error::{FsError, Result};

/// Reads the blocks of a tree.
pub(crate) trait Nodes {
    /// Calls `f` with the node in block `nr`, checked against what its parent says.
    ///
    /// # Errors
    /// EUCLEAN naming the block if its checksum or content is wrong; EIO.
    fn read<R>(&self, nr: BlockNr, expect: &Expect, f: impl FnOnce(NodeRef<'_>) -> R) -> Result<R>;

    /// Blocks that a file may use.
    fn blocks(&self) -> Range<BlockNr>;

    /// The inode, for messages.
    fn ino(&self) -> u32;
}

/// Changes the blocks of a tree.
pub(crate) trait NodesMut: Nodes {
    /// Changes the node in block `nr`, which [`Nodes::read`] has read before.
    fn change<R>(&self, nr: BlockNr, f: impl FnOnce(&mut NodeMut<'_>) -> Result<R>) -> Result<R>;

    /// Allocates a block near `near` and makes a node of it; `f` fills it.
    fn create(
        &self,
        near: BlockNr,
        depth: u16,
        f: impl FnOnce(&mut NodeMut<'_>) -> Result<()>,
    ) -> Result<BlockNr>;

    /// Frees a node's block.
    fn free(&self, nr: BlockNr) -> Result<()>;
}

/// The error of damage in the tree as a whole, or in its root.
fn damaged(nodes: &impl Nodes, nr: BlockNr, detail: impl std::fmt::Display) -> FsError {
    FsError::corrupt(
        "extent tree",
        nr,
        format!("inode {}: {detail}", nodes.ino()),
    )
}

/// The root, checked, and the expectation that its children are checked against.
fn root_node<'r>(nodes: &impl Nodes, root: &'r [u8]) -> Result<(NodeRef<'r>, Expect)> {
    let expect = Expect::root(nodes.blocks());
    let node = NodeRef::new(root).map_err(|e| damaged(nodes, 0, e))?;
    node.check(&expect).map_err(|e| damaged(nodes, 0, e))?;
    Ok((node, expect))
}

/// The answer of one node about a file block.
enum Look {
    Down(BlockNr, Expect),
    Done(Option<Extent>),
}

fn look(node: NodeRef<'_>, expect: &Expect, block: u32, next: &mut u64) -> Look {
    let at = node.find(block);
    if let Some(after) = node.first_block(at.map_or(0, |i| i + 1)) {
        *next = u64::from(after);
    }
    // Nothing is mapped before the first entry.
    let Some(at) = at else {
        return Look::Done(None);
    };
    match (node.index(at), node.expect_child(at, expect)) {
        (Some(index), Some(child)) => Look::Down(index.child, child),
        _ => Look::Done(
            node.extent(at)
                .filter(|e| e.logical_end() > u64::from(block)),
        ),
    }
}

/// Finds the mapping of file block `block`.
pub(crate) fn find(nodes: &impl Nodes, root: &[u8], block: u32) -> Result<Found> {
    let (node, expect) = root_node(nodes, root)?;
    let mut next = LOGICAL_END;
    let mut step = look(node, &expect, block, &mut next);
    loop {
        match step {
            Look::Done(Some(extent)) => return Ok(Found::Extent(extent)),
            Look::Done(None) => return Ok(Found::Hole(next)),
            // The depth falls with each step, so this ends.
            Look::Down(child, expect) => {
                step = nodes.read(child, &expect, |node| look(node, &expect, block, &mut next))?;
            }
        }
    }
}

/// Counts the blocks of a tree. Leaves are not read.
pub(crate) fn count_nodes(nodes: &impl Nodes, root: &[u8]) -> Result<u64> {
    let children = |node: NodeRef<'_>, expect: &Expect| -> Vec<(BlockNr, Expect)> {
        let all = node.indexes().enumerate();
        all.filter_map(|(i, index)| Some((index.child, node.expect_child(i, expect)?)))
            .collect()
    };
    let (node, expect) = root_node(nodes, root)?;
    let mut rest = children(node, &expect);
    let mut count = rest.len() as u64;
    // The depth falls with each step, so this ends.
    while let Some((nr, expect)) = rest.pop() {
        if expect.depth.is_some_and(|depth| depth > 0) {
            let below = nodes.read(nr, &expect, |node| children(node, &expect))?;
            count += below.len() as u64;
            rest.extend(below);
        }
    }
    Ok(count)
}

/// One level of a path from the root to a leaf.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Block of the node; 0 for the root.
    nr: BlockNr,
    /// The expectation that the node was checked against.
    expect: Expect,
    /// Inner node: the child the path takes. Leaf: number of extents that begin at or before the
    /// file block.
    pub(super) at: usize,
    len: usize,
    capacity: usize,
}

/// The path from the root (first) to a leaf (last). Never empty.
pub(super) type Path = SmallVec<[Step; 4]>;

/// The place of a file block in the tree, mapped or not.
pub(crate) struct Place {
    pub(super) path: Path,
    /// The last two extents of the leaf that begin at or before the block.
    pub(super) before: [Option<Extent>; 2],
    /// The next extent in the leaf.
    pub(super) after: Option<Extent>,
}

impl Place {
    /// Position in the leaf behind `before`.
    pub(super) fn at(&self) -> usize {
        self.path.last().map_or(0, |s| s.at)
    }

    /// Whether the leaf has room when `gone` of its extents are replaced by `new`.
    pub(super) fn fits(&self, gone: usize, new: usize) -> bool {
        self.path
            .last()
            .is_some_and(|s| s.len + new - gone <= s.capacity)
    }
}

/// A tree open for changing. The caller puts the inode into the journal afterwards, whatever the
/// result.
pub(crate) struct Tree<'a, N: NodesMut> {
    pub(super) nodes: &'a N,
    /// `i_block`.
    pub(super) root: &'a mut [u8],
}

impl<'a, N: NodesMut> Tree<'a, N> {
    /// Opens the tree whose root lies in `root`.
    pub(crate) fn open(nodes: &'a N, root: &'a mut [u8]) -> Result<Tree<'a, N>> {
        root_node(nodes, root)?;
        Ok(Tree { nodes, root })
    }

    pub(super) fn damaged(&self, nr: BlockNr, detail: impl std::fmt::Display) -> FsError {
        damaged(self.nodes, nr, detail)
    }

    fn root_mut(&mut self) -> Result<NodeMut<'_>> {
        Ok(NodeMut::new(&mut *self.root)?)
    }

    /// Finds the place of `block`.
    pub(super) fn place(&self, block: u32) -> Result<Place> {
        let mut path = Path::new();
        let visit = |node: NodeRef<'_>, nr: BlockNr, expect: &Expect| {
            let found = node.find(block);
            let at = if node.is_leaf() {
                found.map_or(0, |i| i + 1)
            } else {
                found.unwrap_or(0)
            };
            let step = Step {
                nr,
                expect: expect.clone(),
                at,
                len: node.len(),
                capacity: node.capacity(),
            };
            let child = node.index(at).zip(node.expect_child(at, expect));
            let before = [at.checked_sub(2), at.checked_sub(1)].map(|i| node.extent(i?));
            (step, child, before, node.extent(at))
        };
        let (node, expect) = root_node(self.nodes, self.root)?;
        let mut seen = visit(node, 0, &expect);
        loop {
            let (step, child, before, after) = seen;
            path.push(step);
            let Some((index, expect)) = child else {
                return Ok(Place {
                    path,
                    before,
                    after,
                });
            };
            seen = self.nodes.read(index.child, &expect, |node| {
                visit(node, index.child, &expect)
            })?;
        }
    }

    fn change<R>(
        &mut self,
        nr: BlockNr,
        f: impl FnOnce(&mut NodeMut<'_>) -> Result<R>,
    ) -> Result<R> {
        match nr {
            0 => f(&mut self.root_mut()?),
            _ => self.nodes.change(nr, f),
        }
    }

    /// Replaces the extents `range` of the path's leaf by `new`. The leaf has room for them.
    pub(super) fn replace(
        &mut self,
        path: &Path,
        range: Range<usize>,
        new: &[Extent],
    ) -> Result<()> {
        let Some((leaf, above)) = path.split_last() else {
            return Err(self.damaged(0, "no path"));
        };
        let shrinks = new.len() < range.len();
        if leaf.len + new.len() == range.len() && !above.is_empty() {
            return self.remove_node(path);
        }
        let (was, is) = self.change(leaf.nr, |node| {
            let was = node.first_block(0);
            splice(node, range, new)?;
            Ok((was, node.first_block(0)))
        })?;
        if was != is {
            self.put_keys(above, is)?;
        }
        if shrinks { self.collapse() } else { Ok(()) }
    }

    /// Updates the indexes above the subtree below `above`, which now begins at `block`
    /// (extent.X1).
    fn put_keys(&mut self, above: &[Step], block: Option<u32>) -> Result<()> {
        let Some(block) = block else { return Ok(()) };
        for step in above.iter().rev() {
            self.change(step.nr, |node| match node.index(step.at) {
                Some(index) => Ok(node.set_index(step.at, &Index { block, ..index })?),
                None => Ok(()),
            })?;
            if step.at > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Removes the path's leaf, and the nodes above that become empty with it (extent.X2).
    fn remove_node(&mut self, path: &[Step]) -> Result<()> {
        let mut below = path;
        while let Some((node, above)) = below.split_last() {
            let Some((parent, higher)) = above.split_last() else {
                break;
            };
            self.nodes.free(node.nr)?;
            if parent.len > 1 {
                let first = self.change(parent.nr, |n| {
                    n.remove(parent.at..parent.at + 1);
                    Ok(n.first_block(0))
                })?;
                if parent.at == 0 {
                    self.put_keys(higher, first)?;
                }
                return self.collapse();
            }
            below = above;
        }
        // The tree is empty now.
        Ok(self.root_mut()?.reset(0)?)
    }

    /// Moves the content of a lone child into the root while it fits there.
    fn collapse(&mut self) -> Result<()> {
        loop {
            let (root, expect) = root_node(self.nodes, self.root)?;
            let room = root.capacity();
            let lone = (root.len() == 1)
                .then(|| root.index(0).zip(root.expect_child(0, &expect)))
                .flatten();
            let Some((index, expect)) = lone else {
                return Ok(());
            };
            let mut bytes = [0; stetfs_ondisk::ext4::inode::I_BLOCK_LEN];
            let moved = self.nodes.read(index.child, &expect, |node| {
                if node.len() > room {
                    return Ok(false);
                }
                NodeMut::init(&mut bytes[..], node.depth())?.append(&node, 0..node.len())?;
                Ok::<_, FsError>(true)
            })??;
            if !moved || self.root.len() != bytes.len() {
                return Ok(());
            }
            self.nodes.free(index.child)?;
            self.root.copy_from_slice(&bytes);
        }
    }

    /// Makes room for more entries on the way to the leaf at the end of `path`: splits the topmost
    /// node that must be split, or adds a level. The caller then finds the place again. `near` is
    /// the goal for a new node that has no other neighbour.
    pub(super) fn make_room(&mut self, path: &Path, near: BlockNr) -> Result<()> {
        // The lowest inner node with room for one more child; every node between it and the leaf is
        // full.
        let inner = path.len().saturating_sub(1);
        let Some(parent) = (0..inner).rev().find(|&l| path[l].len < path[l].capacity) else {
            return self.grow(near);
        };
        let (above, full) = (&path[parent], &path[parent + 1]);
        // Appending fills nodes completely: in that case only the last entry moves.
        let leaf = parent + 1 == inner;
        let at_end = if leaf {
            full.at >= full.len
        } else {
            full.at + 1 >= full.len
        };
        let keep = if at_end {
            full.len.saturating_sub(1)
        } else {
            full.len / 2
        };
        if keep == 0 {
            return Err(self.damaged(full.nr, "a node too small to split"));
        }
        let (moved, depth) = self.nodes.read(full.nr, &full.expect, |node| {
            (node.bytes().to_vec(), node.depth())
        })?;
        let moved = NodeRef::new(&moved)?;
        // Allocated first, so that nothing has changed if there is no space.
        let child = self.nodes.create(full.nr, depth, |node| {
            Ok(node.append(&moved, keep..full.len)?)
        })?;
        let Some(block) = moved.first_block(keep) else {
            return Err(self.damaged(full.nr, "a node shorter than it was"));
        };
        self.change(above.nr, |node| {
            Ok(node.insert_index(above.at + 1, &Index { block, child })?)
        })?;
        self.change(full.nr, |node| {
            node.remove(keep..full.len);
            Ok(())
        })
    }

    /// Adds a level: moves the root's entries into a new node.
    fn grow(&mut self, near: BlockNr) -> Result<()> {
        let (root, _) = root_node(self.nodes, self.root)?;
        let depth = root.depth();
        let Some(block) = root.first_block(0).filter(|_| depth < MAX_DEPTH) else {
            return Err(self.damaged(0, "the tree cannot grow any deeper"));
        };
        let child =
            self.nodes
                .create(near, depth, |node| Ok(node.append(&root, 0..root.len())?))?;
        let mut root = self.root_mut()?;
        root.reset(depth + 1)?;
        Ok(root.insert_index(0, &Index { block, child })?)
    }
}
