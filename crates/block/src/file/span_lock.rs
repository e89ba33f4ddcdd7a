//! A lock on a part of a file that is no volume: a persistent-memory region.

use std::fs::File;
use std::path::Path;

use super::claim::ofd_lock;
use super::sys;
use crate::{BlockError, Result, Span};

/// A lock on a part of a file. It keeps out other locks of this kind, and programs that open the
/// file, or that part of it, as a volume.
#[derive(Debug)]
pub struct SpanLock {
    file: File,
}

impl SpanLock {
    /// Locks `part` of `file`, which is open for writing at `path`. Each open file can hold one
    /// lock.
    ///
    /// # Errors
    /// [`BlockError::Locked`] if another process holds a byte of it. On a host without such locks
    /// there is only a warning.
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
        // A child process that was just forked holds a copy of the file until it executes its
        // program, so closing does not unlock. Without locks on the host there is nothing to
        // unlock, which is no error.
        let _ = sys::ofd_unlock(&self.file);
    }
}
