//! Promises of space: an operation learns of ENOSPC before it has changed anything. What was freed
//! since the last commit is room, too: whoever finds no other commits, and looks again.

use std::sync::atomic::Ordering;

use stetfs_journal::{Credits, Handle};

use super::allocator::Allocator;
use crate::error::{FsError, Result};
use crate::space::Groups;
use crate::types::Ctx;

/// Clusters promised to one operation. What is left of the promise ends when it is dropped.
#[must_use]
pub(crate) struct Reservation<'a> {
    groups: &'a Groups,
    left: u64,
}

impl Reservation<'_> {
    /// Says that `blocks` clusters of the promise were allocated.
    pub(crate) fn consumed(&mut self, blocks: u64) {
        let blocks = blocks.min(self.left);
        self.left -= blocks;
        self.groups.reserved.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// Adds what is left of another promise.
    pub(crate) fn join(&mut self, other: Reservation<'_>) {
        self.left += other.keep();
    }

    /// Keeps what is left of the promise, clusters, until it is given to
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

/// How often what waits for a commit is waited for before ENOSPC.
const COMMITS: usize = 2;

/// What a look for room finds.
enum Look<T> {
    Found(T),
    /// Nothing, but what waits for a commit would do.
    AfterCommit,
    Nothing,
}

impl Allocator {
    /// Promises `blocks` clusters (blocks, without `bigalloc`), data and metadata together, for the
    /// allocations of one operation. A `privileged` caller may use the volume's reserved
    /// blocks. May commit the journal to get at freed space: no handle may be open, inode locks
    /// may be held.
    ///
    /// # Errors
    /// ENOSPC; nothing was changed.
    pub(crate) fn reserve(&self, blocks: u64, privileged: bool) -> Result<Reservation<'_>> {
        if self.groups.keep_freed.load(Ordering::Acquire) {
            // A log is applied. What is kept back from users is for that, too (replay.A3).
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
                // A commit is worth it only if that is enough.
                None if self.may_reserve(blocks, privileged, redo) => Look::AfterCommit,
                None => Look::Nothing,
            })
        })
    }

    /// The promise of so many clusters that was [kept](Reservation::keep).
    pub(crate) fn kept_promise(&self, clusters: u64) -> Reservation<'_> {
        Reservation {
            groups: &self.groups,
            left: clusters,
        }
    }

    /// Promises clusters again that were allocated from a promise and are about to be given back.
    pub(crate) fn promise_again(&self, clusters: u64) -> Reservation<'_> {
        self.groups.reserved.fetch_add(clusters, Ordering::Relaxed);
        self.kept_promise(clusters)
    }

    /// Begins a handle and makes an inode in it, which is the first that `make` does. May commit
    /// the journal to get at freed numbers: no handle may be open, inode locks may be held.
    ///
    /// # Errors
    /// Those of `make`: ENOSPC when no inode is free; nothing was changed.
    pub(crate) fn begin_with_inode<T>(
        &self,
        credits: Credits,
        make: impl Fn(&Handle<'_>) -> Result<T>,
    ) -> Result<(Handle<'_>, T)> {
        self.look_for_room(|| {
            // Before the look: what is not pending any more by then, the look sees.
            let pending = self.groups.pending_inodes();
            let h = self.vol.journal.begin(credits)?;
            match make(&h) {
                Err(FsError::Errno(libc::ENOSPC)) if pending > 0 => Ok(Look::AfterCommit),
                Err(FsError::Errno(libc::ENOSPC)) => Ok(Look::Nothing),
                made => Ok(Look::Found((h, made?))),
            }
        })
    }

    /// Looks for room, and again after a commit while that may help: what running transactions
    /// freed becomes usable when they are valid (space.S2). `look` leaves no handle open where
    /// it finds nothing.
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

    /// Reserves if there is room when `pending` of the free blocks do not count.
    fn try_reserve(&self, blocks: u64, privileged: bool, pending: u64) -> Option<Reservation<'_>> {
        self.promise_all(blocks, pending.saturating_add(self.kept_back(privileged)))
    }

    /// Whether there would be room if nothing were pending, and `redo` of what is promised were
    /// not.
    fn may_reserve(&self, blocks: u64, privileged: bool, redo: u64) -> bool {
        let promised = self.groups.reserved.load(Ordering::Relaxed);
        let wanted = promised.saturating_sub(redo).checked_add(blocks);
        let most = self.groups.free_blocks();
        wanted.is_some_and(|wanted| wanted <= most.saturating_sub(self.kept_back(privileged)))
    }

    /// Clusters that are not for everybody.
    fn kept_back(&self, privileged: bool) -> u64 {
        let reserved = match privileged {
            true => 0,
            false => self.vol.sb.reserved_blocks() / u64::from(self.vol.geo.ratio()),
        };
        self.vol.sb.kept_clusters() + reserved
    }

    /// Reserves if there is room when `but` of the free clusters do not count.
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
