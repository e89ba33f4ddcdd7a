//! Feeds: sources of a thread's operations, which also judge the results.

use stetfs::low::FsError;

use super::op::Op;
use super::script::Script;
use super::session::Session;

/// A source of operations.
pub trait Feed {
    /// Handles that the working directory cannot be entered, so that no operation can run.
    ///
    /// # Errors
    /// The directory should be accessible.
    fn kept_out(&mut self, why: &FsError) -> Result<(), String> {
        Err(why.to_string())
    }

    /// The next operation with its number, counted from 1; `None` at the end.
    fn next(&mut self, session: &mut Session) -> Option<(usize, Op)>;

    /// Handles the result of an operation: the part of it that was done, or the error. Decides how
    /// to go on.
    ///
    /// # Errors
    /// The result is wrong; the work ends.
    fn settle(
        &mut self,
        session: &mut Session,
        op: &Op,
        done: Result<Op, FsError>,
    ) -> Result<Settled, String>;

    /// Handles the end of the work.
    ///
    /// # Errors
    /// The volume is not as it should be.
    fn end(&mut self, session: &mut Session) -> Result<(), String>;
}

/// The continuation after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is acknowledged, or was refused and changed nothing: run the next one.
    Done,
    /// A sync failed: run it once more.
    Again,
    /// The operation failed and may have happened: run no further one.
    Over,
}

/// The operations of a script, each of which must succeed.
pub struct Lines<'s> {
    ops: std::iter::Enumerate<std::slice::Iter<'s, Op>>,
}

impl Lines<'_> {
    /// A feed of a script's operations, from the first one.
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
            // There is enough space, so the device failed after the first transaction.
            Ok(_) => Err(FsError::Errno(libc::EIO).to_string()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn end(&mut self, _: &mut Session) -> Result<(), String> {
        Ok(())
    }
}
