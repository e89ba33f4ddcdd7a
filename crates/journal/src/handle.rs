//! Handles: the right to change blocks within the running transaction.

use std::cell::Cell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use stetfs_sync::Held;

use crate::engine::Engine;
use crate::engine::share::Shared;
use crate::error::Result;
use crate::head::{Block, JournalHead};
use crate::ids::{BlockNr, CommitPoint, Credits, Ino, Near};
use crate::stats::bump;
use crate::tx::{AfterCommit, Tx};

/// One operation's part of a transaction. It belongs to one thread; dropping it stops it.
///
/// While a handle is open its transaction cannot commit: keep it short, and wait for nothing
/// that could itself wait for a commit (`Rank::Handle` checks this in debug builds).
pub struct Handle<'j> {
    engine: &'j Engine,
    tx: Arc<Tx>,
    /// The neighbourhood of its changes.
    near: Option<Near>,
    left: Cell<Credits>,
    /// Further credits, used when `left` is used up.
    margin: Cell<Credits>,
    /// Whether the handle holds a place in the transaction (not after a failed restart).
    open: bool,
    _held: Held,
}

/// The treatment of a block's old content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Old {
    /// The old content stays; a format that logs changes logs only those.
    Changes,
    /// The old content stays, and all of the block is logged.
    Logged,
    /// The old content does not matter: the block begins with zeroes.
    Gone,
}

impl<'j> Handle<'j> {
    pub(crate) fn new(
        engine: &'j Engine,
        tx: Arc<Tx>,
        near: Option<Near>,
        credits: Credits,
        margin: Credits,
        held: Held,
    ) -> Handle<'j> {
        Handle {
            engine,
            tx,
            near,
            left: Cell::new(credits),
            margin: Cell::new(margin),
            open: true,
            _held: held,
        }
    }

    /// Declares `block` in the transaction and gives its content for changing. Drop the guard as
    /// soon as the change is complete; never hold two guards of one block.
    ///
    /// # Errors
    /// The block has no content (a failed read), or the journal stopped.
    pub fn modify<'b>(&'b self, block: &'b Arc<Block>) -> Result<BlockMut<'b>> {
        self.join(block, Old::Changes)
    }

    /// Like [`modify`](Self::modify), for a block that may also be written home outside the
    /// journal: all of it is logged, even by formats that log only changes.
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
    /// `Aborted` once the journal stopped.
    pub fn create<'b>(&'b self, block: &'b Arc<Block>) -> Result<BlockMut<'b>> {
        self.join(block, Old::Gone)
    }

    fn join<'b>(&'b self, block: &'b Arc<Block>, old: Old) -> Result<BlockMut<'b>> {
        let engine = self.engine;
        engine.base.check()?;
        let mut write = block.write();
        let listed = write.head().tx;
        if listed != Some(self.tx.id) {
            if let Some(other) = listed.filter(|t| t.lane != self.tx.id.lane) {
                engine.share(&self.tx, other, block, &write)?;
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
            let is_unlike = is_unlike && !engine.base.config.canary.changes_of_unlike;
            let base = match engine.base.change_unit.is_some() && old == Old::Changes && !is_unlike
            {
                true => write.page().cloned(),
                false => None,
            };
            let head = write.head();
            (head.tx, head.base) = (Some(self.tx.id), base);
        }
        if old == Old::Gone {
            write.zero(engine.base.cache.block_size());
        } else {
            engine.open_page(&mut write)?;
        }
        Ok(BlockMut { write })
    }

    /// Revokes `count` blocks from `start`, which had gone through the journal and were freed: no
    /// older image of them may be replayed or written home, and changes to them in this transaction
    /// are void.
    ///
    /// # Errors
    /// `Aborted` if a block's transaction is of a lane that does not exist: a bug.
    pub fn revoke(&self, start: BlockNr, count: u64) -> Result<()> {
        let engine = self.engine;
        let mut live = Vec::new();
        for nr in start..start.saturating_add(count) {
            if let Some(block) = engine.base.cache.find(nr) {
                live.extend(self.delist(&block)?.then_some(nr));
                engine.base.cache.forget(nr);
            }
        }
        live.extend(engine.space.live_in(start, count));
        bump(&engine.base.counters.revokes, live.len() as u64);
        let mut state = self.tx.state.lock();
        state.revokes.extend(live);
        state.freed.push((start, count));
        Ok(())
    }

    /// Takes a block off the list of the transaction that lists it, of whatever lane: no
    /// transaction may log it any more (tx.T2). Freeing a block that a transaction of another lane
    /// changed counts as a change, too. Returns whether an image of the block is on its way into
    /// the log.
    fn delist(&self, block: &Arc<Block>) -> Result<bool> {
        let mut write = block.write();
        write.head().base = None;
        let Some(listed) = write.head().tx.take() else {
            return Ok(false);
        };
        Ok(listed.lane != self.tx.id.lane
            && self.engine.share(&self.tx, listed, block, &write)? == Shared::Depends)
    }

    /// A deliberate fault: the transaction that lists the block leaves it out.
    pub fn leave_out(&self, block: &Arc<Block>) {
        block.write().head().tx = None;
        let mut state = self.tx.state.lock();
        state.blocks.retain(|listed| listed.nr() != block.nr());
    }

    /// Has the inode's dirty data written home before this transaction commits.
    pub fn order_data(&self, ino: Ino) {
        self.tx.state.lock().ordered.insert(ino);
    }

    /// Runs `f` once the transaction is valid (for example: freed blocks become reusable).
    pub fn after_commit(&self, f: AfterCommit) {
        self.tx.state.lock().after.push(f);
    }

    /// Asks for `more` credits in the same transaction. `false` if it has no room: bring the file
    /// system to a consistent point and [`restart`](Self::restart).
    ///
    /// # Errors
    /// `Aborted` once the journal stopped.
    pub fn extend(&self, more: Credits) -> Result<bool> {
        let engine = self.engine;
        engine.base.check()?;
        let mut state = self.tx.state.lock();
        if !engine.fits(&self.tx, &state, more) {
            return Ok(false);
        }
        state.reserved += u64::from(more);
        self.left.set(self.left.get() + more);
        Ok(true)
    }

    /// Stops, and begins again with `need` credits, in the same or a later transaction.
    ///
    /// # Errors
    /// As [`Journal::begin`](crate::Journal::begin); the handle can then only be dropped.
    pub fn restart(&mut self, need: Credits) -> Result<()> {
        self.release();
        let margin = self.engine.lanes.margin();
        self.tx = self.engine.enter(need.saturating_add(margin), self.near)?;
        self.open = true;
        self.left.set(need);
        self.margin.set(margin);
        Ok(())
    }

    /// Credits not used yet, in blocks.
    pub fn credits_left(&self) -> Credits {
        self.left.get()
    }

    /// The part of a volume's `groups` block groups in which changes of this lane look for space
    /// first: from ⌊groups / lanes⌋ · lane on (Z-Journal §3.5), the last lane's up to the end. None
    /// if the scheme does not keep lanes apart, or has one lane, or if there are fewer groups than
    /// lanes.
    pub fn part_of(&self, groups: u32) -> Option<Range<u32>> {
        let engine = self.engine;
        let lanes = u32::from(engine.lanes.count());
        let each = groups.checked_div(lanes).filter(|each| *each > 0)?;
        if lanes == 1 || !engine.lanes.keeps_apart() {
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

    /// The transaction, as a point to wait for.
    pub fn point(&self) -> CommitPoint {
        CommitPoint::from(self.tx.id)
    }

    /// Ends the handle. The changes commit with the transaction.
    pub fn stop(self) -> CommitPoint {
        self.point()
    }

    /// Gives up the handle's place in the transaction. Afterwards the handle has no credits.
    fn release(&mut self) {
        if std::mem::take(&mut self.open) {
            let unused = self.left.replace(0) + self.margin.replace(0);
            self.engine.leave(&self.tx, unused);
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
