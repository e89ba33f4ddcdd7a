//! Steps of long changes: a handle that runs out of credits continues in the next transaction.

use stetfs_journal::{Credits, Handle};

use crate::data::store::DataStore;
use crate::error::Result;
use crate::inode::{Inode, InodeBody};
use crate::space::credits;

/// The number of steps after which a long operation restarts its handle: a transaction commits only
/// when all its handles have stopped.
const STEPS: u64 = 128;

impl DataStore {
    /// Ensures that `need` credits are left. If the transaction has no more, writes the inode and
    /// continues in the next one. The inode must be in a state that is valid after a crash.
    pub(in crate::data) fn more_credits(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        need: Credits,
    ) -> Result<()> {
        let left = h.credits_left();
        if left >= need || h.extend(need - left)? {
            return Ok(());
        }
        self.write_inode_step(h, inode, body)?;
        Ok(h.restart(need)?)
    }

    /// [`more_credits`](Self::more_credits) for step number `step` of a long operation: lets a
    /// commit happen at intervals.
    pub(in crate::data) fn next_step(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        need: Credits,
        step: u64,
    ) -> Result<()> {
        if !step.is_multiple_of(STEPS) {
            return self.more_credits(h, inode, body, need);
        }
        self.more_credits(h, inode, body, credits::WRITE_INODE)?;
        self.write_inode_step(h, inode, body)?;
        Ok(h.restart(need)?)
    }

    /// Writes the inode after a change of its size or blocks, also while it is being deleted.
    pub(crate) fn write_inode_step(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        self.inodes.store_inode(h, inode, body)?;
        self.inodes.needed(h, inode);
        Ok(())
    }
}
