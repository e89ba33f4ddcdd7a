//! Content of cached blocks that were read or made. A block without content here means that another
//! part of the program dropped it, which is an error.

use std::ops::Deref;

use stetfs_cache::PageRef;
use stetfs_journal::Block;

use crate::error::{FsError, Result};

fn none(block: &Block) -> FsError {
    FsError::corrupt(
        "cache",
        block.nr(),
        "internal error: a block was read, but has no content",
    )
}

/// A short view of the content. It must not change meanwhile.
pub(crate) fn look(block: &Block) -> Result<impl Deref<Target = [u8]> + '_> {
    block.peek().ok_or_else(|| none(block))
}

/// A snapshot of the content. A change made while the snapshot is kept copies the page.
pub(crate) fn page(block: &Block) -> Result<PageRef> {
    block.page().ok_or_else(|| none(block))
}
