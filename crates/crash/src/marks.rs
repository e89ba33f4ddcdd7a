//! Marks in a recording: the begins and returns of operations.

use stetfs_block::{BlockDevice, Recorder};

/// The label of a begin; the mark's number holds the thread and the operation.
pub(crate) const BEGUN: &str = "begun";

/// The label of a return; see [`BEGUN`].
pub(crate) const ACKED: &str = "acked";

/// Marks in the recording that an operation begins, or has returned.
pub(crate) fn note<D: BlockDevice>(device: &Recorder<D>, thread: usize, begun: bool, n: usize) {
    device.mark(if begun { BEGUN } else { ACKED }, number(thread, n));
}

pub(crate) fn number(thread: usize, op: usize) -> u64 {
    (thread as u64) << 32 | op as u64
}
