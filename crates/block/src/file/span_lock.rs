//! A lock on a part of a file that is no volume.

use std::fs::File;
use std::path::Path;

use super::claim::ofd_lock;
use super::sys;
use crate::{BlockError, Result, Span};

/// Keeps others from a part of a file: those that take such a lock, and those that open the file,
/// or that part of it, as a volume.
#[derive(Debug)]
pub struct SpanLock {
    file: File,
}

impl SpanLock {
    /// Locks `part` of `file`, which is open for writing at `path`. One lock for each time it was
    /// opened.
    ///
    /// # Errors
    /// [`BlockError::Locked`] if somebody has a byte of it. Where the host has no such locks there
    /// is a warning alone.
    pub fn take(path: &Path, file: &File, part: Span) -> Result<Self> {
        let open = |e| BlockError::open(path, e);
        let meta = file.metadata().map_err(open)?;
        let copy = file.try_clone().map_err(open)?;
        ofd_lock(path, file, &meta, true, Some(part))?;
        Ok(SpanLock { file: copy })
    }
}

impl Drop for SpanLock {
    fn drop(&mut self) {
        // A child that somebody forks just now holds a copy of the file until it executes its
        // program. What was never locked, for want of locks on the host, needs no
        // unlocking.
        let _ = sys::ofd_unlock(&self.file);
    }
}
