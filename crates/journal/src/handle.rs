//! Handles: the right to change blocks within the running transaction.

use std::cell::Cell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use stetfs_ondisk::num::count32;
use stetfs_sync::Held;

use crate::engine::{Inner, Journal, Shared};
use crate::error::Result;
use crate::head::{Block, JournalHead};
use crate::ids::{BlockNr, CommitPoint, Credits, Ino};
use crate::stats::bump;
use crate::tx::{AfterCommit, Tx};

/// One operation's part of a transaction. Belongs to one thread; dropping it stops it.
///
/// While a handle is open its transaction cannot commit: keep it short, and wait for nothing
/// that could itself wait for a commit (`Rank::Handle` checks this in debug builds).
pub struct Handle<'j> {
    journal: &'j Journal,
    tx: Arc<Tx>,
    left: Cell<Credits>,
    /// Credits besides, which are used when none are left.
    margin: Cell<Credits>,
    /// Whether the handle holds a place in the transaction (not after a failed restart).
    open: bool,
    _held: Held,
}

/// What becomes of what a block held before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Old {
    /// It stays, and need not be logged where changes are.
    Changes,
    /// It stays, and is logged.
    Logged,
    /// It goes: the block begins with zeroes.
    Gone,
}

impl<'j> Handle<'j> {
    pub(crate) fn new(
        journal: &'j Journal,
        tx: Arc<Tx>,
        credits: Credits,
        margin: Credits,
        held: Held,
    ) -> Handle<'j> {
        Handle {
            journal,
            tx,
            left: Cell::new(credits),
            margin: Cell::new(margin),
            open: true,
            _held: held,
        }
    }

    fn inner(&self) -> &'j Inner {
        self.journal.inner()
    }

    /// Declares `block` in the transaction and gives its content for changing. Drop the guard as
    /// soon as the change is whole; never hold two guards of one block.
    ///
    /// # Errors
    /// The block has no content (a failed read), or the journal stopped.
    pub fn modify<'b>(&'b self, block: &'b Arc<Block>) -> Result<BlockMut<'b>> {
        self.join(block, Old::Changes)
    }

    /// Like [`modify`](Self::modify) for a block that may also be written at its home past the
    /// journal: all of it is logged, also where else only changes are.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn modify_whole<'b>(&'b self, block: &'b Arc<Block>) -> Result<BlockMut<'b>> {
        self.join(block, Old::Logged)
    }

    /// Like [`modify`](Self::modify) for a block whose old content does not matter: it starts as
    /// zeroes and nothing is read. Get the block with `Cache::get`.
    ///
    /// # Errors
    /// The journal stopped.
    pub fn create<'b>(&'b self, block: &'b Arc<Block>) -> Result<BlockMut<'b>> {
        self.join(block, Old::Gone)
    }

    fn join<'b>(&'b self, block: &'b Arc<Block>, old: Old) -> Result<BlockMut<'b>> {
        let inner = self.inner();
        inner.check()?;
        let mut write = block.write();
        let listed = write.head().tx;
        if listed != Some(self.tx.id) {
            if let Some(other) = listed.filter(|t| t.lane != self.tx.id.lane) {
                inner.share(&self.tx, other, block, &write)?;
            }
            let mut state = self.tx.state.lock();
            state.blocks.push(block.clone());
            if !state.revokes.is_empty() {
                state.revokes.remove(&block.nr());
            }
            let from = [&self.left, &self.margin];
            if let Some(credits) = from.into_iter().find(|c| c.get() > 0) {
                credits.set(credits.get() - 1);
                state.reserved -= 1;
            }
            drop(state);
            let is_unlike = std::mem::take(&mut write.head().unlike_home);
            let is_unlike = is_unlike && !inner.config.canary.changes_of_unlike;
            let base = match inner.logs_changes && old == Old::Changes && !is_unlike {
                true => write.page().cloned(),
                false => None,
            };
            let head = write.head();
            (head.tx, head.base) = (Some(self.tx.id), base);
        }
        if old == Old::Gone {
            write.zero(inner.cache.block_size());
        } else {
            inner.open_page(&mut write)?;
        }
        Ok(BlockMut { write })
    }

    /// Says that `count` blocks from `start`, which had gone through the journal, were freed: no
    /// older image of them may ever be replayed or sent home, and changes to them in this very
    /// transaction are void.
    ///
    /// # Errors
    /// What cannot be: a block of a transaction that is none of this journal. It stops.
    pub fn revoke(&self, start: BlockNr, count: u64) -> Result<()> {
        let inner = self.inner();
        let mut live = Vec::new();
        for nr in start..start.saturating_add(count) {
            if let Some(block) = inner.cache.find(nr) {
                live.extend(self.delist(&block)?.then_some(nr));
                inner.cache.forget(nr);
            }
        }
        live.extend(inner.live_in(start, count));
        bump(&inner.counters.revokes, live.len() as u64);
        let mut state = self.tx.state.lock();
        state.revokes.extend(live);
        state.freed.push((start, count));
        Ok(())
    }

    /// Takes a block off the list of the transaction that has it, whichever it is: none may log it
    /// any more (tx.T2). To free what a transaction of another lane changed is to change it
    /// too. Whether an image of it is on its way into the log.
    fn delist(&self, block: &Arc<Block>) -> Result<bool> {
        let mut write = block.write();
        write.head().base = None;
        let Some(listed) = write.head().tx.take() else {
            return Ok(false);
        };
        Ok(listed.lane != self.tx.id.lane
            && self.inner().share(&self.tx, listed, block, &write)? == Shared::Depends)
    }

    /// A deliberate fault: the transaction that lists the block leaves it out.
    pub fn leave_out(&self, block: &Arc<Block>) {
        block.write().head().tx = None;
        let mut state = self.tx.state.lock();
        state.blocks.retain(|listed| listed.nr() != block.nr());
    }

    /// This inode's dirty data goes home before this transaction commits.
    pub fn order_data(&self, ino: Ino) {
        self.tx.state.lock().ordered.insert(ino);
    }

    /// Runs `f` once the transaction is valid (for example: freed blocks become reusable).
    pub fn after_commit(&self, f: AfterCommit) {
        self.tx.state.lock().after.push(f);
    }

    /// Asks for more credits in the same transaction. `false`: it has no room; bring the file
    /// system to a consistent point and [`restart`](Self::restart).
    ///
    /// # Errors
    /// The journal stopped.
    pub fn extend(&self, more: Credits) -> Result<bool> {
        let inner = self.inner();
        inner.check()?;
        let mut state = self.tx.state.lock();
        if !inner.fits(&self.tx, &state, more) {
            return Ok(false);
        }
        state.reserved += u64::from(more);
        self.left.set(self.left.get() + more);
        Ok(true)
    }

    /// Stops, and begins again with `need` credits, in the same or a later transaction.
    ///
    /// # Errors
    /// As [`Journal::begin`]; the handle is then good for nothing but being dropped.
    pub fn restart(&mut self, need: Credits) -> Result<()> {
        self.release();
        let margin = self.inner().margin();
        self.tx = self.inner().enter(need.saturating_add(margin))?;
        self.open = true;
        self.left.set(need);
        self.margin.set(margin);
        Ok(())
    }

    /// Credits not used yet, in blocks.
    pub fn credits_left(&self) -> Credits {
        self.left.get()
    }

    /// Of so many block groups, those in which changes of this lane look for space first, if lanes
    /// are to keep apart: from ⌊groups / lanes⌋ · lane on (Z-Journal §3.5), the last lane's to
    /// the end. None of fewer groups than lanes.
    pub fn part_of(&self, groups: u32) -> Option<Range<u32>> {
        let inner = self.inner();
        let lanes = count32(inner.lanes.len());
        let each = groups.checked_div(lanes).filter(|each| *each > 0)?;
        if lanes == 1 || !inner.ordering.keeps_apart() {
            return None;
        }
        let lane = u32::from(self.tx.id.lane.0);
        let end = if lane + 1 == lanes {
            groups
        } else {
            each * (lane + 1)
        };
        Some(each * lane..end)
    }

    /// The transaction, as something to wait for.
    pub fn point(&self) -> CommitPoint {
        CommitPoint::from(self.tx.id)
    }

    /// Ends the handle. The changes commit with the transaction.
    pub fn stop(self) -> CommitPoint {
        self.point()
    }

    /// Gives up the place in the transaction. Afterwards the handle is empty.
    fn release(&mut self) {
        if std::mem::take(&mut self.open) {
            let unused = self.left.replace(0) + self.margin.replace(0);
            self.inner().leave(&self.tx, unused);
        }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl std::fmt::Debug for Handle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({:?}, {} credits)", self.tx.id, self.left.get())
    }
}

/// A block's content, open for one change.
pub struct BlockMut<'b> {
    write: stetfs_cache::BlockWrite<'b, JournalHead>,
}

impl BlockMut<'_> {
    /// The block's number.
    pub fn nr(&self) -> BlockNr {
        self.write.nr()
    }
}

impl Deref for BlockMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.write.page().map_or(&[], |p| p)
    }
}

impl DerefMut for BlockMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.write.page_mut().map_or(&mut [], |(bytes, _)| bytes)
    }
}

impl Inner {
    /// Whether a failed or successful stop leaves the journal usable.
    pub(crate) fn check(&self) -> Result<()> {
        if self.has_stopped() {
            Err(self.stop_error())
        } else {
            Ok(())
        }
    }
}
