//! The space of the log: the ring of each lane with its free blocks, the checkpoint list, and the
//! tails. Only this module moves a head, a tail or an image.
//!
//! A transaction takes space in this order: its snapshot is listed ([`LogSpace::list_snapshot`]),
//! it is laid out at the head of its ring ([`LogSpace::lay_out`]), it becomes durable
//! ([`LogSpace::list_durable`]) and valid ([`LogSpace::validate`]). A checkpoint frees the space
//! ([`LogSpace::begin_home`] to [`LogSpace::give_back`]).

mod committing;
mod list;
mod signal;
mod validate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stetfs_sync::plain::{
    Condvar, Instant, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

use super::base::Base;
use super::validity::Validity;
use crate::error::{JournalError, Result, no_lane};
use crate::ids::{BlockNr, Lane, Stamp, TxId};
use crate::policy::{self, Home, HomeImage, LogTail, Medium, Sent};
use crate::stats::{add_time, bump};
use crate::tx::Image;
use list::{CheckpointList, LaneLog};
pub(super) use list::{Durable, Pending, Reaped};
pub(super) use signal::CheckpointSignal;

/// The age at which committed images are written home without a request. A recovery so never has
/// much more than this to replay (compare the kernel's dirty expiry).
const AGE: Duration = Duration::from_secs(30);

/// The ring of one lane.
pub(super) struct Ring {
    pub(super) medium: Box<dyn Medium>,
    /// Free log blocks, less those reserved for committing transactions.
    free: AtomicU64,
}

impl Ring {
    /// The free log blocks.
    pub(super) fn room(&self) -> u64 {
        self.free.load(Ordering::Acquire)
    }

    /// Whether more than half of the ring is used, so that a checkpoint is due.
    pub(super) fn is_half_full(&self) -> bool {
        self.free.load(Ordering::Relaxed) * 2 < self.medium.capacity()
    }
}

/// The log of a journal: its rings, and their contents.
pub(crate) struct LogSpace {
    base: Arc<Base>,
    rings: Vec<Ring>,
    home: Box<dyn Home>,
    list: Mutex<CheckpointList>,
    /// Signalled when the list has changed: images are home, or a tail has moved.
    changed: Condvar,
    /// Blocks held by committing transactions and pending checkpoints.
    pinned: AtomicU64,
    /// The present value of [`JournalConfig::memory`](super::config::JournalConfig::memory), in
    /// bytes. The bound on a single transaction stays as first set, because handles were promised
    /// that room. No order of memory accesses depends on it, so models have no yield point here.
    memory: std::sync::atomic::AtomicU64,
    /// Wakes the checkpoint thread.
    pub(super) signal: CheckpointSignal,
    /// Held by a checkpoint round; there is one at a time.
    round: Mutex<()>,
    /// Held while tails are written (checkpoint.K5).
    tails: Mutex<()>,
}

impl LogSpace {
    pub(super) fn new(
        base: Arc<Base>,
        media: Vec<Box<dyn Medium>>,
        home: Box<dyn Home>,
    ) -> LogSpace {
        let config = &base.config;
        let list = CheckpointList::new(&media, config.canary);
        let ring = |medium: Box<dyn Medium>| Ring {
            free: AtomicU64::new(medium.capacity()),
            medium,
        };
        LogSpace {
            rings: media.into_iter().map(ring).collect(),
            home,
            list: Mutex::new(list),
            changed: Condvar::new(),
            pinned: AtomicU64::new(0),
            memory: config.memory.into(),
            signal: CheckpointSignal::default(),
            round: Mutex::new(()),
            tails: Mutex::new(()),
            base,
        }
    }

    /// # Errors
    /// `Aborted` if the log has no such lane: the transaction is of another journal.
    pub(super) fn ring(&self, lane: Lane) -> Result<&Ring> {
        let ring = self.rings.get(usize::from(lane.0));
        ring.ok_or_else(|| no_lane(lane))
    }

    /// The rings, by lane.
    pub(super) fn rings(&self) -> impl Iterator<Item = (Lane, &Ring)> {
        (0..).map(Lane).zip(&self.rings)
    }

    /// The media of the rings, by lane.
    pub(super) fn media(&self) -> impl Iterator<Item = &dyn Medium> {
        self.rings.iter().map(|ring| &*ring.medium)
    }

    /// Wakes threads that wait for room or for images to be home.
    pub(super) fn wake(&self) {
        // A thread that is about to sleep holds the lock.
        drop(self.list.lock());
        self.changed.notify_all();
    }

    // The contents of the live log.

    /// The blocks of a range that have an image in the live log.
    pub(crate) fn live_in(&self, start: BlockNr, count: u64) -> Vec<BlockNr> {
        self.list.lock().live_in(start, count)
    }

    /// Removes the blocks that have no image in the live log.
    pub(super) fn retain_live(&self, blocks: &mut Vec<BlockNr>) {
        let list = self.list.lock();
        blocks.retain(|nr| list.is_live(*nr));
    }

    /// Lists an image that `tx` has of a block and is going to log, unless `tx` is valid (tx.T5).
    ///
    /// # Errors
    /// `Aborted` if there is no lane of `tx`.
    pub(super) fn list_image(&self, tx: TxId, nr: BlockNr, validity: &Validity) -> Result<()> {
        let mut list = self.list.lock();
        if !validity.has(tx)? {
            list.index_images(tx, &[nr]);
        }
        Ok(())
    }

    /// The newest durable transaction of each lane.
    pub(crate) fn newest_durable(&self) -> Vec<TxId> {
        self.list.lock().newest_durable()
    }

    /// The lowest opening stamp among transactions between snapshot and validity.
    pub(super) fn oldest_opening(&self) -> Option<Stamp> {
        self.list.lock().oldest_opening()
    }

    /// Adds to the changes of these images those of older images that are not home yet
    /// (changes.C1). An image that is being written home stays listed until it is durable there.
    pub(super) fn add_changes(&self, images: &mut [Image]) {
        let list = self.list.lock();
        for image in images {
            let Some(before) = list.pending.get(&image.nr) else {
                continue;
            };
            match (&mut image.touched, &before.touched) {
                (Some(now), Some(before)) => now.merge(before),
                (now, _) => *now = None,
            }
        }
    }

    // Checkpoints.

    /// Begins a checkpoint round. There is no other round while the guard lives.
    pub(super) fn begin_round(&self) -> MutexGuard<'_, ()> {
        self.round.lock()
    }

    /// The blocks whose images wait to be written home.
    pub(super) fn waiting_blocks(&self) -> Vec<BlockNr> {
        self.list.lock().pending.keys().copied().collect()
    }

    /// Takes the present images of these blocks, to be written home, and notes in `sent` which they
    /// are. A block may have none any more. [`send_home`](Self::send_home) follows.
    ///
    /// # Errors
    /// `Aborted` if one of them is not valid (checkpoint.K1), an impossible state.
    pub(super) fn begin_home(
        &self,
        blocks: &[BlockNr],
        validity: &Validity,
        sent: &mut Vec<(TxId, BlockNr)>,
    ) -> Result<HomeBatch> {
        let mut images = Vec::with_capacity(blocks.len());
        let mut list = self.list.lock();
        let older = std::mem::take(&mut list.older);
        for nr in blocks {
            let Some(image) = list.pending.get(nr) else {
                continue;
            };
            if !validity.has(image.id)? {
                return Err(JournalError::Aborted(format!(
                    "internal error (checkpoint.K1): an image of block {nr} that is not valid was \
                     to be written home"
                )));
            }
            let live = match (self.base.config.canary.live_images, &image.block) {
                (true, Some(block)) => block.page(),
                _ => None,
            };
            images.push(HomeImage {
                nr: *nr,
                place: image.place.filter(|_| live.is_none()),
                page: live.unwrap_or_else(|| Arc::clone(&image.page)),
            });
            sent.push((image.id, *nr));
            list.inflight.insert(*nr);
        }
        Ok(HomeBatch { images, older })
    }

    /// Writes a batch home, by the scheme's home policy.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn send_home(&self, batch: HomeBatch) -> Result<Sent> {
        let HomeBatch { images, older } = batch;
        let device = &*self.base.device;
        let sent = self.home.send(device, &images);
        if !older.is_empty() {
            let older: Vec<HomeImage> = older.into_values().collect();
            self.home.send(device, &older)?;
        }
        self.list.lock().inflight.clear();
        self.changed.notify_all();
        sent
    }

    /// A deliberate fault: writes images home without regard to the list.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn send_unlisted(&self, images: &[HomeImage]) -> Result<()> {
        self.home.send(&*self.base.device, images).map(drop)
    }

    /// Settles what was sent, after a flush: it is home. Returns the log space that is no longer
    /// needed (checkpoint.K2), to be freed by [`give_back`](Self::give_back) once the tails are
    /// durable.
    ///
    /// # Errors
    /// `Aborted` if log space was freed before its images were home (checkpoint.K2), an impossible
    /// state.
    pub(super) fn settle_home(&self, sent: &[(TxId, BlockNr)]) -> Result<Vec<Reaped>> {
        let mut list = self.list.lock();
        for (id, nr) in sent {
            if list.pending.get(nr).is_some_and(|p| p.id == *id) {
                list.pending.remove(nr);
                list.settle(*id)?;
                self.pinned.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let reaped = list.reap()?;
        if self.base.config.canary.forget_reaped {
            reaped.iter().for_each(|space| list.forget(&space.homes));
        }
        self.changed.notify_all();
        Ok(reaped)
    }

    /// Frees log space, once the tails are durable: its images leave the live log (checkpoint.K4).
    ///
    /// # Errors
    /// The device's, from a trim.
    pub(super) fn give_back(&self, reaped: &[Reaped]) -> Result<()> {
        {
            let mut list = self.list.lock();
            reaped.iter().for_each(|space| list.forget(&space.homes));
        }
        for space in reaped {
            let ring = self.ring(space.lane)?;
            ring.medium.trim(space.at, space.blocks)?;
            ring.free.fetch_add(space.blocks, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Writes tails and the horizon of the records; durably if `barrier`.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn set_tails<'m>(
        &self,
        tails: impl Iterator<Item = (&'m dyn Medium, LogTail)>,
        horizon: Stamp,
        barrier: bool,
    ) -> Result<()> {
        let together = !self.base.config.canary.tails_apart;
        let _alone = together.then(|| self.tails.lock());
        policy::set_tails(tails, horizon, barrier)
    }

    /// The tail of each lane for an empty log.
    pub(super) fn tails_if_empty(&self) -> Vec<LogTail> {
        self.tails_of(|lane| LogTail {
            seq: lane.next_seq,
            at: None,
        })
    }

    /// The tail of each lane for a log that is empty and starts at its head.
    pub(super) fn tails_at_heads(&self) -> Vec<LogTail> {
        self.tails_of(|lane| LogTail {
            seq: lane.next_seq,
            at: Some(lane.head),
        })
    }

    fn tails_of(&self, tail: impl Fn(&LaneLog) -> LogTail) -> Vec<LogTail> {
        self.list.lock().lanes.iter().map(tail).collect()
    }

    /// Whether a transaction is in the log.
    pub(super) fn is_used(&self) -> bool {
        let is_used = |lane: &LaneLog| {
            !lane.live.is_empty() || !lane.durable.is_empty() || !lane.committing.is_empty()
        };
        self.list.lock().lanes.iter().any(is_used)
    }

    /// Writes the horizon with the first lane's tail; durably if `barrier`.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn set_horizon(&self, horizon: Stamp, barrier: bool) -> Result<()> {
        let Some(medium) = self.media().next() else {
            return Ok(());
        };
        let _alone = self.tails.lock();
        medium.set_horizon(horizon);
        medium.set_tail(medium.tail(), barrier)
    }

    // Room and memory.

    /// Sets the bound on the memory that transactions and pending checkpoints hold, in bytes.
    pub(crate) fn set_memory(&self, bytes: u64) {
        self.memory.store(bytes, Ordering::Relaxed);
        self.signal.ask();
    }

    /// The bound on `pinned`, in blocks.
    fn pinned_limit(&self) -> u64 {
        self.memory.load(Ordering::Relaxed) / self.base.block_size()
    }

    fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }

    /// The free log blocks of each lane, then the free blocks of memory.
    pub(super) fn rooms(&self) -> Vec<u64> {
        let memory = self.pinned_limit().saturating_sub(self.pinned());
        let rings = self.rings.iter().map(Ring::room);
        rings.chain([memory]).collect()
    }

    /// Whether a checkpoint is due without a request.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        let is_old = |since| Instant::now().duration_since(since) >= AGE;
        self.rings.iter().any(Ring::is_half_full)
            || self.pinned() * 2 > self.pinned_limit()
            || self.list.lock().oldest().is_some_and(is_old)
    }

    /// Waits until transactions and pending checkpoints hold no more memory than they may.
    ///
    /// # Errors
    /// `Aborted` once the journal has stopped.
    pub(super) fn wait_for_memory(&self) -> Result<()> {
        let (base, limit) = (&self.base, self.pinned_limit());
        if self.pinned() <= limit {
            return base.check();
        }
        bump(&base.counters.waits_room, 1);
        let begun = Instant::now();
        let mut list = self.list.lock();
        while self.pinned() > limit {
            base.check()?;
            self.signal.ask();
            self.changed.wait_for(&mut list, Duration::from_millis(100));
        }
        add_time(&base.counters.waiting_room_nanos, begun);
        base.check()
    }
}

/// Images that are being written home.
pub(super) struct HomeBatch {
    images: Vec<HomeImage>,
    /// A deliberate fault: images that newer ones have replaced.
    older: BTreeMap<BlockNr, HomeImage>,
}

impl HomeBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.images.is_empty()
    }
}
