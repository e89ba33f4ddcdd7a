//! Operations that often follow another: what one makes possible is done at once, before a commit
//! hides how the two go together.

use super::Generator;
use crate::workload::model::State;
use crate::workload::op::{Flag, Op};

impl Generator {
    /// An operation that goes with the last one; often there is none.
    pub(super) fn following(&mut self, last: &Op, state: &State) -> Option<Op> {
        if self.rng.u8(0..5) < 2 {
            return None;
        }
        let guard = |flag: &Flag| matches!(flag, Flag::Append | Flag::Immutable);
        let op = match last {
            // A guarded file is so durably.
            Op::Chattr { flag, on: true, .. } if guard(flag) => Op::SyncAll,
            // A file that is no longer guarded changes.
            Op::Chattr { path, flag, .. } if guard(flag) => self.use_of(path, state)?,
            // A file takes the place of another.
            Op::Unlink { path } | Op::HoldUnlink { path, .. } => self.file(path.clone()),
            Op::Mkdir { path, .. } => self.use_of(path, state)?,
            // A group changes what it has.
            Op::Atomic { paths } => {
                let path = self.rng.choice(paths)?.clone();
                self.overwrite(path, state)?
            }
            _ => return None,
        };
        state.allows(&op).is_ok().then_some(op)
    }

    fn file(&mut self, path: String) -> Op {
        Op::Create { path, mode: 0o644 }
    }

    fn overwrite(&mut self, path: String, state: &State) -> Option<Op> {
        let size = state.node(&path)?.content()?.data.len() as u64;
        let len = self.rng.usize(1..self.bounds.write);
        let offset = self.rng.u64(0..=size);
        (offset + len as u64 <= self.bounds.file).then(|| Op::Write {
            path,
            offset,
            len,
            key: self.key(),
        })
    }

    /// A file in a directory; of a file a write, or another file in its place.
    fn use_of(&mut self, path: &str, state: &State) -> Option<Op> {
        if state.node(path)?.is_dir() {
            let n = self.rng.u32(0..self.bounds.names);
            return Some(self.file(format!("{path}/n{n}")));
        }
        match self.rng.bool() {
            true => self.overwrite(path.to_owned(), state),
            false => Some(Op::Unlink { path: path.into() }),
        }
    }
}
