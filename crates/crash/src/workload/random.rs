//! Random operations that must succeed.

mod attributes;
mod content;
mod names;
mod there;

use self::there::There;
use super::model::{Kind, State};
use super::op::{Op, held_path};

/// Makes operations that must succeed.
pub struct Generator {
    rng: fastrand::Rng,
    key: u64,
}

impl Generator {
    /// The same seed gives the same operations.
    pub fn new(seed: u64) -> Generator {
        Generator {
            rng: fastrand::Rng::with_seed(seed),
            key: seed << 32,
        }
    }

    fn key(&mut self) -> u64 {
        self.key += 1;
        self.key
    }

    fn pick<'a>(&mut self, from: &[&'a String]) -> Option<&'a String> {
        self.rng.choice(from).copied()
    }

    /// The next operation.
    pub fn next(&mut self, state: &State) -> Op {
        loop {
            if let Some(op) = self.candidate(state) {
                return op;
            }
        }
    }

    /// Now and then the sync of a file.
    pub fn synced(&mut self, state: &State) -> Option<Op> {
        let paths = state.paths();
        let file = |id| matches!(state.nodes[id].kind, Kind::File(_));
        let files: Vec<&String> = paths
            .iter()
            .filter(|(_, id)| file(id))
            .map(|(p, _)| p)
            .collect();
        (self.rng.u8(0..3) == 0).then_some(())?;
        Some(Op::Fsync {
            path: self.pick(&files)?.clone(),
        })
    }

    /// A sync of what was just changed; seldom of everything, for that also brings home what others
    /// lost.
    pub fn sync_of(&mut self, path: String) -> Op {
        match self.rng.u8(0..200) {
            0 => Op::SyncAll,
            1..40 => Op::Fdatasync { path },
            _ => Op::Fsync { path },
        }
    }

    /// An operation, if what it needs is there.
    fn candidate(&mut self, state: &State) -> Option<Op> {
        let paths = state.paths();
        let held: Vec<String> = state.held.keys().map(|n| held_path(*n)).collect();
        // Mostly those that have a name.
        let of_held = self.rng.u8(0..5) == 0;
        let there = &There::new(state, &paths, &held, of_held);
        match self.rng.u8(0..109) {
            0..12 if there.has_room() => self.create(there),
            12..17 if there.has_room() => self.mkdir(there),
            17..21 if there.has_room() => self.symlink(there),
            21..45 => self.write(there),
            45..50 => self.truncate(there),
            50..53 => self.fallocate(there),
            53..57 => self.unlink(there),
            57..58 if there.may_hold() => self.hold_unlink(there),
            58..61 => self.rmdir(there),
            61..64 if there.has_room() => self.link(there),
            64..69 => self.rename(there),
            69..71 => self.exchange(there),
            71..73 => self.chmod(there),
            73..75 => self.chown(there),
            75..79 => self.set_xattr(there),
            79..81 => self.remove_xattr(there),
            81..90 => self.fsync(there),
            90..94 => self.fdatasync(there),
            94..97 => self.fsync_dir(there),
            97..98 => Some(Op::SyncAll),
            98..100 => self.chattr(there),
            100..102 if there.may_hold() => Some(there.tmpfile()),
            102..104 if there.may_hold() => self.hold(there),
            104..105 if there.has_room() => self.link_held(there),
            105..106 => self.close(there),
            106..109 => self.map_write(there),
            _ => None,
        }
    }
}
