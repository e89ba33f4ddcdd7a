//! `Volume`: the base of all stores of an open volume.

use std::sync::Arc;

use stetfs_journal::{Cache, CommitPoint, Credits, Handle, Ino, Journal};
use stetfs_ondisk::ext4::time::Timestamp;
use stetfs_sync::timed::atomic::AtomicU64;

use super::super_state::SuperState;
use crate::geometry::Geometry;
use crate::types::FsOptions;

/// Resolution of timestamps, nanoseconds: a timer tick of many kernels.
const TICK: u32 = 4_000_000;

/// An open volume without its files: geometry, options, cache, journal and superblock. Each store
/// of [`Fs`](crate::Fs) has a reference to it.
pub(crate) struct Volume {
    pub(crate) geo: Geometry,
    pub(crate) opts: FsOptions,
    /// The current [`FsOptions::cache_bytes`] (`ops/volume/memory.rs`).
    pub(crate) cache_bytes: AtomicU64,
    pub(crate) cache: Arc<Cache>,
    pub(crate) journal: Arc<Journal>,
    /// Superblock state that changes while mounted.
    pub(crate) sb: SuperState,
}

impl Volume {
    /// Opens a handle for changes of an inode, or of names in a directory
    /// ([`Journal::begin`](stetfs_journal::Journal::begin)). Its neighbourhood is the inode's block
    /// of group descriptors: files lie in the group of their directory.
    ///
    /// # Errors
    /// As `Journal::begin`.
    pub(crate) fn begin(&self, ino: Ino, need: Credits) -> stetfs_journal::Result<Handle<'_>> {
        let layout = &self.geo.layout;
        let group = layout.locate_inode(ino).map_or(0, |(group, _)| group);
        self.journal
            .begin_near(group / layout.descs_per_block(), need)
    }

    /// The current time for new timestamps, in steps of [`TICK`], so that most writes need not
    /// change the inode. The kernel's coarse clock does not serve: it stands still while a host
    /// takes the processor away.
    pub(crate) fn now(&self) -> Timestamp {
        if let Some(epoch) = self.opts.epoch {
            return Timestamp {
                sec: i64::try_from(epoch).unwrap_or(i64::MAX),
                nsec: 0,
            };
        }
        let (sec, nsec) = stetfs_sync::time_of_day();
        Timestamp {
            sec,
            nsec: nsec - nsec % TICK,
        }
    }

    /// Seconds since 1970, at least 1: in the superblock, its notes of errors and quota entries 0
    /// says that the event did not happen.
    pub(crate) fn seconds(&self) -> u64 {
        u64::try_from(self.now().sec).unwrap_or(0).max(1)
    }

    /// The value of `i_dtime` for an inode that is deleted now: seconds, but above every inode
    /// number. A smaller one would be an inode on the orphan list, or none (e2fsck: "deleted inode
    /// has zero dtime", "inode was part of the orphaned inode list").
    pub(crate) fn deletion_time(&self) -> u32 {
        let now = u32::try_from(self.seconds()).unwrap_or(u32::MAX);
        now.max(self.geo.inodes_count.saturating_add(1))
    }

    /// A function that tells the ledgers whether a point is valid now.
    pub(crate) fn valid(&self) -> impl Fn(&CommitPoint) -> bool + '_ {
        |point| self.journal.is_valid(point)
    }
}
