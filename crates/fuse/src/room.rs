//! Room that deleted files still take: the kernel tells of what it has forgotten or closed (FORGET,
//! RELEASE) after the call that did so has returned, so an operation that finds the volume full may
//! be ahead of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stetfs::low::{Fs, FsError, StatFs};

use crate::inline_wait;

/// The first pause; each is twice the one before.
const FIRST: Duration = Duration::from_micros(500);
/// The last.
const LAST: Duration = Duration::from_millis(256);
/// The last before somebody sees how much room there is.
const LAST_FOR_A_LOOK: Duration = Duration::from_millis(4);

/// Waits for room; not twice for the same files, which somebody may hold for ever.
pub(crate) struct Room {
    for_operations: NoUseSince,
    for_looks: NoUseSince,
}

/// [`Fs::nameless_changes`] when there was nothing to wait for, or it took too long: until another
/// change nobody waits.
struct NoUseSince(AtomicU64);

/// Waits for files without a name to go.
struct Wait<'a> {
    no_use: &'a NoUseSince,
    /// The next pause, and the last.
    pause: Duration,
    last: Duration,
}

impl Room {
    pub(crate) fn new() -> Room {
        let never = || NoUseSince(AtomicU64::new(u64::MAX));
        Room {
            for_operations: never(),
            for_looks: never(),
        }
    }

    /// Does `operation`, and again after a pause while it finds no room (ENOSPC, EDQUOT) and there
    /// are files without a name: some of them may be deleted by then. Takes 512 ms at most, if
    /// another thread serves meanwhile. An operation that fails so has changed nothing.
    ///
    /// # Errors
    /// Those of the operation.
    pub(crate) fn find<T>(
        &self,
        fs: &Fs,
        mut operation: impl FnMut() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let mut wait = self.for_operations.wait(LAST);
        let mut last = false;
        loop {
            let changes = fs.nameless_changes();
            match operation() {
                // Once more also if there are none: the last one may have gone since the look for
                // room.
                Err(FsError::Errno(libc::ENOSPC | libc::EDQUOT)) if !last => {
                    last = !wait.again(changes, || fs.has_nameless());
                }
                result => return result,
            }
        }
    }

    /// What statfs(2) shows, without what has been deleted if that is a matter of a few
    /// milliseconds.
    pub(crate) fn look(&self, fs: &Fs) -> StatFs {
        let mut wait = self.for_looks.wait(LAST_FOR_A_LOOK);
        while wait.again(fs.nameless_changes(), || fs.has_closed_nameless()) {}
        fs.statfs()
    }
}

impl NoUseSince {
    fn wait(&self, last: Duration) -> Wait<'_> {
        Wait {
            no_use: self,
            pause: FIRST,
            last,
        }
    }
}

impl Wait<'_> {
    /// Pauses while that may be of use. `changes` is from before the look at `any`, which takes
    /// long.
    fn again(&mut self, changes: u64, any: impl FnOnce() -> bool) -> bool {
        let NoUseSince(no_use) = self.no_use;
        if no_use.load(Ordering::Relaxed) == changes || !inline_wait::others_serve() {
            return false;
        }
        if self.pause > self.last || !any() {
            no_use.store(changes, Ordering::Relaxed);
            return false;
        }
        thread::sleep(self.pause);
        self.pause *= 2;
        true
    }
}
