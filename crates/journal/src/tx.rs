//! A transaction and its life, from its first handle until its space in the log is free.
//!
//! ```text
//!           lock           end_changes        snapshot           wrote
//!  Running ─────▶ Locked ─────────────▶ Snapshot ───▶ Committing ─────▶ Written
//!                                                                          │ sealed
//!            leave          come_home            validate                  ▼
//!     Gone ◀─────── Home ◀─────────────── Valid ◀──────────────────── Durable
//! ```
//!
//! Each arrow is a method of [`Tx`]; there are no other steps (tx.T6). [`Phase`] describes the
//! states.
//!
//! Invariants:
//! * **tx.T1** A running transaction takes handles, and a locked one takes none and waits for the
//!   last to stop; its snapshot is taken with no handle open, so every operation is in it whole or
//!   not at all.
//! * **tx.T2** [`crate::JournalHead`] names the transaction that listed a block last. At the
//!   snapshot a listed block may name another transaction: its image is in that one, which commits
//!   with this one. It may name none: the block was freed, and is skipped. A block that another
//!   transaction listed or freed meanwhile may be listed twice; the snapshot takes one image of it.
//! * **tx.T3** The snapshot's pages are never written again (cache.C1).
//! * **tx.T4** A thread that changes a block which another lane's transaction lists never waits: it
//!   may hold a lock that a handle of that transaction needs to finish. While that transaction runs
//!   or is locked, the two transactions are chained to each other, and a commit takes both: its
//!   group grows by such chains until all its transactions go from locked to snapshot together.
//!   During the snapshot the thread takes the image of the block for that transaction, unless it
//!   was taken before; from then on the thread's own transaction depends on that one.
//! * **tx.T5** A transaction that depends on another for its image of a block treats that image as
//!   one of the live log from then on, though it is written there later: if it frees the block, it
//!   revokes the image.
//! * **tx.T6** A transaction goes through its states in their order, one at a time: a step from any
//!   other state is a bug, and stops the journal, in release builds, too. Steps up to the snapshot
//!   are made with the transaction's state locked, those from durable on with the checkpoint list
//!   locked.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use stetfs_cache::PageRef;
use stetfs_sync::plain::{Condvar, Instant, Mutex};

use crate::error::{JournalError, Result};
use crate::head::Block;
use crate::ids::{BlockNr, CommitPoint, Ino, Stamp, TxId};
use crate::policy::Touched;

/// A function that runs once a transaction is valid.
pub type AfterCommit = Box<dyn FnOnce() + Send>;

/// A state of a transaction's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The transaction takes handles.
    Running,
    /// The transaction takes no handles, and waits for the last to stop.
    Locked,
    /// All changes are made; the snapshot is being taken.
    Snapshot,
    /// The snapshot is taken, and is being written to the log.
    Committing,
    /// The device has the transaction's blocks; they may not be durable.
    Written,
    /// The transaction is durable in the log, but counts only together with what it depends on.
    Durable,
    /// The transaction counts: recovery would replay it. Its images are still to be written home.
    Valid,
    /// All images are home, or newer ones replaced them.
    Home,
    /// The transaction's log space is free.
    Gone,
}

impl Phase {
    const ALL: [Phase; 9] = [
        Phase::Running,
        Phase::Locked,
        Phase::Snapshot,
        Phase::Committing,
        Phase::Written,
        Phase::Durable,
        Phase::Valid,
        Phase::Home,
        Phase::Gone,
    ];

    /// Whether the transaction takes handles.
    pub(crate) fn takes_handles(self) -> bool {
        self == Phase::Running
    }

    /// Whether all changes are made: nothing is added any more, so what the transaction supersedes
    /// and waits for can be settled.
    pub(crate) fn is_ended(self) -> bool {
        self >= Phase::Snapshot
    }
}

/// The contents of a transaction, gathered while it runs.
pub(crate) struct TxState {
    /// The number of open handles.
    pub handles: u32,
    /// Credits that open handles hold and have not used.
    pub reserved: u64,
    /// Blocks changed, in the order of their first change (tx.T2).
    pub blocks: Vec<Arc<Block>>,
    /// Blocks whose images in the live log are void from this transaction on.
    pub revokes: BTreeSet<BlockNr>,
    /// Runs of blocks (first, count) freed here that had gone through the journal: images of them
    /// that are still to be written home are void.
    pub freed: Vec<(BlockNr, u64)>,
    /// Inodes whose dirty data is written home before the commit.
    pub ordered: HashSet<Ino>,
    /// The transactions of other lanes that this one depends on.
    pub edges: CommitPoint,
    pub after: Vec<AfterCommit>,
    /// Images of blocks that threads of other lanes took before the snapshot reached the blocks,
    /// because they were about to change them (tx.T4).
    pub captured: Vec<Image>,
    /// The time of the first handle: the period of the periodic commit begins here.
    pub touched: Option<Instant>,
    /// The stamp counter at that time, for the file-record horizon: every record of something that
    /// this transaction holds has a higher stamp.
    pub opened: Option<Stamp>,
}

/// One transaction.
pub(crate) struct Tx {
    pub id: TxId,
    /// A [`Phase`]. Locks order its changes (tx.T6), so models have no yield point here.
    phase: AtomicU8,
    pub state: Mutex<TxState>,
    /// Signalled when the last handle of a locked transaction stops.
    pub drained: Condvar,
}

impl Tx {
    pub(crate) fn new(id: TxId) -> Tx {
        Tx {
            id,
            phase: AtomicU8::new(Phase::Running as u8),
            state: Mutex::new(TxState {
                handles: 0,
                reserved: 0,
                blocks: Vec::new(),
                revokes: BTreeSet::new(),
                freed: Vec::new(),
                ordered: HashSet::new(),
                edges: CommitPoint::none(),
                after: Vec::new(),
                captured: Vec::new(),
                touched: None,
                opened: None,
            }),
            drained: Condvar::new(),
        }
    }

    /// The present state.
    pub(crate) fn phase(&self) -> Phase {
        let at = usize::from(self.phase.load(Ordering::Acquire));
        // Only numbers of phases are ever stored.
        Phase::ALL.get(at).copied().unwrap_or(Phase::Gone)
    }

    /// Makes one step of the life cycle (tx.T6).
    fn step(&self, from: Phase, to: Phase) -> Result<()> {
        let (expected, next) = (from as u8, to as u8);
        let phase = &self.phase;
        match phase.compare_exchange(expected, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(_) => Err(JournalError::Aborted(format!(
                "tx.T6: transaction {} of lane {} is {:?}, and was to go from {from:?} to {to:?}",
                self.id.seq,
                self.id.lane.0,
                self.phase()
            ))),
        }
    }

    /// A commit takes the transaction: no more handles come.
    ///
    /// # Errors
    /// `Aborted` if the transaction is not running (tx.T6). The other steps have the same error.
    pub(crate) fn lock(&self) -> Result<()> {
        self.step(Phase::Running, Phase::Locked)
    }

    /// The last handle has stopped, and all transactions chained to this one are in its group.
    pub(crate) fn end_changes(&self) -> Result<()> {
        self.step(Phase::Locked, Phase::Snapshot)
    }

    /// The device has the transaction's blocks.
    pub(crate) fn wrote(&self) -> Result<()> {
        self.step(Phase::Committing, Phase::Written)
    }

    /// The log format's seal is complete: a flush that began after the blocks were written has
    /// ended.
    pub(crate) fn sealed(&self) -> Result<()> {
        self.step(Phase::Written, Phase::Durable)
    }

    /// All that the transaction depends on is durable.
    pub(crate) fn validate(&self) -> Result<()> {
        self.step(Phase::Durable, Phase::Valid)
    }

    /// No image of the transaction is still to be written home.
    pub(crate) fn come_home(&self) -> Result<()> {
        self.step(Phase::Valid, Phase::Home)
    }

    /// The log's tail passes the transaction.
    pub(crate) fn leave(&self) -> Result<()> {
        self.step(Phase::Home, Phase::Gone)
    }

    /// Whether the transaction has no content and no handle: there is nothing to commit.
    pub(crate) fn is_untouched(&self) -> bool {
        let s = self.state.lock();
        s.handles == 0
            && s.blocks.is_empty()
            && s.revokes.is_empty()
            && s.after.is_empty()
            && s.ordered.is_empty()
            // Others wait for it to be valid.
            && s.edges.is_none()
    }

    /// Takes the snapshot of a drained transaction whose changes have ended (tx.T1, tx.T2).
    pub(crate) fn snapshot(&self, stamp: Stamp, floor: Stamp) -> Result<(Snapshot, TxRest)> {
        let (blocks, relisted) = {
            let mut s = self.state.lock();
            debug_assert_eq!(s.handles, 0, "tx.T1: a snapshot beside an open handle");
            let relisted = !s.edges.is_none() || !s.freed.is_empty();
            (std::mem::take(&mut s.blocks), relisted)
        };
        let mut taken = HashSet::new();
        let mut images = Vec::with_capacity(blocks.len());
        for block in blocks {
            let mut w = block.write();
            if w.head().tx == Some(self.id)
                && let Some(page) = w.page().cloned()
                && (!relisted || taken.insert(block.nr()))
            {
                let base = w.head().base.take();
                drop(w);
                images.push(Image {
                    nr: block.nr(),
                    page,
                    base,
                    touched: None,
                    block: Some(block),
                });
            }
        }
        let mut s = self.state.lock();
        self.step(Phase::Snapshot, Phase::Committing)?;
        if !s.captured.is_empty() {
            // The capturing thread could not know which images the snapshot had taken.
            let taken: HashSet<BlockNr> = images.iter().map(|image| image.nr).collect();
            let captured = std::mem::take(&mut s.captured);
            images.extend(captured.into_iter().filter(|i| !taken.contains(&i.nr)));
        }
        let snapshot = Snapshot {
            id: self.id,
            stamp,
            floor,
            images,
            revokes: std::mem::take(&mut s.revokes).into_iter().collect(),
            edges: s.edges.clone(),
        };
        let rest = TxRest {
            freed: std::mem::take(&mut s.freed),
            ordered: std::mem::take(&mut s.ordered).into_iter().collect(),
            after: std::mem::take(&mut s.after),
        };
        Ok((snapshot, rest))
    }
}

/// A block's content at the moment of the snapshot.
pub struct Image {
    /// The block's home location.
    pub nr: BlockNr,
    /// The content (tx.T3).
    pub page: PageRef,
    /// The content before the transaction, where the format logs only changes; none if all of it is
    /// new.
    pub base: Option<PageRef>,
    /// The bytes changed since the block was home, where the format logs only changes; none means
    /// all.
    pub touched: Option<Touched>,
    /// Keeps the block in the cache until the image is home (cache.C2); none if the block is not
    /// cached.
    pub(crate) block: Option<Arc<Block>>,
}

/// The content that a transaction commits.
pub struct Snapshot {
    /// The transaction.
    pub id: TxId,
    /// The transaction's place in the order of commits.
    pub stamp: Stamp,
    /// The stamp up to which records of files are superseded once the transaction is valid.
    pub floor: Stamp,
    /// The changed blocks.
    pub images: Vec<Image>,
    /// Blocks whose older images are void, ascending.
    pub revokes: Vec<BlockNr>,
    /// Dependencies on other lanes.
    pub edges: CommitPoint,
}

/// The parts of a transaction that do not go into the log.
pub(crate) struct TxRest {
    pub freed: Vec<(BlockNr, u64)>,
    pub ordered: Vec<Ino>,
    pub after: Vec<AfterCommit>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Lane;

    const ID: TxId = TxId {
        lane: Lane(0),
        seq: 7,
    };

    type Step = fn(&Tx) -> Result<()>;

    /// All steps of a life, each with the state that it leads to.
    const STEPS: [(Step, Phase); 8] = [
        (Tx::lock, Phase::Locked),
        (Tx::end_changes, Phase::Snapshot),
        (|tx| tx.snapshot(1, 0).map(drop), Phase::Committing),
        (Tx::wrote, Phase::Written),
        (Tx::sealed, Phase::Durable),
        (Tx::validate, Phase::Valid),
        (Tx::come_home, Phase::Home),
        (Tx::leave, Phase::Gone),
    ];

    /// tx.T6
    #[test]
    fn no_step_is_left_out_or_made_twice() {
        for reached in 0..=STEPS.len() {
            for (n, (step, to)) in STEPS.iter().enumerate() {
                let tx = Tx::new(ID);
                for (step, to) in &STEPS[..reached] {
                    step(&tx).unwrap();
                    assert_eq!(tx.phase(), *to);
                }
                let before = tx.phase();
                match step(&tx) {
                    Ok(()) => assert_eq!((n, tx.phase()), (reached, *to)),
                    Err(e) => {
                        assert!(n != reached && e.to_string().contains("tx.T6"), "{n}: {e}");
                        assert_eq!(tx.phase(), before);
                    }
                }
            }
        }
    }
}
