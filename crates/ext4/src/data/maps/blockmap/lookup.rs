//! Lookup in a block map.

use smallvec::SmallVec;
use stetfs_journal::BlockNr;
use stetfs_ondisk::ext4::blockmap::{DIRECT, Shape, leading_holes, pointer};
use stetfs_ondisk::ext4::extent::{Extent, LOGICAL_END};

use crate::data::maps::mapping::Found;
use crate::error::{FsError, Result};
use stetfs_ondisk::num::{count32, to_usize};

/// Reads the blocks of a map.
pub(crate) trait Indirect {
    /// Calls `f` with an indirect block.
    ///
    /// # Errors
    /// EUCLEAN if no file may have that block; EIO.
    fn read<R>(&self, nr: BlockNr, f: impl FnOnce(&[u8]) -> R) -> Result<R>;

    /// The shape of block maps on this volume.
    fn shape(&self) -> Shape;

    /// The inode, for messages.
    fn ino(&self) -> u32;
}

/// The error of damage in a map.
pub(super) fn damaged(map: &impl Indirect, nr: BlockNr, detail: impl std::fmt::Display) -> FsError {
    FsError::corrupt("block map", nr, format!("inode {}: {detail}", map.ino()))
}

/// One indirect block on the way down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) nr: BlockNr,
    /// Position in the block of the number that the path follows.
    pub(super) at: usize,
}

/// Indirect blocks from the inode down.
pub(super) type Path = SmallVec<[Step; 3]>;

/// Refuses blocks that lead back to a block of the path (blockmap.B1).
pub(super) fn check_loop(
    map: &impl Indirect,
    path: &[Step],
    start: BlockNr,
    len: u32,
) -> Result<()> {
    let run = start..start + u64::from(len);
    match path.iter().find(|s| run.contains(&s.nr)) {
        Some(step) => Err(damaged(
            map,
            step.nr,
            "an indirect block leads back to itself",
        )),
        None => Ok(()),
    }
}

/// The run at the start of the block numbers `at..end`; number `at` is that of file block `block`.
/// The run has at most `max` blocks.
fn scan(bytes: &[u8], at: usize, end: usize, block: u32, max: u32) -> Found {
    let start = pointer(bytes, at);
    if start == 0 {
        let zeroes = leading_holes(bytes, at, end);
        return Found::Hole(u64::from(block) + zeroes as u64);
    }
    let len = (at..end)
        .take(max.max(1) as usize)
        .zip(u64::from(start)..)
        .take_while(|(i, nr)| u64::from(pointer(bytes, *i)) == *nr)
        .count();
    Found::Extent(Extent {
        block,
        len: count32(len),
        start: u64::from(start),
        unwritten: false,
    })
}

enum Look {
    Down(BlockNr),
    Done(Found),
}

/// Finds the mapping of file block `block`: an extent that begins there, of at most `max` blocks,
/// or a hole.
pub(crate) fn find(map: &impl Indirect, root: &[u8], block: u32, max: u32) -> Result<Found> {
    let shape = map.shape();
    let Some(branch) = shape.branch(u64::from(block)) else {
        return Ok(Found::Hole(LOGICAL_END));
    };
    if branch.levels == 0 {
        return Ok(scan(root, branch.index, DIRECT, block, max));
    }
    let mut path = Path::new();
    let mut nr = u64::from(pointer(root, branch.index));
    let mut first = branch.first;
    for levels in (1..=branch.levels).rev() {
        if nr == 0 {
            return Ok(Found::Hole((first + shape.span(levels)).min(LOGICAL_END)));
        }
        check_loop(map, &path, nr, 1)?;
        let below = shape.span(levels - 1);
        let at = to_usize((u64::from(block) - first) / below);
        first += at as u64 * below;
        path.push(Step { nr, at });
        let look = map.read(nr, |bytes| {
            if levels > 1 {
                Look::Down(u64::from(pointer(bytes, at)))
            } else {
                Look::Done(scan(bytes, at, to_usize(shape.per_block()), block, max))
            }
        })?;
        match look {
            Look::Down(child) => nr = child,
            Look::Done(found) => {
                if let Found::Extent(e) = found {
                    check_loop(map, &path, e.start, e.len)?;
                }
                return Ok(found);
            }
        }
    }
    Err(damaged(map, nr, "the map is deeper than possible"))
}
