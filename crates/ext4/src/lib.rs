//! The ext4 file system: allocation, inodes, extents, directories, xattrs, name space.
//!
//! Layout of the crate, from below:
//! * `durability`: ledgers of what is not durable yet; `state`: state of inodes and stores in
//!   memory;
//! * `space`: block groups, block and inode allocation;
//! * `inode`: inodes in memory, the inode cache, orphans; `xattr`: extended attributes in them;
//! * `data`: maps, pages, dirty data and its write-back, records;
//! * `names`: directories (linear and indexed); `quota`: accounts of users, groups and projects;
//! * [`Fs`]: an open volume, a façade over four stores (`Allocator`, `InodeStore`, `DataStore`,
//!   `Namespace`);
//! * `ops`: its operations (`lookup`, `write`, `rename` …), all `impl Fs`;
//! * `mount`: opening with recovery, and unmounting;
//! * `volume`: the base of all stores: geometry, options, cache, journal, superblock.
//!
//! Lock order: see `stetfs_sync::Rank`. An operation calls [`Fs::throttle`] first (no lock held),
//! then takes inode locks, then opens a journal handle, then everything else.

#![cfg_attr(not(test), forbid(unsafe_code))]
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss
    )
)]

mod error;
mod fs;
mod geometry;
mod types;

#[cfg(test)]
mod testing;

mod content;
mod data;
mod durability;
mod inode;
mod mount;
mod names;
mod ops;
mod quota;
mod space;
mod state;
mod verified;
mod volume;
mod xattr;

pub use data::KeptFailures;
pub use error::{FsError, Result};
pub use fs::Fs;
pub use geometry::Geometry;
pub use inode::OrphansFinished;
pub use mount::{
    Inspection, MAX_EPOCH, find_log, inspect, is_journal, journal_device, journal_device_of,
};
pub use ops::{AtomicGroup, OpenInode, OpenRef, QuotaUsage};
pub use stetfs_ondisk::ext4::quota::{Entry as QuotaEntry, Limits as QuotaLimits, QuotaKind};
pub use stetfs_ondisk::foreign::{Foreign, Kind as ForeignKind, known as known_format};
pub use stetfs_ondisk::partitions::{NoPartition, Partition, Partitions, ReadBy};
pub use types::*;
pub use volume::{read_partitions, read_superblock, set_panic_hook};
