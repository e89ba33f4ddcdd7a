//! Room that deleted files still take: the kernel tells of what it has forgotten or closed (FORGET, RELEASE) after the call
//! that did so has returned, so an operation that finds the volume full may be ahead of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stetfs::{Fs, FsError, StatFs};

use crate::patience;

/// The first pause; each is twice the one before.
const FIRST: Duration = Duration::from_micros(500);
/// The last.
const LAST: Duration = Duration::from_millis(64);
/// The last before somebody sees how much room there is.
const LAST_FOR_A_LOOK: Duration = Duration::from_millis(4);

/// Waits for room; not twice for the same files, which somebody may hold for ever.
pub(crate) struct Room {
    /// [`Fs::nameless_changes`] when waiting was of no use.
    in_vain: AtomicU64,
    /// The same of looks.
    seen: AtomicU64,
}

impl Room {
    pub(crate) fn new() -> Room {
        Room {
            in_vain: AtomicU64::new(u64::MAX),
            seen: AtomicU64::new(u64::MAX),
        }
    }

    /// Does `operation`, and again after a pause while it finds no room (ENOSPC, EDQUOT) and there are files without a
    /// name: some of them may be deleted by then. Takes 128 ms at most, if another thread serves meanwhile. An operation
    /// that fails so has changed nothing.
    ///
    /// # Errors
    /// Those of the operation.
    pub(crate) fn find<T>(
        &self,
        fs: &Fs,
        mut operation: impl FnMut() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let mut pause = FIRST;
        let mut last = false;
        loop {
            let changes = fs.nameless_changes();
            match operation() {
                Err(FsError::Errno(libc::ENOSPC | libc::EDQUOT)) if !last => {
                    let in_vain = self.in_vain.load(Ordering::Relaxed) == changes;
                    if pause > LAST {
                        self.in_vain.store(changes, Ordering::Relaxed);
                    }
                    // Once more also if there are none: the last one may have gone since the look for room.
                    last =
                        in_vain || pause > LAST || !patience::others_serve() || !fs.has_nameless();
                    if !last {
                        thread::sleep(pause);
                        pause *= 2;
                    }
                }
                result => return result,
            }
        }
    }

    /// What statfs(2) shows, without what has been deleted if that is a matter of a few milliseconds.
    pub(crate) fn look(&self, fs: &Fs) -> StatFs {
        let mut pause = FIRST;
        while fs.has_closed_nameless() {
            let changes = fs.nameless_changes();
            if pause > LAST_FOR_A_LOOK {
                self.seen.store(changes, Ordering::Relaxed);
            }
            if self.seen.load(Ordering::Relaxed) == changes || !patience::others_serve() {
                break;
            }
            thread::sleep(pause);
            pause *= 2;
        }
        fs.statfs()
    }
}
