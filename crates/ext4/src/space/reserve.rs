//! Promises of space: an operation learns of ENOSPC before it has changed anything.

use std::sync::atomic::Ordering;

use crate::error::{FsError, Result};
use crate::fs::Fs;
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
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.groups.reserved.fetch_sub(self.left, Ordering::Relaxed);
    }
}

/// How often space that waits for a commit is waited for before ENOSPC.
const COMMITS: usize = 2;

impl Fs {
    /// Promises `blocks` clusters (blocks, without `bigalloc`), data and metadata together, for the allocations of one operation.
    /// A `privileged` caller may use the volume's reserved blocks. May commit the journal to get at
    /// freed space: no handle may be open, inode locks may be held.
    ///
    /// # Errors
    /// ENOSPC; nothing was changed.
    pub(crate) fn reserve(&self, blocks: u64, privileged: bool) -> Result<Reservation<'_>> {
        for attempt in 0.. {
            let pending = self.groups.pending_blocks();
            if let Some(r) = self.try_reserve(blocks, privileged, pending) {
                return Ok(r);
            }
            // Space freed by running transactions becomes usable when they are valid. A commit is
            // worth it only if that is enough.
            if attempt >= COMMITS || self.try_reserve(blocks, privileged, 0).is_none() {
                break;
            }
            self.journal.commit_all()?;
        }
        Err(FsError::Errno(libc::ENOSPC))
    }

    /// Reserves if there is room when `pending` of the free blocks do not count.
    fn try_reserve(&self, blocks: u64, privileged: bool, pending: u64) -> Option<Reservation<'_>> {
        let groups = &self.groups;
        let mut kept = self.sb.kept_clusters();
        if !privileged {
            kept += self.sb.reserved_blocks() / u64::from(self.ratio());
        }
        if blocks > 0 {
            let update = |promised: u64| {
                let free = groups.free_blocks().saturating_sub(pending);
                let wanted = promised.checked_add(blocks)?;
                (wanted <= free.saturating_sub(kept)).then_some(wanted)
            };
            let order = Ordering::Relaxed;
            groups.reserved.fetch_update(order, order, update).ok()?;
        }
        Some(Reservation {
            groups,
            left: blocks,
        })
    }

    /// Whether the caller may use the volume's reserved blocks.
    pub(crate) fn privileged(&self, ctx: &Ctx) -> bool {
        let (uid, gid) = self.sb.reserved_for();
        ctx.uid == 0 || ctx.uid == uid || (gid != 0 && ctx.gid == gid)
    }
}
