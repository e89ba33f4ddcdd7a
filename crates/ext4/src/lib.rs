//! The ext4 file system: allocation, inodes, extents, directories, xattrs, name space.
//!
//! Layout of the crate:
//! * [`Fs`] is an open volume: a façade over four stores (`Allocator`, `InodeStore`, `DataStore`,
//!   `Namespace`); its operations (`lookup`, `write`, `rename` …) are `impl Fs` blocks beside the
//!   subject they belong to;
//! * `volume`: opening, recovery, superblock state, errors=, statfs, unmount;
//! * `space`: block groups, block and inode allocation;
//! * `inode`: inodes in memory, the inode cache, orphans, deletion, attributes;
//! * `data`: extent trees, reading, writing, truncation, fallocate, seeking, syncing;
//! * `durability`: what is not yet durable of a file;
//! * `names`: directories (linear and indexed) and the operations on names;
//! * `quota`: usage and limits of users, groups and projects;
//! * `xattr`: extended attributes and ACLs.
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
mod names;
mod quota;
mod space;
mod verified;
mod volume;
mod xattr;

pub use data::{AtomicGroup, KeptFailures};
pub use error::{FsError, Result};
pub use fs::Fs;
pub use geometry::Geometry;
pub use inode::{OpenInode, OpenRef, OrphansFinished};
pub use quota::QuotaUsage;
pub use stetfs_ondisk::ext4::quota::{Entry as QuotaEntry, Limits as QuotaLimits, QuotaKind};
pub use stetfs_ondisk::foreign::{Foreign, Kind as ForeignKind, known as known_format};
pub use stetfs_ondisk::partitions::{NoPartition, Partition, Partitions, ReadBy};
pub use types::*;
pub use volume::{
    Inspection, MAX_EPOCH, find_log, inspect, is_journal, journal_device, journal_device_of,
    read_partitions, read_superblock, set_panic_hook,
};
