//! The state that all handles of an open volume share. The last handle closes the volume.

use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use stetfs_sync::timed::{Mutex, RwLock, mpsc};

use crate::held_group::HeldGroup;
use crate::low::{self, Ctx, Done, Fs, FsError, Ino};

/// Number of append locks; files share them by inode number.
const LOCKS: usize = 64;

/// An open volume. All operations run as the administrator: a user with the image may do
/// everything.
pub(crate) struct Shared {
    pub(crate) low: Arc<low::Volume>,
    /// Owner of new files.
    pub(crate) maker: Ctx,
    /// Bits removed from the modes of new files.
    pub(crate) umask: u32,
    /// Held exclusively by an append, from reading the file's size to the write; shared by other
    /// writes.
    appends: [RwLock<()>; LOCKS],
    /// Atomic groups that may still be open.
    pub(crate) groups: Mutex<Vec<Weak<HeldGroup>>>,
    closed: bool,
}

impl Shared {
    pub(crate) fn new(low: Arc<low::Volume>, maker: Ctx, umask: u32) -> Shared {
        Shared {
            low,
            maker,
            umask,
            appends: std::array::from_fn(|_| RwLock::new(())),
            groups: Mutex::default(),
            closed: false,
        }
    }

    pub(crate) fn fs(&self) -> &Arc<Fs> {
        self.low.fs()
    }

    pub(crate) fn image(&self) -> &Path {
        self.low.path()
    }

    pub(crate) fn appends(&self, ino: Ino) -> &RwLock<()> {
        &self.appends[ino as usize % LOCKS]
    }

    /// Closes the volume.
    pub(crate) fn close(&mut self) -> low::Result<()> {
        self.closed = true;
        self.low.close()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.closed
            && let Err(e) = self.low.close()
        {
            tracing::error!(
                "{} was not closed cleanly: {e}; its journal keeps synced data for the next opening",
                self.image().display()
            );
        }
    }
}

/// The errno as an error.
pub(crate) fn error_of(e: Errno) -> FsError {
    FsError::Errno(e.raw_os_error())
}

/// The same, returned.
pub(crate) fn errno<T>(e: Errno) -> low::Result<T> {
    Err(error_of(e))
}

/// Whether an error is this errno.
pub(crate) fn is(e: &FsError, errno: Errno) -> bool {
    matches!(e, FsError::Errno(n) if *n == errno.raw_os_error())
}

/// Waits for the answer of an asynchronous operation.
pub(crate) fn wait(start: impl FnOnce(Done)) -> low::Result<()> {
    let (answer, answered) = mpsc::sync_channel(1);
    start(Box::new(move |done| drop(answer.send(done))));
    // An operation that ends without an answer has failed.
    answered.recv().unwrap_or_else(|_| errno(Errno::IO))
}
