//! Arithmetic on extents, and edits of several entries of a node at once.

use std::ops::Range;

use stetfs_ondisk::ext4::extent::{Extent, NodeMut};

use crate::error::Result;
use stetfs_ondisk::num::bounded32;

/// The part of `e` inside `range` of file blocks, if any.
pub(crate) fn cut(e: &Extent, range: &Range<u64>) -> Option<Extent> {
    let first = u64::from(e.block);
    let from = first.max(range.start);
    let to = e.logical_end().min(range.end);
    (from < to).then(|| Extent {
        // Both lie inside this extent, so they fit.
        block: bounded32(from),
        len: bounded32(to - from),
        start: e.start + (from - first),
        unwritten: e.unwritten,
    })
}

/// `a` with `b` appended, if they are adjacent in the file and on the volume and fit into one
/// extent.
pub(super) fn joined(a: &Extent, b: &Extent) -> Option<Extent> {
    let len = a.len.checked_add(b.len)?;
    (a.is_continued_by(b) && len <= a.max_len()).then_some(Extent { len, ..*a })
}

/// Replaces the extents `range` of a leaf by `new`.
pub(super) fn splice(node: &mut NodeMut<'_>, range: Range<usize>, new: &[Extent]) -> Result<()> {
    let (over, more) = new.split_at(range.len().min(new.len()));
    for (i, e) in over.iter().enumerate() {
        node.set_extent(range.start + i, e)?;
    }
    for (i, e) in more.iter().enumerate() {
        node.insert_extent(range.start + over.len() + i, e)?;
    }
    node.remove(range.start + over.len()..range.end);
    Ok(())
}
