//! Marks of a record.

use stetfs_block::{BlockDevice, Recorder};

/// An operation was begun, or returned. The number is of thread and operation.
pub(crate) const BEGUN: &str = "begun";

/// See [`BEGUN`].
pub(crate) const ACKED: &str = "acked";

/// Notes in a record that an operation was begun, or returned.
pub(crate) fn note<D: BlockDevice>(device: &Recorder<D>, thread: usize, begun: bool, n: usize) {
    device.mark(if begun { BEGUN } else { ACKED }, number(thread, n));
}

pub(crate) fn number(thread: usize, op: usize) -> u64 {
    (thread as u64) << 32 | op as u64
}
