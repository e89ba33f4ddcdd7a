//! Retries operations that find the volume full: deleted files may still take room. The kernel
//! reports forgotten and closed files (FORGET, RELEASE) after the call that deleted them has
//! returned, so a later operation may overtake them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stetfs::low::{Fs, FsError, StatFs};

use crate::api::inline_wait;

/// The first pause; each is twice the previous one.
const FIRST: Duration = Duration::from_micros(500);
/// The longest pause.
const LAST: Duration = Duration::from_millis(256);
/// Time limit for waiting for files that are being deleted, which takes as long as the device does.
const DELETION: Duration = Duration::from_secs(10);
/// The longest pause before statfs.
const LAST_FOR_STATFS: Duration = Duration::from_millis(4);

/// Waits for room. It does not wait twice for the same files, which a program may hold open for
/// ever.
pub(crate) struct RetryWhenFull {
    for_operations: NoUseSince,
    for_statfs: NoUseSince,
}

/// The value of [`Fs::nameless_changes`] when there was nothing to wait for, or the wait took too
/// long: until the next change there is no further wait.
struct NoUseSince(AtomicU64);

/// A wait for the deletion of files without a name.
struct Wait<'a> {
    no_use: &'a NoUseSince,
    /// The next pause, and the longest.
    pause: Duration,
    last: Duration,
    /// The end of the wait for files that are being deleted.
    until: Instant,
}

/// The files without a name to wait for.
struct Nameless<A, D> {
    /// Whether there are any. A slow check.
    any: A,
    /// Whether some of them are being deleted, after their FORGET has arrived.
    deleting: D,
}

impl RetryWhenFull {
    pub(crate) fn new() -> RetryWhenFull {
        let never = || NoUseSince(AtomicU64::new(u64::MAX));
        RetryWhenFull {
            for_operations: never(),
            for_statfs: never(),
        }
    }

    /// Runs `operation`, and repeats it after a pause while it finds no room (ENOSPC, EDQUOT) and
    /// there are files without a name, which may be deleted by then. It takes 512 ms at most, or as
    /// long as files are being deleted, if another thread serves meanwhile. A failed operation must
    /// not have changed anything.
    ///
    /// # Errors
    /// The errors of the operation.
    pub(crate) fn retry<T>(
        &self,
        fs: &Fs,
        mut operation: impl FnMut() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let mut wait = self.for_operations.wait(LAST, DELETION);
        let mut last = false;
        loop {
            let changes = fs.nameless_changes();
            match operation() {
                // Once more even if there are none: the last one may have been deleted since the
                // operation looked for room.
                Err(FsError::Errno(libc::ENOSPC | libc::EDQUOT)) if !last => {
                    last = !wait.again(
                        changes,
                        Nameless {
                            any: || fs.has_nameless(),
                            deleting: || fs.is_deleting(),
                        },
                    );
                }
                result => return result,
            }
        }
    }

    /// The answer to statfs(2), without deleted files if their deletion takes only a few
    /// milliseconds.
    pub(crate) fn statfs(&self, fs: &Fs) -> StatFs {
        let mut wait = self.for_statfs.wait(LAST_FOR_STATFS, Duration::ZERO);
        let closed = || Nameless {
            any: || fs.has_closed_nameless(),
            deleting: || false,
        };
        while wait.again(fs.nameless_changes(), closed()) {}
        fs.statfs()
    }
}

impl NoUseSince {
    fn wait(&self, last: Duration, deletion: Duration) -> Wait<'_> {
        Wait {
            no_use: self,
            pause: FIRST,
            last,
            until: Instant::now() + deletion,
        }
    }
}

impl Wait<'_> {
    /// Pauses if that may help; returns whether it did. `changes` is the value before `nameless`
    /// was determined.
    fn again<A, D>(&mut self, changes: u64, nameless: Nameless<A, D>) -> bool
    where
        A: FnOnce() -> bool,
        D: FnOnce() -> bool,
    {
        let NoUseSince(no_use) = self.no_use;
        if no_use.load(Ordering::Relaxed) == changes || !inline_wait::others_serve() {
            return false;
        }
        let has_use = match self.pause > self.last {
            true => Instant::now() < self.until && (nameless.deleting)(),
            false => (nameless.any)(),
        };
        if !has_use {
            no_use.store(changes, Ordering::Relaxed);
            return false;
        }
        thread::sleep(self.pause.min(self.last));
        self.pause = (self.pause * 2).min(self.last * 2);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of pauses, if files are being deleted at the first `looks` checks.
    fn waits(deletion: Duration, looks: u32) -> u32 {
        inline_wait::set(true, true);
        let no_use = NoUseSince(AtomicU64::new(u64::MAX));
        let mut wait = no_use.wait(Duration::from_millis(1), deletion);
        let mut n = 0;
        let nameless = |n| Nameless {
            any: || true,
            deleting: move || n < looks,
        };
        while wait.again(7, nameless(n)) {
            n += 1;
        }
        assert_eq!(no_use.0.load(Ordering::Relaxed), 7);
        n
    }

    /// There is no long wait for a file that is held open, but there is one for the deletion of a
    /// large file on a slow device.
    #[test]
    fn what_is_being_deleted_is_waited_for() {
        assert_eq!(waits(DELETION, 0), 2);
        assert_eq!(waits(DELETION, 30), 30);
        assert_eq!(waits(Duration::ZERO, 30), 2);
    }
}
