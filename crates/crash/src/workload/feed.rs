//! Where the operations of a thread come from, and what is made of how they end.

use stetfs::low::FsError;

use super::model::{Kind, Node, State};
use super::op::Op;
use super::script::Script;
use super::session::Session;
use crate::judge::promise::is_as_left;

/// A source of operations.
pub trait Feed {
    /// The number of the next operation, counted from 1, and what it is. `None`: there is none.
    fn next(&mut self, session: &mut Session) -> Option<(usize, Op)>;

    /// Takes note of how it ended: what of it was done, or why nothing was.
    ///
    /// # Errors
    /// It should have ended otherwise: the work is over.
    fn settle(
        &mut self,
        session: &mut Session,
        op: &Op,
        done: Result<Op, FsError>,
    ) -> Result<(), String>;

    /// There is no next one.
    ///
    /// # Errors
    /// The volume is not what it should be.
    fn end(&mut self, session: &mut Session) -> Result<(), String>;
}

/// What a path leads to is as the model has it.
///
/// # Errors
/// How it is otherwise.
pub fn compare(session: &Session, state: &State, path: &str) -> Result<(), String> {
    let Some(node) = state.node(path) else {
        return Ok(());
    };
    let failed = |e: FsError| format!("{path:?} cannot be looked at: {e}");
    let wrong = |e: String| format!("without a crash, {path:?}: {e}");
    let seen = session.seen(path).map_err(failed)?;
    is_as_left(node, &seen).map_err(wrong)?;
    if let Kind::Dir(entries) = &node.kind {
        let names = session.names(path).map_err(failed)?;
        if !names.iter().eq(entries.keys()) {
            return Err(wrong(format!(
                "the names {names:?}, not {:?}",
                entries.keys()
            )));
        }
    }
    let theirs = session.grouped(path).map_err(failed)?;
    let ours = state.grouped(path).and_then(|node| Node::content(node));
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if *ours.data != theirs => {
            let mut both = ours.data.iter().zip(&theirs);
            let first = both.position(|(a, b)| a != b);
            Err(wrong(format!(
                "its group has {} bytes, not {}, or others from {first:?} on",
                theirs.len(),
                ours.data.len()
            )))
        }
        _ => Ok(()),
    }
}

/// The operations of a script, each of which must succeed. What they change is looked at.
pub struct Lines<'s> {
    script: &'s Script,
    /// Operations that were given.
    given: usize,
}

impl Lines<'_> {
    /// From the first on.
    pub fn of(script: &Script) -> Lines<'_> {
        Lines { script, given: 0 }
    }

    /// The files whose content the last operation may have changed; where a group ends, and the
    /// script, all.
    fn to_be_read(&self, op: &Op, state: &State) -> Vec<String> {
        let is_last = self.given == self.script.ops.len();
        match op {
            Op::Write { path, .. }
            | Op::MapWrite { path, .. }
            | Op::Truncate { path, .. }
            | Op::Punch { path, .. }
            | Op::Zero { path, .. }
            | Op::Allocate { path, .. }
                if !is_last =>
            {
                vec![path.clone()]
            }
            _ if is_last || matches!(op, Op::Early | Op::Commit | Op::Abort) => {
                state.paths().into_iter().map(|(path, _)| path).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Feed for Lines<'_> {
    fn next(&mut self, _: &mut Session) -> Option<(usize, Op)> {
        let op = self.script.ops.get(self.given)?.clone();
        self.given += 1;
        Some((self.given, op))
    }

    fn settle(
        &mut self,
        session: &mut Session,
        op: &Op,
        done: Result<Op, FsError>,
    ) -> Result<(), String> {
        match done {
            Ok(done) if done == *op => {}
            // There is room enough, so the device failed after the first transaction.
            Ok(_) => return Err(FsError::Errno(libc::EIO).to_string()),
            Err(e) => return Err(e.to_string()),
        }
        let Some(state) = self.script.states.get(self.given) else {
            return Ok(());
        };
        let paths = self.to_be_read(op, state);
        paths
            .iter()
            .try_for_each(|path| compare(session, state, path))
    }

    fn end(&mut self, _: &mut Session) -> Result<(), String> {
        Ok(())
    }
}
