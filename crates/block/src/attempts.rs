//! The history of attempts to make data durable: the first failure ends it.

use std::collections::BTreeSet;

use stetfs_sync::plain::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

use crate::{BlockError, Result};

/// The flushes of a device, and its writes with `fua`, as one history that ends with the first
/// failure (block.F1, block.F2 of [`FailStop`](crate::FailStop)). A device that flushes inside
/// another request keeps a history of its own (block.F4).
#[derive(Default)]
pub struct Attempts {
    state: Mutex<State>,
    /// Signals that an attempt has ended.
    ended: Condvar,
    /// Whether `state.why` is set, for checks without the lock.
    failed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Number of attempts that began; the n-th has the number n.
    begun: u64,
    /// Numbers of the attempts that have not ended.
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
            tracing::error!(
                "a flush failed, so earlier writes may be lost; all further writes are refused: {e}"
            );
            self.why = Some(e);
            failed.store(true, Ordering::Release);
        }
    }
}

impl Attempts {
    /// Checks that no attempt has failed so far.
    ///
    /// # Errors
    /// The error of the first attempt that failed.
    pub fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => self.state.lock().check(),
            false => Ok(()),
        }
    }

    /// Makes an attempt: runs `request`, and waits for the concurrent attempts.
    ///
    /// # Errors
    /// The error of the first attempt that failed: an earlier one (`request` does not run then),
    /// this one, or a concurrent one.
    pub fn run(&self, request: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut s = self.attempt(request)?;
        let beside = s.begun;
        let is_beside = |s: &State| s.running.first().is_some_and(|first| *first <= beside);
        while s.why.is_none() && is_beside(&s) {
            self.ended.wait(&mut s);
        }
        s.check()
    }

    /// A deliberate fault: makes an attempt as [`run`](Self::run), without waiting for the
    /// concurrent ones.
    ///
    /// # Errors
    /// The error of the first attempt that has failed so far.
    pub(crate) fn run_alone(&self, request: impl FnOnce() -> Result<()>) -> Result<()> {
        self.attempt(request)?.check()
    }

    /// Makes an attempt and notes its end.
    ///
    /// # Errors
    /// The error of an earlier attempt; `request` does not run then.
    fn attempt(&self, request: impl FnOnce() -> Result<()>) -> Result<MutexGuard<'_, State>> {
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
        Ok(s)
    }

    /// Notes the result of another request: an error of a flush inside it ends the history.
    ///
    /// # Errors
    /// The error of the request.
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
