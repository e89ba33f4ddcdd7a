//! Block groups in memory: state behind a lock, and counts that searches read without it.

use stetfs_ondisk::ext4::group_desc::{GroupDesc, GroupFlags};
use stetfs_sync::timed::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use stetfs_sync::{Mutex, MutexGuard, Rank};

use super::promises::RedoPromises;
use super::scan::{FreeMap, Overlay};
use super::summary::Summary;
use super::window::{Unheld, Windows};
use super::zones::Zones;
use crate::error::{FsError, Result};
use crate::types::BlockNr;
use stetfs_ondisk::num::count32;

/// The state of a group behind its lock.
pub(crate) struct GroupState {
    /// The descriptor (space.S1).
    pub(super) desc: GroupDesc,
    /// Blocks that are free in the bitmap but must not be allocated: freed by a transaction that is
    /// not yet valid, or set aside (space.S2).
    pub(super) pending: Option<Box<Overlay>>,
    /// Freed inodes that must not be allocated yet (space.S2).
    pub(super) pending_inodes: Option<Box<Overlay>>,
    /// Blocks that two files own, as records or fast commits say (`space/claims`).
    pub(super) shared: Option<Box<Overlay>>,
    /// Windows: space set aside for files.
    pub(super) windows: Windows,
    /// No free run of the group is longer (space.S4).
    pub(super) longest: u32,
    /// No cluster before this one is free (space.S4).
    pub(super) first_free: u32,
    /// The block bitmap contradicts itself: nothing is allocated here.
    pub(super) bad_blocks: bool,
    /// The inode bitmap contradicts itself: nothing is allocated here.
    pub(super) bad_inodes: bool,
}

/// One group: its state, and the numbers that searches read without the lock.
struct Group {
    /// First block of the inode table. It never changes.
    table: BlockNr,
    state: Mutex<GroupState>,
    /// Blocks that can be allocated (space.S3).
    available: AtomicU32,
    free_inodes: AtomicU32,
    used_dirs: AtomicU32,
}

/// All groups, and sums over them for the volume.
pub(crate) struct Groups {
    list: Box<[Group]>,
    /// Blocks that no file may have.
    pub(crate) zones: Zones,
    free_blocks: AtomicU64,
    /// The part of `free_blocks` that must not be allocated yet.
    pending_blocks: AtomicU64,
    free_inodes: AtomicU64,
    /// The part of `free_inodes` that must not be allocated yet.
    pending_inodes: AtomicU64,
    used_dirs: AtomicU64,
    /// For each group, an upper bound of its free runs.
    runs: Summary,
    /// The cost of searches so far.
    pub(crate) cost: SearchCost,
    /// Windows of files that are not open here.
    pub(super) unheld: Unheld,
    /// Blocks promised to operations under way and to records.
    pub(super) reserved: AtomicU64,
    /// The part of `reserved` that records of files may need at a recovery.
    pub(super) redo: Mutex<RedoPromises>,
    /// Freed space is not allocated again (`space/claims`).
    pub(super) keep_freed: AtomicBool,
    /// Freed space that is held back (`epoch=`).
    pub(super) held: stetfs_sync::timed::Mutex<Vec<HeldBack>>,
    /// Statements about files win over the bitmaps (`space/claims`).
    pub(super) trust_files: AtomicBool,
    /// Groups that runs touched beyond the expected number, while records and fast commits are
    /// applied (`space/claims`).
    pub(super) more_groups: AtomicU64,
    /// Pieces of maps beyond the expected number (`space/claims`).
    pub(super) more_pieces: AtomicU64,
}

impl Groups {
    /// The groups from the volume's descriptors, in order.
    pub(crate) fn new(descs: Vec<GroupDesc>, zones: Zones) -> Groups {
        let sum =
            |f: fn(&GroupDesc) -> u32| AtomicU64::new(descs.iter().map(|d| u64::from(f(d))).sum());
        let (free_blocks, free_inodes, used_dirs) = (
            sum(GroupDesc::free_clusters),
            sum(GroupDesc::free_inodes),
            sum(GroupDesc::used_dirs),
        );
        let runs = Summary::new(descs.iter().map(GroupDesc::free_clusters));
        let list = descs
            .into_iter()
            .map(|desc| Group {
                table: desc.inode_table(),
                available: AtomicU32::new(desc.free_clusters()),
                free_inodes: AtomicU32::new(desc.free_inodes()),
                used_dirs: AtomicU32::new(desc.used_dirs()),
                state: Mutex::new(
                    Rank::Group,
                    GroupState {
                        desc,
                        pending: None,
                        pending_inodes: None,
                        shared: None,
                        windows: Windows::default(),
                        longest: u32::MAX,
                        first_free: 0,
                        bad_blocks: false,
                        bad_inodes: false,
                    },
                ),
            })
            .collect();
        Groups {
            list,
            zones,
            free_blocks,
            pending_blocks: AtomicU64::new(0),
            free_inodes,
            pending_inodes: AtomicU64::new(0),
            used_dirs,
            runs,
            cost: SearchCost::default(),
            unheld: Unheld::default(),
            reserved: AtomicU64::new(0),
            redo: Mutex::new(Rank::InodeLeaf, RedoPromises::default()),
            keep_freed: AtomicBool::new(false),
            held: stetfs_sync::timed::Mutex::default(),
            trust_files: AtomicBool::new(false),
            more_groups: AtomicU64::new(0),
            more_pieces: AtomicU64::new(0),
        }
    }

    /// Number of groups.
    pub(crate) fn count(&self) -> u32 {
        count32(self.list.len())
    }

    fn group(&self, group: u32) -> Result<&Group> {
        self.list.get(group as usize).ok_or_else(|| {
            FsError::corrupt("group number", 0, format!("{group} of {}", self.list.len()))
        })
    }

    /// First block of a group's inode table.
    pub(super) fn table(&self, group: u32) -> Result<BlockNr> {
        Ok(self.group(group)?.table)
    }

    /// Locks a group.
    pub(super) fn lock(&self, group: u32) -> Result<MutexGuard<'_, GroupState>> {
        Ok(self.group(group)?.state.lock())
    }

    /// Free clusters of the volume (blocks, without `bigalloc`; so everywhere in this module),
    /// including those that wait for a commit.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks.load(Ordering::Relaxed)
    }

    /// Free blocks that wait for the commit of the transaction that freed them.
    pub(super) fn pending_blocks(&self) -> u64 {
        self.pending_blocks.load(Ordering::Relaxed)
    }

    /// Free inodes of the volume.
    pub(crate) fn free_inodes(&self) -> u64 {
        self.free_inodes.load(Ordering::Relaxed)
    }

    /// Free inodes that wait for the commit of the transaction that freed them. When a number
    /// leaves this count, the counts of its group already include it.
    pub(super) fn pending_inodes(&self) -> u64 {
        self.pending_inodes.load(Ordering::Acquire)
    }

    /// Directories of the volume.
    pub(super) fn used_dirs(&self) -> u64 {
        self.used_dirs.load(Ordering::Relaxed)
    }

    /// Blocks that a group can allocate. Needs no lock.
    pub(super) fn available(&self, group: u32) -> u32 {
        self.list
            .get(group as usize)
            .map_or(0, |g| g.available.load(Ordering::Relaxed))
    }

    /// No free run of the group is longer. Needs no lock.
    pub(super) fn longest(&self, group: u32) -> u32 {
        self.runs.get(group)
    }

    /// No free run of any group is longer.
    pub(super) fn longest_of_all(&self) -> u32 {
        self.runs.max()
    }

    /// The first group from `from` on that may have a free run of `need` clusters.
    pub(super) fn next_with_run(&self, from: u32, need: u32) -> Option<u32> {
        self.runs.next(from, need)
    }

    /// Free inodes of a group. Needs no lock.
    pub(super) fn group_free_inodes(&self, group: u32) -> u32 {
        self.list
            .get(group as usize)
            .map_or(0, |g| g.free_inodes.load(Ordering::Relaxed))
    }

    /// Directories in a group. Needs no lock.
    pub(super) fn group_dirs(&self, group: u32) -> u32 {
        self.list
            .get(group as usize)
            .map_or(0, |g| g.used_dirs.load(Ordering::Relaxed))
    }

    /// Updates the numbers that are read without the lock, after the state changed from `before`.
    ///
    /// # Errors
    /// `Corrupt` when there is no such group.
    pub(super) fn publish(&self, group: u32, before: Counts, st: &GroupState) -> Result<()> {
        let g = self.group(group)?;
        let now = Counts::of(st);
        let usable = if st.bad_blocks {
            0
        } else {
            now.blocks.saturating_sub(now.pending)
        };
        g.available.store(usable, Ordering::Relaxed);
        self.runs.set(group, usable.min(st.longest));
        let inodes = if st.bad_inodes {
            0
        } else {
            now.inodes.saturating_sub(now.pending_inodes)
        };
        g.free_inodes.store(inodes, Ordering::Relaxed);
        g.used_dirs.store(now.dirs, Ordering::Relaxed);
        let add = |sum: &AtomicU64, was: u32, is: u32| {
            // Wrapping addition of the difference: the sums are exact because every change passes
            // here once.
            sum.fetch_add(
                u64::from(is).wrapping_sub(u64::from(was)),
                Ordering::Release,
            );
        };
        add(&self.free_blocks, before.blocks, now.blocks);
        add(&self.pending_blocks, before.pending, now.pending);
        add(&self.free_inodes, before.inodes, now.inodes);
        add(
            &self.pending_inodes,
            before.pending_inodes,
            now.pending_inodes,
        );
        add(&self.used_dirs, before.dirs, now.dirs);
        Ok(())
    }
}

/// The work of searches for free blocks since the volume was opened.
#[derive(Debug, Default)]
pub(crate) struct SearchCost {
    groups: AtomicU64,
    words: AtomicU64,
}

impl SearchCost {
    /// Groups whose bitmaps were searched, and 64-bit words examined in them.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        (
            self.groups.load(Ordering::Relaxed),
            self.words.load(Ordering::Relaxed),
        )
    }

    /// Counts the search of a group.
    pub(super) fn count(&self, map: &FreeMap<'_>) {
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.words.fetch_add(map.looked(), Ordering::Relaxed);
    }
}

/// The counts of a group that are summed over the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    blocks: u32,
    pending: u32,
    inodes: u32,
    pending_inodes: u32,
    dirs: u32,
}

impl Counts {
    pub(super) fn of(st: &GroupState) -> Counts {
        Counts {
            blocks: st.desc.free_clusters(),
            pending: st.pending.as_ref().map_or(0, |p| p.count()),
            inodes: st.desc.free_inodes(),
            pending_inodes: st.pending_inodes.as_ref().map_or(0, |p| p.count()),
            dirs: st.desc.used_dirs(),
        }
    }
}

impl GroupState {
    pub(super) fn has(&self, flag: GroupFlags) -> bool {
        self.desc.flags().contains(flag)
    }

    pub(super) fn clear(&mut self, flag: GroupFlags) {
        self.desc.set_flags(self.desc.flags() - flag);
    }
}

/// Space that a valid transaction freed and that is held back (`epoch=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldBack {
    /// Clusters of a group.
    Blocks {
        /// Group number.
        group: u32,
        /// First bit.
        bit: u32,
        /// Number of clusters.
        len: u32,
    },
    /// An inode of a group.
    Inode {
        /// Group number.
        group: u32,
        /// Index in the group.
        index: u32,
    },
}
