//! Checkpoint: committed images are written home, and the log's tail moves on.
//!
//! Invariants:
//! * **checkpoint.K1** Only images of valid transactions are written home, from the snapshot's
//!   page, never from the live one (what valid means is in `edges`).
//! * **checkpoint.K2** The tail moves past a transaction only when all its images are home or
//!   replaced, and the device was flushed since; space before the tail is reused only once the new
//!   tail is durable.
//! * **checkpoint.K3** Log space is freed oldest first over all lanes: as long as a transaction is
//!   in the log, so are all newer ones of any lane, for recovery would otherwise replay its images
//!   over those that the newer ones wrote home.
//! * **checkpoint.K4** An image counts as one of the live log until the tail that leaves it behind
//!   is durable: a transaction that frees its block before that revokes it, for a crash may bring
//!   it back.
//! * **checkpoint.K5** Tails that move together become durable together: no other tail of the log
//!   is written between them, for that write would make only some of them durable.

use std::time::Duration;

use stetfs_sync::plain::{Instant, atomic::Ordering};

use super::Engine;
use super::spread::Spread;
use crate::error::Result;
use crate::ids::{BlockNr, TxId};
use crate::policy::{LogTail, Medium, Sent};
use crate::stats::bump;

/// Images written home in one batch.
const BATCH: usize = 4096;
/// The interval at which the checkpoint thread looks whether a checkpoint is due.
const TICK: Duration = Duration::from_secs(1);

impl Engine {
    /// The checkpoint thread: it runs on request, when the log is half full, and when images are
    /// old.
    pub(super) fn checkpoint_loop(&self) {
        let space = &self.space;
        while !self.base.quits() {
            let asked = space.signal.wait(TICK);
            if self.base.has_stopped() {
                // Nothing is written home after a stop. The loop waits for the end, which signals.
                continue;
            }
            let done = match asked {
                true => self.checkpoint(None),
                false if space.is_checkpoint_due() => self.checkpoint(Some(Spread::begin(space))),
                false => Ok(()),
            };
            if let Err(e) = done {
                self.base.stop(Some(e));
            }
        }
    }

    /// Waits until memory and log have room for more changes.
    ///
    /// # Errors
    /// `Aborted` once the journal stopped.
    pub(crate) fn throttle(&self) -> Result<()> {
        self.space.wait_for_memory()
    }

    /// Writes home all images that are valid now, and moves the tails, as fast as it can: the
    /// caller waits. A checkpoint under way stops pausing.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn checkpoint_all(&self) -> Result<()> {
        let _hurry = self.space.signal.hurry();
        self.checkpoint(None)
    }

    fn checkpoint(&self, spread: Option<Spread>) -> Result<()> {
        let (base, space) = (&self.base, &self.space);
        let _one_at_a_time = space.begin_round();
        let (begun, mut paused) = (Instant::now(), Duration::ZERO);
        let images = space.waiting_blocks();
        base.point("checkpoint-listed");
        let canary = &base.config.canary;
        if canary.tail_early || canary.pass_chained {
            self.move_tails(&[])?;
        }
        let mut sent: Vec<(TxId, BlockNr)> = Vec::with_capacity(images.len());
        let mut left = images.as_slice();
        while !left.is_empty() {
            let done = images.len() - left.len();
            let pause = spread
                .as_ref()
                .and_then(|s| s.pause(space, self.clock.mean(), done, images.len()));
            if let Some(pause) = pause
                && done > 0
            {
                let before = Instant::now();
                space.signal.pause(pause.time);
                paused += before.elapsed();
            }
            // Nothing is written home after a stop.
            base.check()?;
            let step = pause.map_or(BATCH, |p| p.images);
            let (now, later) = left.split_at(step.min(left.len()));
            left = later;
            self.send_home(now, &mut sent)?;
        }
        let is_volatile = canary.home_volatile || (canary.share_volatile && self.has_shared());
        if !sent.is_empty() && !is_volatile {
            self.clock.flush()?;
        }
        self.move_tails(&sent)?;
        let took = begun.elapsed().saturating_sub(paused);
        base.times.checkpoint.add(took);
        Ok(())
    }

    fn has_shared(&self) -> bool {
        self.base.counters.shared.load(Ordering::Relaxed) > 0
    }

    /// Writes home the present images of these blocks; a block may have none any more.
    fn send_home(&self, blocks: &[BlockNr], sent: &mut Vec<(TxId, BlockNr)>) -> Result<()> {
        let batch = self.space.begin_home(blocks, &self.validity, sent)?;
        if !batch.is_empty() {
            self.must_be_awake("an image is written home")?;
        }
        let Sent { shared, copied } = self.space.send_home(batch)?;
        let counters = &self.base.counters;
        bump(&counters.shared, shared);
        bump(&counters.copied, copied);
        bump(&counters.bytes_home, copied * self.base.block_size());
        Ok(())
    }

    /// Settles what was sent, after a flush: it is home, and log space that is no longer needed
    /// becomes free (checkpoint.K2).
    fn move_tails(&self, sent: &[(TxId, BlockNr)]) -> Result<()> {
        let reaped = self.space.settle_home(sent)?;
        let rings = reaped.iter().map(|space| self.space.ring(space.lane));
        let rings = rings.collect::<Result<Vec<_>>>()?;
        let tails = rings.iter().zip(&reaped);
        self.set_tails(tails.map(|(ring, space)| (&*ring.medium, space.tail)))?;
        self.space.give_back(&reaped)?;
        bump(&self.base.counters.checkpoints, 1);
        self.lanes.wake();
        Ok(())
    }

    /// Writes everything home and marks the log empty, as in a cleanly unmounted volume.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn empty_log(&self) -> Result<()> {
        self.checkpoint_all()?;
        self.clock.flush()?;
        let tails = self.space.tails_if_empty();
        self.set_tails(self.space.media().zip(tails))
    }

    /// Writes tails and the horizon of the records, durably if barriers are on.
    ///
    /// # Errors
    /// The device's; `Aborted` if the journal rests.
    pub(super) fn set_tails<'m>(
        &self,
        tails: impl Iterator<Item = (&'m dyn Medium, LogTail)>,
    ) -> Result<()> {
        let mut tails = tails.peekable();
        if tails.peek().is_some() {
            self.must_be_awake("a tail is written")?;
        }
        let canary = &self.base.config.canary;
        let horizon = match canary.leave_horizon {
            true => 0,
            false => self.records.horizon(),
        };
        let barrier = self.clock.has_barrier() && !canary.tail_volatile;
        self.space.set_tails(tails, horizon, barrier)
    }
}
