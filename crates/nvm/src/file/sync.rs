//! Dirty ranges and sync failures of a mapped file: fences share one msync, and the first failure
//! is kept.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stetfs_block::{BlockError, Result};

/// The bytes that were flushed and not synced yet: the smallest range with all of them. Clean pages
/// between them cost nothing, and one call means one flush of the disk.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    bytes: Mutex<Option<Range<usize>>>,
    /// Held during a sync: a thread that gets it and finds nothing left to sync knows that
    /// everything is durable.
    syncing: Mutex<()>,
}

impl Dirty {
    pub(super) fn note(&self, more: Range<usize>) {
        let mut bytes = self.bytes.lock();
        *bytes = Some(match bytes.take() {
            Some(all) => all.start.min(more.start)..all.end.max(more.end),
            None => more,
        });
    }

    /// Calls `sync` with the dirty range, if there is one; calls are serialised. `sync` itself must
    /// note a failure: threads that waited for it check for one next.
    pub(super) fn sync(&self, sync: impl FnOnce(Range<usize>) -> Result<()>) -> Result<()> {
        let _one = self.syncing.lock();
        let bytes = self.bytes.lock().take();
        let Some(bytes) = bytes else {
            return Ok(());
        };
        sync(bytes)
    }
}

/// The first failure: nothing counts as durable after it.
#[derive(Debug, Default)]
pub(super) struct Failure {
    why: Mutex<Option<BlockError>>,
    /// Whether `why` is set, for checks without the lock.
    failed: AtomicBool,
}

impl Failure {
    pub(super) fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => self.why.lock().clone().map_or(Ok(()), Err),
            false => Ok(()),
        }
    }

    /// The result for the caller of a fence: the first failure of any fence, else `result`.
    pub(super) fn note(&self, result: Result<()>) -> Result<()> {
        if let Err(e) = result {
            let mut why = self.why.lock();
            if why.is_none() {
                tracing::error!(
                    "syncing the region failed; its content may be lost and all later fences fail: \
                     {e}"
                );
            }
            why.get_or_insert(e);
            self.failed.store(true, Ordering::Release);
        }
        self.check()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use stetfs_block::Op;

    use super::*;

    #[test]
    fn several_flushes_are_one_sync() {
        let dirty = Dirty::default();
        for bytes in [100..200, 7..8, 150..160] {
            dirty.note(bytes);
        }
        let mut synced = Vec::new();
        for _ in 0..2 {
            dirty
                .sync(|bytes| {
                    synced.push(bytes);
                    Ok(())
                })
                .unwrap();
        }
        assert!(
            matches!(synced[..], [Range { start: 7, end: 200 }]),
            "{synced:?}"
        );
    }

    /// All threads that waited for a failed sync get its error, and so do all later callers.
    #[test]
    fn a_failure_is_everybodys() {
        let (dirty, failure) = (Dirty::default(), Failure::default());
        let fence = |broken: bool| {
            failure.check()?;
            let synced = dirty.sync(|_| {
                let error = || BlockError::io(Op::Flush, 0, 8, rustix::io::Errno::IO.into());
                failure.note(if broken { Err(error()) } else { Ok(()) })
            });
            failure.note(synced)
        };
        fence(false).unwrap();
        dirty.note(0..8);
        fence(true).unwrap_err();
        fence(false).unwrap_err();
        // A fence that had passed its first check already.
        failure.note(dirty.sync(|_| Ok(()))).unwrap_err();
    }
}
