//! Range checks of requests, shared by all devices.

use std::ops::Range;

use crate::{BlockError, Op, Result};

/// Checks that `len` bytes at `offset` lie inside a device of `size` bytes.
///
/// # Errors
/// [`BlockError::OutOfRange`], which names `op`.
pub fn check_range(op: Op, offset: u64, len: u64, size: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(BlockError::OutOfRange {
            op,
            offset,
            len,
            size,
        }),
    }
}

/// Checks the range of a discard; an inverted range is empty.
///
/// # Errors
/// As [`check_range`].
pub fn check_discard(range: &Range<u64>, size: u64) -> Result<()> {
    check_range(
        Op::Discard,
        range.start,
        range.end.saturating_sub(range.start),
        size,
    )
}
