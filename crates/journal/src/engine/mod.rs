//! The engine that runs every block-journal scheme: lanes with a running transaction each, one
//! commit thread, one sync thread, one checkpoint thread.
//!
//! Locks inside the engine, first to last: `LaneState::run` → `Tx::state` → `Inner::log`. Block
//! guards are held while `LaneState::run`, `Tx::state` or `log` is taken, never the other way
//! round: the snapshot looks at blocks with none of them held.

mod begin;
mod canary;
mod changes;
mod checkpoint;
mod checkpoint_list;
mod commit;
mod copies;
mod files;
mod flush;
mod gather;
mod journal;
mod lane;
mod queue;
mod rest;
mod room;
mod service;
mod spread;
mod validate;

pub(crate) use begin::{max_tx, most_blocks};
pub use canary::Canary;
use files::RecordedData;
pub use files::Records;
pub use flush::FlushMark;
use flush::SharedFlush;
pub use journal::{CHECKPOINT_THREAD, Done, FileState, Journal, JournalConfig, Submit, Wait};

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use stetfs_block::{BlockDevice, WriteList};
use stetfs_sync::plain::{
    Condvar, Instant, Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    mended,
};

use crate::error::{JournalError, Result};
use crate::gate::RestGate;
use crate::head::{Block, BlockWrite, Cache};
use crate::ids::{BlockNr, CommitPoint, Ino, Lane, Stamp, TxId};
use crate::policy::{self, Codec, Home, RecordLog};
use crate::stats::{Counters, Times};
use crate::tx::{Image, Phase, Tx};

use checkpoint_list::CheckpointList;
use lane::LaneState;
use queue::Queue;
use spread::{CheckpointSignal, SyncTime};

pub(crate) struct Inner {
    pub device: Arc<dyn BlockDevice>,
    pub cache: Arc<Cache>,
    pub ordering: Box<dyn policy::Ordering>,
    pub codec: Box<dyn Codec>,
    /// [`Codec::change_unit`] has an answer.
    pub logs_changes: bool,
    pub home: Box<dyn Home>,
    pub records: Option<Arc<dyn RecordLog>>,
    pub config: JournalConfig,
    /// [`JournalConfig::memory`] now, bytes. How long transactions get stays as it was at first:
    /// handles that were promised room have it. Nothing is ordered by it, so models do not stop
    /// there.
    pub memory: std::sync::atomic::AtomicU64,
    /// `commit=` may change at a remount.
    pub commit_millis: AtomicU64,
    /// Credits of every handle on top of what it asks for.
    pub margin: AtomicU32,
    pub lanes: Vec<LaneState>,
    /// The last stamp drawn ([`Stamp`]): the one order of commits, over all lanes.
    pub stamp: AtomicU64,
    /// Up to where valid transactions supersede file-level records.
    pub superseded: AtomicU64,
    /// Closed while the journal rests.
    pub gate: Arc<RestGate>,
    /// See [`JournalConfig::hold_horizon`].
    pub held: Mutex<Option<Stamp>>,
    /// Inodes whose data records hold.
    pub recorded: RecordedData,
    /// Flushes that syncs in the callers' threads share.
    pub flushes: SharedFlush,
    pub log: Mutex<CheckpointList>,
    /// Signalled when the log's state changed: home writes done, tail moved.
    pub log_changed: Condvar,
    /// Blocks held by committing transactions and pending checkpoints.
    pub pinned: AtomicU64,
    /// Threads and requests that wait for durability or for room.
    pub waiting: AtomicU64,
    /// Sync requests that may need a commit.
    pub commits: Queue,
    /// Sync requests that need data and a flush only.
    pub plain: Queue,
    /// Wakes the checkpoint thread.
    pub checkpoint_signal: CheckpointSignal,
    /// What a flush takes, with the writes of its commit.
    pub sync_time: SyncTime,
    /// One checkpoint round at a time.
    pub home_io: Mutex<()>,
    /// Held while tails are written (checkpoint.K5).
    pub tails: Mutex<()>,
    pub fs: OnceLock<Weak<dyn FileState>>,
    /// Set once the journal stopped, by error or shutdown.
    pub stopped: AtomicBool,
    pub why: Mutex<Option<JournalError>>,
    /// The threads end.
    pub quit: AtomicBool,
    pub counters: Counters,
    pub times: Times,
}

/// What became of two transactions that touch one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    /// The other is valid.
    Nothing,
    /// All or nothing.
    Chained,
    /// Ours depends on the other, which has its image of the block.
    Depends,
}

impl Inner {
    /// A place where a test may stop the threads of this journal.
    pub(crate) fn point(&self, name: &'static str) {
        stetfs_sync::point(self, name);
    }

    /// Ends the use of the log, durably.
    fn retire(&self) -> Result<()> {
        let media = self.lanes.iter().map(|lane| &*lane.medium);
        policy::retire(self.records.as_deref(), media)
    }

    /// # Errors
    /// The journal has no such lane: whoever asks has a transaction of another one.
    pub(crate) fn lane(&self, lane: Lane) -> Result<&LaneState> {
        let state = self.lanes.get(usize::from(lane.0));
        state.ok_or_else(|| no_lane(lane))
    }

    /// Up to where the transactions of a lane are valid.
    ///
    /// # Errors
    /// The journal has no such lane.
    pub(crate) fn valid_seq(&self, lane: Lane) -> Result<u64> {
        Ok(self.lane(lane)?.valid.load(Ordering::Acquire))
    }

    /// Whether everything a point names is durable and valid. Nothing is of a lane that is not
    /// there: a commit up to it says so.
    pub(crate) fn is_valid(&self, point: &CommitPoint) -> bool {
        let is_valid = |tx: TxId| self.valid_seq(tx.lane).is_ok_and(|seq| seq >= tx.seq);
        point.iter().all(is_valid)
    }

    /// Makes `mine`, of which a handle is open, depend on `other`, of another lane, as it must when
    /// it changes a block that `other` lists, and which the caller holds (tx.T4).
    ///
    /// # Errors
    /// There is no lane of the other.
    pub(crate) fn share(
        &self,
        mine: &Tx,
        other: TxId,
        block: &Arc<Block>,
        content: &BlockWrite<'_>,
    ) -> Result<Shared> {
        if self.valid_seq(other.lane)? >= other.seq {
            return Ok(Shared::Nothing);
        }
        let theirs = {
            let run = self.lane(other.lane)?.run.lock();
            (run.tx.id == other).then(|| Arc::clone(&run.tx))
        };
        let mut shared = Shared::Depends;
        if let Some(theirs) = theirs {
            let mut theirs = theirs.state.lock();
            match theirs.phase {
                Phase::Running | Phase::Locked => {
                    if mended("tx.chain") && !self.config.canary.chain_one_way {
                        theirs.edges.add(mine.id);
                    }
                    shared = Shared::Chained;
                }
                Phase::Snapshot if !mended("tx.capture") => {}
                Phase::Snapshot => theirs.captured.extend(content.page().map(|page| Image {
                    nr: block.nr(),
                    page: Arc::clone(page),
                    base: None,
                    touched: None,
                    block: Some(Arc::clone(block)),
                })),
                Phase::Committing => {}
            }
        }
        if shared == Shared::Depends && !self.config.canary.index_late {
            // It will stand in the log, so who frees the block must revoke it (tx.T5).
            let mut log = self.log.lock();
            if self.valid_seq(other.lane)? < other.seq {
                log.index_images(other, &[block.nr()]);
            }
        }
        mine.state.lock().edges.add(other);
        Ok(shared)
    }

    /// Blocks of the range that have an image in the live log.
    pub(crate) fn live_in(&self, start: BlockNr, count: u64) -> Vec<BlockNr> {
        self.log.lock().live_in(start, count)
    }

    /// Bound of `pinned`.
    pub(crate) fn pinned_limit(&self) -> u64 {
        self.memory.load(Ordering::Relaxed) / self.cache.block_size() as u64
    }

    pub(crate) fn barrier(&self) -> bool {
        self.config.barrier && !self.config.canary.no_barrier
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.timed(|barrier| match barrier {
            true => Ok(self.device.flush()?),
            false => Ok(()),
        })
    }

    /// Makes something durable, with barriers if they are wanted: then the time it takes counts.
    pub(crate) fn timed(&self, sync: impl FnOnce(bool) -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        let barrier = self.barrier();
        sync(barrier)?;
        if barrier {
            self.sync_time.add(begun.elapsed());
        }
        Ok(())
    }

    /// Writes home the dirty data of these inodes, and blocks of the log beside its first batch.
    /// The device has all of it on return; no flush.
    pub(crate) fn write_data(&self, inos: &[Ino], log: &WriteList<'_>) -> Result<()> {
        let device = &*self.device;
        let mut unsent = (!log.is_empty()).then_some(log);
        let mut logged = Ok(());
        let fs = self.fs.get().and_then(Weak::upgrade);
        if let Some(fs) = fs.filter(|_| !inos.is_empty()) {
            fs.hand_out(inos, &mut |batch| {
                let Some(log) = unsent.take() else {
                    return batch.submit(device);
                };
                let mut both = WriteList::new();
                both.extend(batch);
                both.extend(log);
                // One error tells of both, so each is written once more.
                both.submit(device).or_else(|_| {
                    logged = log.submit(device);
                    batch.submit(device)
                })
            })?;
        }
        if let Some(log) = unsent {
            logged = log.submit(device);
        }
        Ok(logged?)
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Stops the journal: with an error, the file system is told; without, this is the end of use.
    pub(crate) fn stop(&self, why: Option<JournalError>) {
        {
            let mut slot = self.why.lock();
            if self.stopped.swap(true, Ordering::AcqRel) {
                return;
            }
            slot.clone_from(&why);
        }
        if let Some(why) = why {
            tracing::error!("the journal stops: {why}");
            if let Some(fs) = self.fs.get().and_then(Weak::upgrade) {
                fs.aborted(&why);
            }
        }
        for lane in &self.lanes {
            lane.wake();
        }
        self.gate.stop();
        self.commits.wake();
        self.plain.wake();
        self.log_changed.notify_all();
    }

    /// The error for who comes after the stop.
    pub(crate) fn stop_error(&self) -> JournalError {
        match &*self.why.lock() {
            Some(why) => JournalError::Aborted(why.to_string()),
            None => JournalError::Aborted("the volume was unmounted".into()),
        }
    }

    pub(crate) fn no_content(&self, nr: BlockNr) -> JournalError {
        JournalError::Aborted(format!("block {nr} was to be changed before it was read"))
    }

    /// Newest sequences each lane must reach for `point`, over the closure of its chains: what has
    /// to be committed together, lane by lane.
    ///
    /// # Errors
    /// The point names a lane that is not there.
    pub(crate) fn closure(&self, point: &CommitPoint) -> Result<HashMap<Lane, u64>> {
        let mut want: HashMap<Lane, u64> = HashMap::new();
        let mut todo: Vec<TxId> = point.iter().collect();
        while let Some(tx) = todo.pop() {
            let seen = want.entry(tx.lane).or_insert(0);
            if *seen >= tx.seq || self.valid_seq(tx.lane)? >= tx.seq {
                continue;
            }
            *seen = tx.seq;
            let run = self.lane(tx.lane)?.run.lock();
            if run.tx.id.seq <= tx.seq {
                let state = run.tx.state.lock();
                todo.extend(state.edges.iter());
            }
        }
        Ok(want)
    }
}

impl Phase {
    pub(crate) fn takes_handles(self) -> bool {
        self == Phase::Running
    }

    /// What it supersedes and what it waits for may be settled: nothing is to be added.
    pub(crate) fn is_ended(self) -> bool {
        matches!(self, Phase::Snapshot | Phase::Committing)
    }
}

/// The error for a lane that is not there.
pub(crate) fn no_lane(lane: Lane) -> JournalError {
    JournalError::Aborted(format!("lane {} is none of this journal", lane.0))
}
