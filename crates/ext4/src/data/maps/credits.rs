//! Handle credits of the functions that other modules call.

use stetfs_journal::Credits;

use crate::data::maps::extents::{edit_blocks, edit_credits};
use crate::space::credits::ALLOC_BLOCKS;

/// Depth of the tree of a directory or link. A deeper tree has more than 10⁸ extents of one block
/// each.
const DEPTH: u16 = 3;

/// One `append_dir_block`: the tree, the block itself, its allocation, the inode.
pub(crate) const APPEND_DIR_BLOCK: Credits = edit_credits(DEPTH) + ALLOC_BLOCKS + 1;
/// One `write_symlink_body`: a new tree of depth 0.
pub(crate) const SYMLINK_BODY: Credits = edit_credits(0) + ALLOC_BLOCKS + 1;

/// Blocks to reserve for appending `blocks` to a directory. Nodes for the tree are needed once at
/// most: a node that was just split has room for more blocks than one operation appends.
pub(crate) fn append_dir_space(blocks: u32) -> u64 {
    if blocks == 0 {
        0
    } else {
        u64::from(blocks) + edit_blocks(DEPTH)
    }
}
