//! Whether a flush would find anything to make durable.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::Result;

/// Writes since the last flush. A flush after none is left out: syncs of what did not change are
/// common.
pub(super) struct Unflushed {
    begun: AtomicU64,
    ended: AtomicU64,
    /// So many had begun, and ended, when the last flush that succeeded began.
    flushed: AtomicU64,
}

impl Unflushed {
    /// What others wrote before may be volatile: the first flush is one.
    pub(super) fn new() -> Self {
        Self {
            begun: AtomicU64::new(1),
            ended: AtomicU64::new(1),
            flushed: AtomicU64::new(0),
        }
    }

    /// A write is on its way until the guard is dropped, whether it succeeds or not.
    pub(super) fn write(&self) -> Writing<'_> {
        self.begun.fetch_add(1, SeqCst);
        Writing(self)
    }

    /// Whether a flush would find nothing: what was written is durable, and nothing is on its way.
    pub(super) fn is_none(&self) -> bool {
        self.flushed.load(SeqCst) == self.begun.load(SeqCst)
    }

    /// Flushes if there is anything to.
    pub(super) fn flush(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        // In this order: if they are equal, all that had begun at the second had ended at the
        // first.
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
