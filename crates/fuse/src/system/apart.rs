//! Runs a function in a forked copy of this process, which can have fewer rights than this one.

use std::io;
use std::panic::{self, AssertUnwindSafe};

use rustix::process::{WaitOptions, waitpid};

use super::{passing, sys};

/// Runs `run` in a forked copy of this process, which must be single-threaded, and returns its
/// result.
///
/// # Errors
/// The fork failed; the copy ended without a result, with the way in which it ended.
pub fn apart(run: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    let (ours, its) = passing::pair()?;
    let mut ours = Some(ours);
    let pid = sys::fork(|| {
        // With this end open the copy would not see this process end.
        drop(ours.take());
        // After a panic the message is on standard error.
        let said = panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_default();
        if !said.is_empty() {
            let _ = passing::send(&its, &said, &[]);
        }
    })?;
    // Once the copy has ended, its end of the socket is closed everywhere.
    drop(its);
    let said = match &ours {
        Some(ours) => passing::receive(ours).map(|(said, _)| said),
        None => Ok(Vec::new()),
    };
    let ended = waitpid(Some(pid), WaitOptions::empty())?;
    let said = said?;
    if said.is_empty() {
        let how = ended.and_then(|(_, status)| status.terminating_signal());
        let how = how.map_or(String::new(), |signal| format!(" (signal {signal})"));
        return Err(io::Error::other(format!("it ended without a word{how}")));
    }
    Ok(said)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Tests run in threads, and a process with threads cannot be copied: `apart` must refuse.
    #[test]
    fn a_process_with_threads_is_not_copied() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(apart(|| b"said".to_vec()).is_err());
            });
        });
    }
}
