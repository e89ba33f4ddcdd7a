//! Promises of space: an operation gets ENOSPC before it has changed anything. Space that was freed
//! since the last commit counts, too: an operation that finds no other room commits, and tries
//! again.

use std::sync::atomic::Ordering;

use stetfs_journal::{Credits, Handle, Ino};

use super::allocator::Allocator;
use crate::error::{FsError, Result};
use crate::space::Groups;
use crate::types::Ctx;

/// Clusters promised to one operation. The unused rest of the promise ends when it is dropped.
#[must_use]
pub(crate) struct Reservation<'a> {
    groups: &'a Groups,
    left: u64,
}

impl Reservation<'_> {
    /// Counts `blocks` clusters of the promise as allocated.
    pub(crate) fn consumed(&mut self, blocks: u64) {
        let blocks = blocks.min(self.left);
        self.left -= blocks;
        self.groups.reserved.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// Adds the unused rest of another promise.
    pub(crate) fn join(&mut self, other: Reservation<'_>) {
        self.left += other.keep();
    }

    /// Keeps the unused rest of the promise, clusters, until it is passed to
    /// [`kept_promise`](Allocator::kept_promise).
    pub(crate) fn keep(mut self) -> u64 {
        std::mem::take(&mut self.left)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.groups.reserved.fetch_sub(self.left, Ordering::Relaxed);
    }
}

/// The number of commits that an operation waits for before it returns ENOSPC.
const COMMITS: usize = 2;

/// The result of a search for room.
enum Look<T> {
    Found(T),
    /// No room now, but space that waits for a commit would be enough.
    AfterCommit,
    Nothing,
}

impl Allocator {
    /// Promises `blocks` clusters (blocks, without `bigalloc`), data and metadata together, for the
    /// allocations of one operation. A `privileged` caller may use the volume's reserved blocks.
    /// This may commit the journal to use freed space: no handle may be open; inode locks may be
    /// held.
    ///
    /// # Errors
    /// ENOSPC; nothing was changed.
    pub(crate) fn reserve(&self, blocks: u64, privileged: bool) -> Result<Reservation<'_>> {
        if self.groups.keep_freed.load(Ordering::Acquire) {
            // Recovery is applying a log. It may use the blocks that users may not (replay.A3).
            let room = self.promise_all(blocks, self.groups.pending_blocks());
            return room.ok_or(FsError::Errno(libc::ENOSPC));
        }
        self.look_for_room(|| {
            let pending = self.groups.pending_blocks();
            if let Some(room) = self.try_reserve(blocks, privileged, pending) {
                return Ok(Look::Found(room));
            }
            let redo = self.end_redo_promises();
            Ok(match self.try_reserve(blocks, privileged, pending) {
                Some(room) => Look::Found(room),
                // A commit is useful only if it frees enough.
                None if self.may_reserve(blocks, privileged, redo) => Look::AfterCommit,
                None => Look::Nothing,
            })
        })
    }

    /// The promise of clusters that were [kept](Reservation::keep).
    pub(crate) fn kept_promise(&self, clusters: u64) -> Reservation<'_> {
        Reservation {
            groups: &self.groups,
            left: clusters,
        }
    }

    /// Promises clusters again that were allocated from a promise and are about to be freed.
    pub(crate) fn promise_again(&self, clusters: u64) -> Reservation<'_> {
        self.groups.reserved.fetch_add(clusters, Ordering::Relaxed);
        self.kept_promise(clusters)
    }

    /// Begins a handle near an inode, and makes another in it; this is the first action of `make`.
    /// It may commit the journal to use freed numbers: no handle may be open; inode locks may be
    /// held.
    ///
    /// # Errors
    /// Errors of `make`: ENOSPC when no inode is free; then nothing was changed.
    pub(crate) fn begin_with_inode<T>(
        &self,
        near: Ino,
        credits: Credits,
        make: impl Fn(&Handle<'_>) -> Result<T>,
    ) -> Result<(Handle<'_>, T)> {
        self.look_for_room(|| {
            // Read before the attempt: numbers that stop being pending until then, the attempt can
            // use.
            let pending = self.groups.pending_inodes();
            let h = self.vol.begin(near, credits)?;
            match make(&h) {
                Err(FsError::Errno(libc::ENOSPC)) if pending > 0 => Ok(Look::AfterCommit),
                Err(FsError::Errno(libc::ENOSPC)) => Ok(Look::Nothing),
                made => Ok(Look::Found((h, made?))),
            }
        })
    }

    /// Searches for room, and again after a commit while that may help: space that running
    /// transactions freed becomes usable when they are valid (space.S2). `look` leaves no handle
    /// open when it finds nothing.
    fn look_for_room<T>(&self, mut look: impl FnMut() -> Result<Look<T>>) -> Result<T> {
        for attempt in 0.. {
            match look()? {
                Look::Found(room) => return Ok(room),
                Look::AfterCommit if attempt < COMMITS => {
                    self.vol.journal.commit_all()?;
                    self.hand_back_held()?;
                }
                Look::AfterCommit | Look::Nothing => break,
            }
        }
        Err(FsError::Errno(libc::ENOSPC))
    }

    /// Reserves clusters if there is room without `pending` of the free ones.
    fn try_reserve(&self, blocks: u64, privileged: bool, pending: u64) -> Option<Reservation<'_>> {
        self.promise_all(blocks, pending.saturating_add(self.kept_back(privileged)))
    }

    /// Whether there would be room if no block were pending, and the promises of `redo` clusters
    /// had ended.
    fn may_reserve(&self, blocks: u64, privileged: bool, redo: u64) -> bool {
        let promised = self.groups.reserved.load(Ordering::Relaxed);
        let wanted = promised.saturating_sub(redo).checked_add(blocks);
        let most = self.groups.free_blocks();
        wanted.is_some_and(|wanted| wanted <= most.saturating_sub(self.kept_back(privileged)))
    }

    /// Clusters that this caller may not use.
    fn kept_back(&self, privileged: bool) -> u64 {
        let reserved = match privileged {
            true => 0,
            false => self.vol.sb.reserved_blocks() / u64::from(self.vol.geo.ratio()),
        };
        self.vol.sb.kept_clusters() + reserved
    }

    /// Reserves clusters if there is room without `but` of the free ones.
    pub(super) fn promise_all(&self, blocks: u64, but: u64) -> Option<Reservation<'_>> {
        let groups = &self.groups;
        if blocks > 0 {
            let update = |promised: u64| {
                let wanted = promised.checked_add(blocks)?;
                (wanted <= groups.free_blocks().saturating_sub(but)).then_some(wanted)
            };
            let order = Ordering::Relaxed;
            groups.reserved.fetch_update(order, order, update).ok()?;
        }
        Some(self.kept_promise(blocks))
    }

    /// Whether the caller may use the volume's reserved blocks.
    pub(crate) fn privileged(&self, ctx: &Ctx) -> bool {
        let (uid, gid) = self.vol.sb.reserved_for();
        ctx.uid == 0 || ctx.uid == uid || (gid != 0 && ctx.gid == gid)
    }
}
