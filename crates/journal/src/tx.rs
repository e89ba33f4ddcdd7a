//! A transaction and the phases of its life: running, locked, snapshot, committing, durable, valid.
//!
//! Invariants:
//! * **tx.T1** While running it takes handles; locked it takes none and waits for the last to stop;
//!   its snapshot is taken with no handle open, so every operation is in it whole or not at all.
//! * **tx.T2** [`crate::JournalHead`] names the transaction that listed a block last. At the
//!   snapshot a listed block whose head names another is in that one, which commits with this one;
//!   if it names none the block was freed: skipped. A block is listed again where it was listed
//!   elsewhere, or freed, meanwhile; one image of it is taken.
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

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use stetfs_cache::PageRef;
use stetfs_sync::plain::{Condvar, Instant, Mutex};

use crate::head::Block;
use crate::ids::{BlockNr, CommitPoint, Ino, Stamp, TxId};
use crate::policy::Touched;

/// Something to do once a transaction is valid.
pub type AfterCommit = Box<dyn FnOnce() + Send>;

/// Where a transaction is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Takes handles.
    Running,
    /// Takes none, and waits for the last to stop.
    Locked,
    /// Its changes are all made; its snapshot is being taken.
    Snapshot,
    /// Its snapshot is taken.
    Committing,
}

pub(crate) struct TxState {
    pub phase: Phase,
    /// Open handles.
    pub handles: u32,
    /// Credits that open handles hold and have not used.
    pub reserved: u64,
    /// Blocks changed, in the order of their first change (tx.T2).
    pub blocks: Vec<Arc<Block>>,
    /// Blocks whose images in the live log are void from this transaction on.
    pub revokes: BTreeSet<BlockNr>,
    /// Runs freed here that had gone through the journal: their pending home writes are void.
    pub freed: Vec<(BlockNr, u64)>,
    /// Inodes whose dirty data goes home first.
    pub ordered: HashSet<Ino>,
    /// What transactions of other lanes this one depends on.
    pub edges: CommitPoint,
    pub after: Vec<AfterCommit>,
    /// Images that others took of blocks that they were to change before the snapshot came to them
    /// (tx.T4).
    pub captured: Vec<Image>,
    /// When the first handle came: the periodic commit counts from here.
    pub touched: Option<Instant>,
    /// The stamp counter then, for the file-record horizon: no record has a lower stamp that says
    /// what this transaction holds.
    pub opened: Option<Stamp>,
}

/// One transaction.
pub(crate) struct Tx {
    pub id: TxId,
    pub state: Mutex<TxState>,
    /// Signalled when the last handle of a locked transaction stops.
    pub drained: Condvar,
}

impl Tx {
    pub(crate) fn new(id: TxId) -> Tx {
        Tx {
            id,
            state: Mutex::new(TxState {
                phase: Phase::Running,
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

    /// Whether nothing was or is being done in it: there is nothing to commit.
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

    /// Takes the snapshot of a locked, drained transaction (tx.T1, tx.T2).
    pub(crate) fn snapshot(&self, stamp: Stamp, floor: Stamp) -> (Snapshot, TxRest) {
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
        s.phase = Phase::Committing;
        if !s.captured.is_empty() {
            // Who captured could not know which were taken.
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
        (snapshot, rest)
    }
}

/// A block's content at the moment of the snapshot.
pub struct Image {
    /// Home.
    pub nr: BlockNr,
    /// Content (tx.T3).
    pub page: PageRef,
    /// What it was before the transaction, where only changes are logged; none where all of it is
    /// new.
    pub base: Option<PageRef>,
    /// What changed since the block was home, where only changes are logged; none: all of it.
    pub touched: Option<Touched>,
    /// Keeps the block in the cache until the image is home (cache.C2); none if it is in no cache.
    pub(crate) block: Option<Arc<Block>>,
}

/// What a transaction commits.
pub struct Snapshot {
    /// Which one.
    pub id: TxId,
    /// Its place in the order of commits.
    pub stamp: Stamp,
    /// The stamp up to which file-level records are superseded once it is valid.
    pub floor: Stamp,
    /// The changed blocks.
    pub images: Vec<Image>,
    /// Blocks whose older images are void, ascending.
    pub revokes: Vec<BlockNr>,
    /// Dependencies on other lanes.
    pub edges: CommitPoint,
}

/// What a transaction carries beside its log content.
pub(crate) struct TxRest {
    pub freed: Vec<(BlockNr, u64)>,
    pub ordered: Vec<Ino>,
    pub after: Vec<AfterCommit>,
}
