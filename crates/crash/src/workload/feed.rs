//! Feeds: sources of a thread's operations, which also judge how these end.

use stetfs::low::FsError;

use super::op::Op;
use super::script::Script;
use super::session::Session;

/// A source of operations.
pub trait Feed {
    /// Takes note that nothing can be done: the directory to work in cannot be entered.
    ///
    /// # Errors
    /// It should be there.
    fn kept_out(&mut self, why: &FsError) -> Result<(), String> {
        Err(why.to_string())
    }

    /// The number of the next operation, counted from 1, and what it is. `None`: there is none.
    fn next(&mut self, session: &mut Session) -> Option<(usize, Op)>;

    /// Takes note of how it ended: what of it was done, or why nothing was; and says what follows.
    ///
    /// # Errors
    /// It should have ended otherwise: the work is over.
    fn settle(
        &mut self,
        session: &mut Session,
        op: &Op,
        done: Result<Op, FsError>,
    ) -> Result<Settled, String>;

    /// There is no next one.
    ///
    /// # Errors
    /// The volume is not what it should be.
    fn end(&mut self, session: &mut Session) -> Result<(), String>;
}

/// What follows an operation that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is acknowledged, or was refused and changed nothing: the next one.
    Done,
    /// A sync that failed: the same once more.
    Again,
    /// It failed, and may have happened: no further one.
    Over,
}

/// The operations of a script, each of which must succeed.
pub struct Lines<'s> {
    ops: std::iter::Enumerate<std::slice::Iter<'s, Op>>,
}

impl Lines<'_> {
    /// From the first on.
    pub fn of(script: &Script) -> Lines<'_> {
        Lines {
            ops: script.ops.iter().enumerate(),
        }
    }
}

impl Feed for Lines<'_> {
    fn next(&mut self, _: &mut Session) -> Option<(usize, Op)> {
        self.ops.next().map(|(i, op)| (i + 1, op.clone()))
    }

    fn settle(
        &mut self,
        _: &mut Session,
        op: &Op,
        done: Result<Op, FsError>,
    ) -> Result<Settled, String> {
        match done {
            Ok(done) if done == *op => Ok(Settled::Done),
            // There is room enough, so the device failed after the first transaction.
            Ok(_) => Err(FsError::Errno(libc::EIO).to_string()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn end(&mut self, _: &mut Session) -> Result<(), String> {
        Ok(())
    }
}
