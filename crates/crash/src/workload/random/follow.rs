//! Follow-up operations: an operation is often followed by one that it makes possible, before a
//! commit hides how the two interact.

use super::Generator;
use crate::workload::model::State;
use crate::workload::op::{Flag, Op};

impl Generator {
    /// An operation that follows from the last one; often `None`.
    pub(super) fn following(&mut self, last: &Op, state: &State) -> Option<Op> {
        if self.rng.u8(0..5) < 2 {
            return None;
        }
        let guard = |flag: &Flag| matches!(flag, Flag::Append | Flag::Immutable);
        let op = match last {
            // The guard of a file becomes durable.
            Op::Chattr { flag, on: true, .. } if guard(flag) => Op::SyncAll,
            // The guard is lifted again.
            Op::SyncAll if state.has_guarded() => self.lifted(state)?,
            // A file whose guard was lifted changes.
            Op::Chattr { path, flag, .. } if guard(flag) => self.use_of(path, state)?,
            // A new file takes the name of the unlinked one.
            Op::Unlink { path } | Op::HoldUnlink { path, .. } => self.file(path.clone()),
            Op::Mkdir { path, .. } => self.use_of(path, state)?,
            // A group changes one of its files.
            Op::Atomic { paths } => {
                let path = self.rng.choice(paths)?.clone();
                self.overwrite(path, state)?
            }
            _ => return None,
        };
        state.allows(&op).is_ok().then_some(op)
    }

    /// Clears a flag that forbids changes.
    fn lifted(&mut self, state: &State) -> Option<Op> {
        let guards = [Flag::Append, Flag::Immutable];
        let guarded = state.paths().into_iter().filter_map(|(path, id)| {
            let flags = state.nodes[&id].flags;
            let flag = guards.iter().find(|flag| flags & flag.bit() != 0)?;
            Some((path, *flag))
        });
        let (path, flag) = self.rng.choice(guarded.collect::<Vec<_>>())?;
        let on = false;
        Some(Op::Chattr { path, flag, on })
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

    /// Uses a path: creates a file in a directory, or overwrites or unlinks a file.
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
