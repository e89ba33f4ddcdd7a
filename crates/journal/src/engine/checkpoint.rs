//! Checkpoint: committed images go home, and the log's tail moves on.
//!
//! Invariants:
//! * **checkpoint.K1** Only images of valid transactions are written home, from the snapshot's
//!   page, never from the live one (what valid means is in `edges`).
//! * **checkpoint.K2** The tail moves past a transaction only when all its images are home or
//!   replaced, and the device was flushed since; space before the tail is reused only once the new
//!   tail is durable.
//! * **checkpoint.K3** Between lanes the oldest goes first: as long as a transaction stands in the
//!   log, so do all newer ones, of any lane, for recovery would replay its images, and its alone,
//!   over what the newer ones brought home.
//! * **checkpoint.K4** An image counts as one of the live log until the tail that leaves it behind
//!   is durable: who frees its block before revokes it, for a crash may bring it back.
//! * **checkpoint.K5** Tails that move together become durable together: no other tail of the log
//!   is written between them, for it would take some of them with it.

use std::sync::Arc;
use std::time::Duration;

use stetfs_sync::plain::{Instant, atomic::Ordering, mended};

use super::Inner;
use super::checkpoint_list::{CheckpointList, Reaped};
use super::lane::LaneState;
use super::spread::Spread;
use crate::error::{JournalError, Result};
use crate::ids::{BlockNr, TxId};
use crate::policy::{self, HomeImage, LogTail, Medium, Sent};
use crate::stats::bump;

/// Images sent home in one batch.
const BATCH: usize = 4096;
/// Without a reason to look earlier.
const TICK: Duration = Duration::from_secs(1);
/// Committed images wait at most about this long before they go home by themselves, so that a
/// recovery never has much more than this to do (as the kernel's dirty expiry).
const AGE: Duration = Duration::from_secs(30);

impl Inner {
    /// The checkpoint thread: on request, when the log is half full, when images are old.
    pub(crate) fn checkpoint_loop(&self) {
        while !self.quit.load(Ordering::Acquire) {
            let asked = self.checkpoint_signal.wait(TICK);
            if self.has_stopped() {
                // Nothing more goes home after a stop; just wait for the end, which asks.
                continue;
            }
            let done = match asked {
                true => self.checkpoint(None),
                false if self.checkpoint_is_due() => self.checkpoint(Some(Spread::begin(self))),
                false => Ok(()),
            };
            if let Err(e) = done {
                self.stop(Some(e));
            }
        }
    }

    fn checkpoint_is_due(&self) -> bool {
        self.lanes.iter().any(LaneState::is_half_full)
            || self.pinned.load(Ordering::Relaxed) * 2 > self.pinned_limit()
            || self
                .log
                .lock()
                .oldest()
                .is_some_and(|t| Instant::now().duration_since(t) >= AGE)
    }

    /// Brings home every valid image there is now, and moves the tails, as fast as it can: somebody
    /// waits. A checkpoint that takes its time does not any more.
    pub(crate) fn checkpoint_all(&self) -> Result<()> {
        let _hurry = self.checkpoint_signal.hurry();
        self.checkpoint(None)
    }

    fn checkpoint(&self, spread: Option<Spread>) -> Result<()> {
        let _one_at_a_time = self.home_io.lock();
        let (begun, mut paused) = (Instant::now(), Duration::ZERO);
        let images: Vec<BlockNr> = self.log.lock().pending.keys().copied().collect();
        self.point("checkpoint-listed");
        let canary = &self.config.canary;
        if canary.tail_early || canary.pass_chained {
            self.move_tails(&[])?;
        }
        let mut sent: Vec<(TxId, BlockNr)> = Vec::with_capacity(images.len());
        let mut left = images.as_slice();
        while !left.is_empty() {
            let done = images.len() - left.len();
            let pause = spread
                .as_ref()
                .and_then(|s| s.pause(self, done, images.len()));
            if let Some(pause) = pause
                && done > 0
            {
                let before = Instant::now();
                self.checkpoint_signal.pause(pause.time);
                paused += before.elapsed();
            }
            // Nothing goes home after a stop.
            self.check()?;
            let step = pause.map_or(BATCH, |p| p.images);
            let (now, later) = left.split_at(step.min(left.len()));
            left = later;
            self.send_home(now, &mut sent)?;
        }
        let is_volatile = canary.home_volatile || (canary.share_volatile && self.has_shared());
        if !sent.is_empty() && !is_volatile {
            self.flush()?;
        }
        self.move_tails(&sent)?;
        let took = begun.elapsed().saturating_sub(paused);
        self.times.checkpoint.add(took);
        Ok(())
    }

    fn has_shared(&self) -> bool {
        self.counters.shared.load(Ordering::Relaxed) > 0
    }

    /// Writes the images that these blocks have now, if they still have one.
    fn send_home(&self, blocks: &[BlockNr], sent: &mut Vec<(TxId, BlockNr)>) -> Result<()> {
        let mut images = Vec::with_capacity(blocks.len());
        let older;
        {
            let mut log = self.log.lock();
            older = std::mem::take(&mut log.older);
            for nr in blocks {
                let Some(image) = log.pending.get(nr) else {
                    continue;
                };
                if self.valid_seq(image.id.lane)? < image.id.seq {
                    return Err(JournalError::Aborted(format!(
                        "checkpoint.K1: an image of block {nr} was to go home that is not valid"
                    )));
                }
                let live = match (self.config.canary.live_images, &image.block) {
                    (true, Some(block)) => block.page(),
                    _ => None,
                };
                images.push(HomeImage {
                    nr: *nr,
                    place: image.place.filter(|_| live.is_none()),
                    page: live.unwrap_or_else(|| Arc::clone(&image.page)),
                });
                sent.push((image.id, *nr));
                log.inflight.insert(*nr);
            }
        }
        if !images.is_empty() {
            self.must_be_awake("an image goes home")?;
        }
        let sent_home = self.home.send(&*self.device, &images);
        if !older.is_empty() {
            let older: Vec<HomeImage> = older.into_values().collect();
            self.home.send(&*self.device, &older)?;
        }
        self.log.lock().inflight.clear();
        self.log_changed.notify_all();
        let Sent { shared, copied } = sent_home?;
        bump(&self.counters.shared, shared);
        bump(&self.counters.copied, copied);
        bump(
            &self.counters.bytes_home,
            copied * self.cache.block_size() as u64,
        );
        Ok(())
    }

    /// After a flush: what was sent is home, and log space that nobody needs any more is free
    /// (checkpoint.K2).
    fn move_tails(&self, sent: &[(TxId, BlockNr)]) -> Result<()> {
        let mut log = self.log.lock();
        for (id, nr) in sent {
            if log.pending.get(nr).is_some_and(|p| p.id == *id) {
                log.pending.remove(nr);
                log.settle(*id)?;
                self.pinned.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let reaped: Vec<Reaped> = log.reap();
        let forget =
            |log: &mut CheckpointList| reaped.iter().for_each(|space| log.forget(&space.homes));
        if !mended("checkpoint.index") {
            forget(&mut log);
        }
        self.log_changed.notify_all();
        drop(log);
        let lanes = reaped.iter().map(|space| self.lane(space.lane));
        let lanes = lanes.collect::<Result<Vec<_>>>()?;
        let tails = lanes.iter().zip(&reaped);
        self.set_tails(tails.map(|(lane, space)| (&*lane.medium, space.tail)))?;
        forget(&mut self.log.lock());
        for (lane, space) in lanes.iter().zip(&reaped) {
            lane.medium.trim(space.at, space.blocks)?;
            lane.free.fetch_add(space.blocks, Ordering::AcqRel);
        }
        bump(&self.counters.checkpoints, 1);
        for lane in &self.lanes {
            lane.wake();
        }
        Ok(())
    }

    /// Everything home, and the log marked empty: a cleanly unmounted volume.
    pub(crate) fn empty_log(&self) -> Result<()> {
        self.checkpoint_all()?;
        self.flush()?;
        let tails: Vec<u64> = self.log.lock().lanes.iter().map(|l| l.next_seq).collect();
        let media = self.lanes.iter().map(|lane| &*lane.medium);
        self.set_tails(media.zip(tails.into_iter().map(|seq| LogTail { seq, at: None })))
    }

    pub(super) fn set_tails<'m>(
        &self,
        tails: impl Iterator<Item = (&'m dyn Medium, LogTail)>,
    ) -> Result<()> {
        let mut tails = tails.peekable();
        if tails.peek().is_some() {
            self.must_be_awake("a tail is written")?;
        }
        let horizon = match mended("checkpoint.horizon") {
            true => self.horizon(),
            false => 0,
        };
        let _together = mended("checkpoint.together").then(|| self.tails.lock());
        let barrier = self.barrier() && !self.config.canary.tail_volatile;
        policy::set_tails(tails, horizon, barrier)
    }
}
