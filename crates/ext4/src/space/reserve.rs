//! Promises of space: an operation learns of ENOSPC before it has changed anything.

use std::sync::atomic::Ordering;

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::space::Groups;
use crate::types::Ctx;

/// Blocks promised to one operation. What is left of the promise ends when it is dropped.
#[must_use]
pub(crate) struct Reservation<'a> {
    groups: &'a Groups,
    left: u64,
}

impl Reservation<'_> {
    /// Says that `blocks` of the promise were allocated.
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
    /// Promises `blocks` blocks, data and metadata together, for the allocations of one operation.
    /// A `privileged` caller may use the volume's reserved blocks. May commit the journal to get at
    /// freed space: no handle may be open, inode locks may be held.
    ///
    /// # Errors
    /// ENOSPC; nothing was changed.
    pub(crate) fn reserve(&self, blocks: u64, privileged: bool) -> Result<Reservation<'_>> {
        for attempt in 0.. {
            if let Some(r) = self.try_reserve(blocks, privileged) {
                return Ok(r);
            }
            // Space freed by running transactions becomes usable when they are valid.
            if attempt >= COMMITS || self.groups.pending_blocks() == 0 {
                break;
            }
            self.journal.commit_all()?;
        }
        Err(FsError::Errno(libc::ENOSPC))
    }

    fn try_reserve(&self, blocks: u64, privileged: bool) -> Option<Reservation<'_>> {
        let groups = &self.groups;
        let kept = self.sb.kept_blocks()
            + if privileged {
                0
            } else {
                self.sb.reserved_blocks()
            };
        groups
            .reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |promised| {
                let usable = groups
                    .free_blocks()
                    .saturating_sub(groups.pending_blocks())
                    .saturating_sub(kept);
                let wanted = promised.checked_add(blocks)?;
                (wanted <= usable).then_some(wanted)
            })
            .ok()?;
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
