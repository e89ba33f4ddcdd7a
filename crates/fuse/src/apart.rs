//! Something that is done in a copy of this process, so that it can be given less than this one
//! has.

use std::io;
use std::panic::{self, AssertUnwindSafe};

use rustix::process::{WaitOptions, waitpid};

use crate::{passing, sys};

/// Does it in a copy of this process, which must have one thread only, and gives what it said.
///
/// # Errors
/// There are no more processes; the copy said nothing, and how it ended.
pub fn apart(run: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    let (ours, its) = passing::pair()?;
    let mut ours = Some(ours);
    let pid = sys::fork(|| {
        // Else it would not see this process end.
        drop(ours.take());
        // What was wrong is on standard error then.
        let said = panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_default();
        if !said.is_empty() {
            let _ = passing::send(&its, &said, &[]);
        }
    })?;
    // Of the copy's end nothing more comes when it has ended.
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

    /// Tests have threads, and no process with threads is copied: one that has none asks.
    #[test]
    fn a_process_with_threads_is_not_copied() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(apart(|| b"said".to_vec()).is_err());
            });
        });
    }
}
