//! Content of blocks that were read or made: there is some, and where there is none somebody let go
//! of it.

use std::ops::Deref;

use stetfs_cache::PageRef;
use stetfs_journal::Block;

use crate::error::{FsError, Result};

fn none(block: &Block) -> FsError {
    FsError::corrupt("cache", block.nr(), "a block was read, and has no content")
}

/// A short look at the content: nobody changes it meanwhile.
pub(crate) fn look(block: &Block) -> Result<impl Deref<Target = [u8]> + '_> {
    block.peek().ok_or_else(|| none(block))
}

/// The content as it is now. Who changes the block while this is kept copies it.
pub(crate) fn page(block: &Block) -> Result<PageRef> {
    block.page().ok_or_else(|| none(block))
}
