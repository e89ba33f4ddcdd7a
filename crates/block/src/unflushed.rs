//! Tracks whether a flush would have any effect.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::Result;

/// Counts of writes since the last flush. A flush without any is left out: syncs of unchanged files
/// are common.
pub(super) struct Unflushed {
    begun: AtomicU64,
    ended: AtomicU64,
    /// The values of `begun` and `ended` (equal) when the last successful flush began.
    flushed: AtomicU64,
}

impl Unflushed {
    /// Counts one write: earlier writers may have left volatile data, so the first flush is a real
    /// one.
    pub(super) fn new() -> Self {
        Self {
            begun: AtomicU64::new(1),
            ended: AtomicU64::new(1),
            flushed: AtomicU64::new(0),
        }
    }

    /// Marks a write as in flight until the guard is dropped, whether it succeeds or not.
    pub(super) fn write(&self) -> Writing<'_> {
        self.begun.fetch_add(1, SeqCst);
        Writing(self)
    }

    /// Whether a flush would have no effect: all written data is durable, and no write is in
    /// flight.
    pub(super) fn is_none(&self) -> bool {
        self.flushed.load(SeqCst) == self.begun.load(SeqCst)
    }

    /// Flushes if that would have an effect.
    pub(super) fn flush(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        // The order matters: if the two are equal, all writes begun at the second load had ended at
        // the first.
        let ended = self.ended.load(SeqCst);
        let begun = self.begun.load(SeqCst);
        if self.flushed.load(SeqCst) == begun {
            return Ok(());
        }
        flush()?;
        if ended == begun {
            self.flushed.fetch_max(begun, SeqCst);
        }
        Ok(())
    }
}

pub(super) struct Writing<'u>(&'u Unflushed);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{BlockError, Op};

    fn flushes(u: &Unflushed) -> bool {
        let is_none = u.is_none();
        let mut flushed = false;
        u.flush(|| {
            flushed = true;
            Ok(())
        })
        .unwrap();
        assert_eq!(flushed, !is_none);
        flushed
    }

    #[test]
    fn a_flush_after_no_write_is_none() {
        let u = Unflushed::new();
        assert!(flushes(&u), "what was before us");
        assert!(!flushes(&u));
        drop(u.write());
        assert!(flushes(&u));
        assert!(!flushes(&u));
    }

    #[test]
    fn a_write_that_runs_beside_a_flush_is_flushed_again() {
        let u = Unflushed::new();
        let writing = u.write();
        assert!(flushes(&u));
        drop(writing);
        assert!(flushes(&u), "it may have ended behind the flush");
        assert!(!flushes(&u));
        u.flush(|| panic!("nothing to do")).unwrap();
        drop(u.write());
        let mut late = None;
        u.flush(|| {
            late = Some(u.write());
            Ok(())
        })
        .unwrap();
        drop(late);
        assert!(flushes(&u));
    }

    #[test]
    fn a_flush_that_failed_is_none() {
        let u = Unflushed::new();
        u.flush(|| Err(BlockError::ReadOnly { op: Op::Flush }))
            .unwrap_err();
        assert!(flushes(&u));
    }
}
