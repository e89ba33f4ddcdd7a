//! Attempts to make something durable: after the first that failed there are no more.

use std::collections::BTreeSet;

use stetfs_sync::plain::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
    mended,
};

use crate::{BlockError, Result};

/// The flushes of a device, and its writes with `fua`, as one history that ends with the first
/// failure (block.F1, block.F2 of [`FailStop`](crate::FailStop)). A device that flushes inside
/// another request keeps one of its own (block.F4).
#[derive(Default)]
pub struct Attempts {
    state: Mutex<State>,
    /// An attempt has ended.
    ended: Condvar,
    /// As `state.why`, for those that only look.
    failed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Attempts that began; each has the number it made.
    begun: u64,
    /// Numbers of those that have not ended.
    running: BTreeSet<u64>,
    /// The first failure.
    why: Option<BlockError>,
}

impl State {
    fn check(&self) -> Result<()> {
        self.why.clone().map_or(Ok(()), Err)
    }

    fn stop(&mut self, e: BlockError, failed: &AtomicBool) {
        if self.why.is_none() {
            tracing::error!("nothing more is written, for what was may be lost: {e}");
            self.why = Some(e);
            failed.store(true, Ordering::Release);
        }
    }
}

impl Attempts {
    /// Whether all attempts so far succeeded, or run.
    ///
    /// # Errors
    /// That of the first one that failed.
    pub fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => self.state.lock().check(),
            false => Ok(()),
        }
    }

    /// An attempt: runs `request`, and waits for those that run beside it.
    ///
    /// # Errors
    /// That of the first attempt that failed: an earlier one (`request` does not run then), this
    /// one, or one that ran beside it.
    pub fn run(&self, request: impl FnOnce() -> Result<()>) -> Result<()> {
        let mine = {
            let mut s = self.state.lock();
            s.check()?;
            s.begun += 1;
            let mine = s.begun;
            s.running.insert(mine);
            mine
        };
        let result = request();
        let mut s = self.state.lock();
        s.running.remove(&mine);
        if let Err(e) = result {
            s.stop(e, &self.failed);
        }
        self.ended.notify_all();
        let beside = s.begun;
        let is_beside = |s: &State| {
            let first = s.running.first();
            first.is_some_and(|first| *first <= beside) && mended("fail-stop.beside")
        };
        while s.why.is_none() && is_beside(&s) {
            self.ended.wait(&mut s);
        }
        s.check()
    }

    /// Takes note of what another request came to: an error that says that a flush failed inside it
    /// ends the attempts.
    ///
    /// # Errors
    /// That of the request.
    pub fn noted(&self, result: Result<()>) -> Result<()> {
        if let Err(e) = &result
            && e.is_of_flush()
        {
            self.state.lock().stop(e.clone(), &self.failed);
            self.ended.notify_all();
        }
        result
    }
}
