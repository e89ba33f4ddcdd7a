//! The flushes of the device: one runs at a time, and threads that are ready share the next.
//!
//! A thread that asks for a flush leads it, unless one is under way: then it waits for the next,
//! which begins after the thread's own writes have ended. Where commits run side by side, the
//! leader of a flush waits a little for commits that are about to ask ([`Coming`]): else lanes
//! flush in turn, and each waits for the flushes of the others.

use std::sync::Arc;
use std::time::Duration;

use stetfs_sync::plain::{
    Condvar, Instant, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

use super::base::Base;
use crate::error::Result;
use crate::stats::nanos;

/// The shortest wait for commits that are coming: sleeping and being woken takes as long.
const SHORTEST: Duration = Duration::from_micros(20);

/// The flushes of the device.
pub(crate) struct FlushClock {
    base: Arc<Base>,
    /// Commits run side by side: a flush waits for those that are coming.
    gathers: bool,
    state: Mutex<Shared>,
    changed: Condvar,
    /// The mean time of a flush with the writes of its commit, over the last few, in nanoseconds.
    mean: AtomicU64,
}

/// The shared flushes.
#[derive(Default)]
struct Shared {
    /// Number of the flush that began last.
    begun: u64,
    /// Number of the last flush that ended without error.
    ended: u64,
    /// A thread leads a flush, which has begun or is about to.
    led: bool,
    /// The number of [`Coming`] commits, and how many of them wait for a flush.
    coming: usize,
    here: usize,
}

/// A moment in the sequence of a journal's shared flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushMark(u64);

/// A commit that is going to ask for a flush.
pub(super) struct Coming<'c>(&'c FlushClock);

impl FlushClock {
    pub(super) fn new(base: Arc<Base>, gathers: bool) -> FlushClock {
        FlushClock {
            base,
            gathers,
            state: Mutex::default(),
            changed: Condvar::new(),
            mean: AtomicU64::new(0),
        }
    }

    /// Whether commits and checkpoints flush.
    pub(super) fn has_barrier(&self) -> bool {
        let config = &self.base.config;
        config.barrier && !config.canary.no_barrier
    }

    /// Makes writes before the call durable, if barriers are on, with a flush that other threads
    /// may share. Returns whether this thread flushed.
    ///
    /// # Errors
    /// The device's; the journal has then stopped.
    pub(crate) fn flush(&self) -> Result<bool> {
        let led = self.join()?;
        if let Some(took) = led.filter(|_| self.has_barrier()) {
            self.note(took);
        }
        Ok(led.is_some())
    }

    /// Runs `sync`, which makes something durable and is told whether barriers are on. If so, its
    /// time counts into the mean.
    ///
    /// # Errors
    /// The errors of `sync`.
    pub(super) fn timed(&self, sync: impl FnOnce(bool) -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        let barrier = self.has_barrier();
        sync(barrier)?;
        if barrier {
            self.note(begun.elapsed());
        }
        Ok(())
    }

    fn note(&self, took: Duration) {
        let mean = self.mean.load(Ordering::Relaxed);
        let took = nanos(took);
        let mean = match mean {
            0 => took,
            _ => mean - mean / 8 + took / 8,
        };
        self.mean.store(mean, Ordering::Relaxed);
    }

    /// The mean time of a flush with the writes of its commit.
    pub(super) fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean.load(Ordering::Relaxed))
    }

    /// A mark of now: earlier writes are durable once a flush that begins after it has ended.
    pub(crate) fn mark(&self) -> FlushMark {
        FlushMark(self.state.lock().begun)
    }

    /// Whether writes before `mark` are durable.
    pub(crate) fn is_flushed(&self, mark: FlushMark) -> bool {
        self.state.lock().ended > mark.0
    }

    /// Announces a commit that is going to ask for a flush.
    pub(super) fn coming(&self) -> Coming<'_> {
        let coming = Coming(self);
        coming.is_here(|s| s.coming += 1);
        coming
    }

    /// As [`flush`](Self::flush). Returns the time that the flush took, if this thread led it.
    fn join(&self) -> Result<Option<Duration>> {
        let base = &*self.base;
        let canary = &base.config.canary;
        let mut led = None;
        let mut s = self.state.lock();
        // A flush under way may have begun before this thread's writes ended.
        let need = s.begun + u64::from(!s.led || !canary.join_running_flush);
        while s.ended < need {
            if s.led {
                self.changed.wait(&mut s);
                base.check()?;
                continue;
            }
            s.led = true;
            self.gather(&mut s);
            s.begun += 1;
            let mine = s.begun;
            drop(s);
            let begun = Instant::now();
            let flushed: Result<()> = match self.has_barrier() {
                true => base.device.flush().map_err(Into::into),
                false => Ok(()),
            };
            if let Err(e) = &flushed {
                base.stop(Some(e.clone()));
            }
            led = Some(begun.elapsed());
            s = self.state.lock();
            s.led = false;
            if flushed.is_ok() {
                s.ended = mine;
            }
            self.changed.notify_all();
            flushed?;
        }
        drop(s);
        // A flush that failed in another thread may have dropped writes that this one was to make
        // durable.
        base.check()?;
        Ok(led)
    }

    /// Waits for commits that are coming, for half the mean time of a flush at most.
    fn gather(&self, s: &mut MutexGuard<'_, Shared>) {
        let half = self.mean() / 2;
        if !self.gathers || half < SHORTEST {
            return;
        }
        let until = Instant::now() + half;
        while s.here < s.coming && !self.base.has_stopped() {
            if self.changed.wait_until(s, until).timed_out() {
                return;
            }
        }
    }
}

impl Coming<'_> {
    /// As [`FlushClock::flush`], for a commit: [`FlushClock::timed`] notes its time.
    ///
    /// # Errors
    /// The device's; the journal has then stopped.
    pub(super) fn flush(&self) -> Result<()> {
        self.is_here(|s| s.here += 1);
        let flushed = self.0.join();
        self.is_here(|s| s.here -= 1);
        flushed.map(drop)
    }

    /// Tells the leader of a flush, if it waits for commits.
    fn is_here(&self, change: impl FnOnce(&mut Shared)) {
        if self.0.gathers {
            change(&mut self.0.state.lock());
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.is_here(|s| s.coming -= 1);
    }
}
