//! Checkpoint: committed images go home, and the log's tail moves on.
//!
//! Invariants:
//! * **K1** Only images of valid transactions are written home, from the snapshot's page, never
//!   from the live one (architecture, decisions 4 and 5).
//! * **K2** The tail moves past a transaction only when all its images are home or replaced, and
//!   the device was flushed since; space before the tail is reused only once the new tail is durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Inner;
use super::log::Reaped;
use crate::error::Result;
use crate::ids::{BlockNr, TxId};
use crate::policy::{HomeImage, LogTail};
use crate::stats::bump;

/// Images sent home in one batch.
const BATCH: usize = 4096;
/// Committed images wait at most about this long before they go home by themselves, so that a
/// recovery never has much more than this to do (as the kernel's dirty expiry).
const AGE: Duration = Duration::from_secs(30);

impl Inner {
    pub(crate) fn kick_checkpoint(&self) {
        let (flag, signal) = &self.checkpoint_kick;
        *flag.lock() = true;
        signal.notify_all();
    }

    /// The checkpoint thread: on request, when the log is half full, when images are old.
    pub(crate) fn checkpoint_loop(&self) {
        while !self.quit.load(Ordering::Acquire) {
            let kicked = {
                let (flag, signal) = &self.checkpoint_kick;
                let mut flag = flag.lock();
                if !*flag {
                    signal.wait_for(&mut flag, Duration::from_secs(1));
                }
                std::mem::take(&mut *flag)
            };
            if self.has_stopped() {
                // Nothing more goes home after a stop; just wait for the end.
                if !self.quit.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                continue;
            }
            if let Some(fs) = self.fs.get().and_then(std::sync::Weak::upgrade) {
                fs.tick();
            }
            if (kicked || self.checkpoint_is_due())
                && let Err(e) = self.checkpoint_all()
            {
                self.stop(Some(e));
            }
        }
    }

    fn checkpoint_is_due(&self) -> bool {
        let half = self
            .scheme
            .media
            .iter()
            .zip(&self.free)
            .any(|(m, f)| f.load(Ordering::Relaxed) * 2 < m.capacity());
        let memory = self.config.memory / self.cache.block_size() as u64;
        half || self.pinned.load(Ordering::Relaxed) * 2 > memory
            || self
                .log
                .lock()
                .oldest()
                .is_some_and(|t| Instant::now().duration_since(t) >= AGE)
    }

    /// Brings home every valid image there is now, and moves the tails.
    pub(crate) fn checkpoint_all(&self) -> Result<()> {
        let _one_at_a_time = self.home_io.lock();
        let mut images: Vec<(TxId, HomeImage)> = Vec::new();
        {
            let mut log = self.log.lock();
            for (nr, image) in &log.pending {
                let home = HomeImage {
                    nr: *nr,
                    page: Arc::clone(&image.page),
                    in_log: image.in_log,
                };
                images.push((image.id, home));
            }
            let blocks: Vec<BlockNr> = images.iter().map(|(_, i)| i.nr).collect();
            log.inflight.extend(blocks);
        }
        let written = self.send_home(&images);
        let mut log = self.log.lock();
        log.inflight.clear();
        if written.is_ok() {
            for (id, image) in &images {
                if log.pending.get(&image.nr).is_some_and(|p| p.id == *id) {
                    log.pending.remove(&image.nr);
                    log.settle(*id);
                    self.pinned.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        let mut reaped: Vec<Reaped> = Vec::new();
        if written.is_ok() {
            reaped.extend((0..self.slots.len()).filter_map(|lane| log.reap(lane)));
        }
        self.log_changed.notify_all();
        drop(log);
        written?;
        for space in reaped {
            if let Some(medium) = self.scheme.media.get(space.lane) {
                medium.set_horizon(self.horizon());
                medium.set_tail(space.tail, self.barrier())?;
                medium.trim(space.at, space.blocks)?;
            }
            if let Some(free) = self.free.get(space.lane) {
                free.fetch_add(space.blocks, Ordering::AcqRel);
            }
        }
        bump(&self.counters.checkpoints, 1);
        for slot in &self.slots {
            slot.wake();
        }
        Ok(())
    }

    /// Writes the images and flushes (K2).
    fn send_home(&self, images: &[(TxId, HomeImage)]) -> Result<()> {
        if images.is_empty() {
            return Ok(());
        }
        for batch in images.chunks(BATCH) {
            let homes: Vec<HomeImage> = batch
                .iter()
                .map(|(_, i)| HomeImage {
                    nr: i.nr,
                    page: Arc::clone(&i.page),
                    in_log: i.in_log,
                })
                .collect();
            self.scheme.home.send(&*self.device, &homes)?;
            bump(&self.counters.blocks_home, batch.len() as u64);
            bump(
                &self.counters.bytes_home,
                (batch.len() * self.cache.block_size()) as u64,
            );
        }
        self.flush()
    }

    /// Everything home, and the log marked empty: a cleanly unmounted volume.
    pub(crate) fn empty_log(&self) -> Result<()> {
        self.checkpoint_all()?;
        self.flush()?;
        let tails: Vec<u64> = self.log.lock().lanes.iter().map(|l| l.next_seq).collect();
        for (medium, seq) in self.scheme.media.iter().zip(tails) {
            medium.set_horizon(self.horizon());
            medium.set_tail(LogTail { seq, at: None }, self.barrier())?;
        }
        Ok(())
    }
}
