//! Records of files, and logs of transactions, in a region of persistent memory
//! (`docs/format/region.md`; decisions/0031): a sync waits for stores, not for a device.
//!
//! Invariants:
//! * **region.R1** The word that seals a record is stored when the rest of the record is durable,
//!   and is itself durable before the sync is answered. So a crash leaves a record whole and
//!   sealed, or not sealed.
//! * **region.R2** No record of an earlier mount or lap counts: a record names the epoch of its log
//!   and its own place, and is superseded before its space is used again (record.F3).
//! * **region.R3** A sealed record that no transaction supersedes and that does not match its
//!   checksum is damage: no crash leaves one. The same holds for a transaction that is not home.
//!
//! The log of transactions may be in a region, too (`codec=changes`): it holds the changes of each
//! block, sealed in the same way.

mod changes;
mod claim;
mod error;
mod lanes;
mod log;
#[cfg(test)]
mod log_tests;
mod ring;
mod round;
mod source;
#[cfg(test)]
mod tests;

/// The most bytes of a region that are used: a recovery may have to hold the records in memory.
pub const MOST_BYTES: u64 = stetfs_ondisk::stet::region::LANES_AT + (512 << 20);

pub(crate) use changes::ChangesCodec;
pub use claim::Owner;
pub use error::RegionError;
pub use lanes::{Lanes, RegionLanes};
pub(crate) use ring::RegionRing;
pub use source::{RegionSource, RegionUse};
