//! The settings of a journal, and the trait by which it calls the file system above it.

use stetfs_block::WriteList;

use crate::canary::Canary;
use crate::error::{JournalError, Result};
use crate::ids::{Ino, Stamp};

/// The services that the journal needs from the file system. Calls come from the threads of the
/// journal, and from callers that lead in their place ([`Wait::Inline`]). The journal holds no lock
/// during a call.
pub trait FileState: Send + Sync {
    /// Hands out all dirty data of these inodes, in batches: `send` writes each to the device and
    /// returns the result. No flush. The implementation takes no lock that ranks before
    /// `Rank::WriteBack` and opens no handle; it calls `send` with the files' write-back locks
    /// held.
    ///
    /// # Errors
    /// A failure of data without which the journal cannot go on; the journal stops. Of other data
    /// that could not be written the file system remembers which openers to tell.
    fn hand_out(&self, inos: &[Ino], send: &mut Submit<'_>) -> Result<()>;
    /// The journal stopped: the file system turns read-only.
    fn aborted(&self, why: &JournalError);
}

/// Writes a batch of dirty data to the device. Its places are byte offsets on the volume,
/// ascending. On success the device has all of the batch; on an error some of it may be missing.
pub type Submit<'a> = dyn FnMut(&WriteList<'_>) -> stetfs_block::Result<()> + 'a;

/// A callback that gets the answer once, in the thread that served the request.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// How a caller waits for durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// In its own thread, which does the work if no other thread does: that is quicker than a
    /// change of threads. Mostly the answer comes before the call returns. The caller holds no lock
    /// that a commit takes.
    Inline,
    /// By a callback: the calling thread continues, and the thread that serves the request answers.
    Deferred,
}

/// The settings of a journal.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// Seconds after which a transaction with changes commits by itself.
    pub commit_secs: u32,
    /// Whether commits and checkpoints flush the device.
    pub barrier: bool,
    /// Bound on the memory that transactions and pending checkpoints hold, in bytes.
    pub memory: u64,
    /// The stamp after which new ones are drawn: the highest one in a log that stays in use.
    pub first_stamp: Stamp,
    /// Records of files above this stamp stay alive, whatever commits, until
    /// [`Journal::release_horizon`](crate::Journal::release_horizon): they are being applied.
    pub hold_horizon: Option<Stamp>,
    /// Deliberate faults.
    pub canary: Canary,
}

impl Default for JournalConfig {
    fn default() -> JournalConfig {
        JournalConfig {
            commit_secs: 5,
            barrier: true,
            memory: 64 << 20,
            first_stamp: 0,
            hold_horizon: None,
            canary: Canary::default(),
        }
    }
}
