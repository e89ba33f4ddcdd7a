//! A walk over all blocks that a block map names.

use stetfs_journal::BlockNr;
use stetfs_ondisk::ext4::blockmap::{DIRECT, MAX_LEVELS, pointer};
use stetfs_ondisk::num::to_usize;

use super::lookup::Indirect;
use crate::error::Result;

/// A block that a block map names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// An indirect block.
    Node(BlockNr),
    /// A data block: file block, block number.
    Data(u64, BlockNr),
}

/// Calls `f` for every block that a map names: data in file order, and each indirect block before
/// the blocks below it. Ends when `f` returns an error. Only `f` can notice blocks that are named
/// twice.
///
/// # Errors
/// Errors of `f`; EUCLEAN if an indirect block lies where none may; EIO.
pub(crate) fn all(
    map: &impl Indirect,
    root: &[u8],
    f: &mut impl FnMut(Named) -> Result<()>,
) -> Result<()> {
    for block in 0..DIRECT {
        match pointer(root, block) {
            0 => {}
            nr => f(Named::Data(block as u64, u64::from(nr)))?,
        }
    }
    let mut first = DIRECT as u64;
    for levels in 1..=MAX_LEVELS {
        let index = DIRECT + levels as usize - 1;
        match pointer(root, index) {
            0 => {}
            nr => below(map, u64::from(nr), levels, first, f)?,
        }
        first += map.shape().span(levels);
    }
    Ok(())
}

/// [`all`] below an indirect block that is `levels` above the data.
fn below(
    map: &impl Indirect,
    nr: BlockNr,
    levels: u32,
    first: u64,
    f: &mut impl FnMut(Named) -> Result<()>,
) -> Result<()> {
    f(Named::Node(nr))?;
    let shape = map.shape();
    let bytes = map.read(nr, <[u8]>::to_vec)?;
    let span = shape.span(levels - 1);
    for at in 0..to_usize(shape.per_block()) {
        let block = first + at as u64 * span;
        match (u64::from(pointer(&bytes, at)), levels) {
            (0, _) => {}
            (nr, 1) => f(Named::Data(block, nr))?,
            (nr, _) => below(map, nr, levels - 1, block, f)?,
        }
    }
    Ok(())
}
