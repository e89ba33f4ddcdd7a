//! Marks of a record.

/// An operation was begun, or returned. The number is of thread and operation.
pub(crate) const BEGUN: &str = "begun";

/// See [`BEGUN`].
pub(crate) const ACKED: &str = "acked";

pub(crate) fn number(thread: usize, op: usize) -> u64 {
    (thread as u64) << 32 | op as u64
}
