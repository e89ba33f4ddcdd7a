//! The generator: random operations that the state of the model allows.

mod attributes;
mod content;
mod deed;
mod follow;
mod names;
mod there;
mod volume;

use std::collections::VecDeque;

pub use self::deed::{Deed, Family, Weights};
use self::there::There;
pub use self::volume::USER;
use super::ace::touched;
use super::model::{Kind, State};
use super::op::{Op, held_path};

/// Whether a path is below a directory.
fn is_in(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Bounds of the generated operations.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Largest size of a file in bytes.
    pub file: u64,
    /// Largest size of a write in bytes.
    pub write: usize,
    /// Number of entries that the tree stays near.
    pub entries: usize,
    /// Number of different names; if they are few, freed names are soon reused.
    pub names: u32,
    /// Whether nearly all names have the greatest length, so that a few of them fill a directory
    /// block.
    pub long: bool,
    /// The tendency to repeat.
    pub habits: Habits,
}

/// The tendency to repeat places and kinds, in operations out of eight.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Operations at the place of the last change, if possible.
    pub place: u8,
    /// Operations of the kind of one of the last few.
    pub kind: u8,
}

impl Habits {
    /// A strong tendency.
    pub const STRONG: Habits = Habits { place: 7, kind: 3 };
}

impl Default for Habits {
    fn default() -> Habits {
        Habits { place: 4, kind: 0 }
    }
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            file: 60_000,
            write: 20_000,
            entries: 40,
            names: 1000,
            long: false,
            habits: Habits::default(),
        }
    }
}

/// A generator of operations that the state allows.
pub struct Generator {
    rng: fastrand::Rng,
    key: u64,
    weights: Weights,
    bounds: Bounds,
    /// The path of the last change. Many further operations are on it, on its entries, or in its
    /// directory. Empty if no path is preferred.
    focus: String,
    /// The last operation, if another may follow from it.
    last: Option<Op>,
    /// Whether the last operation followed from the one before.
    follows: bool,
    /// The kinds of the last few operations, and of the one that is being drawn.
    recent: VecDeque<Deed>,
    drawn: Option<Deed>,
}

/// Number of recent kinds.
const RECENT: usize = 4;

impl Generator {
    /// A generator with default weights and bounds; the same seed gives the same operations.
    pub fn new(seed: u64) -> Generator {
        Generator {
            rng: fastrand::Rng::with_seed(seed),
            key: seed << 32,
            weights: deed::USUAL.to_vec(),
            bounds: Bounds::default(),
            focus: String::new(),
            last: None,
            follows: false,
            recent: VecDeque::new(),
            drawn: None,
        }
    }

    /// A generator with other weights and bounds. The sum of the weights is at most 255.
    pub fn drawing(seed: u64, weights: Weights, bounds: Bounds) -> Generator {
        Generator {
            weights,
            bounds,
            ..Generator::new(seed)
        }
    }

    fn key(&mut self) -> u64 {
        self.key += 1;
        self.key
    }

    fn pick<'a>(&mut self, from: &[&'a String]) -> Option<&'a String> {
        if !self.focus.is_empty() && self.rng.u8(0..8) < self.bounds.habits.place {
            let focus = &self.focus;
            let is_near = |path: &&&String| {
                let path = path.as_str();
                path == focus || is_in(path, focus) || is_in(focus, path)
            };
            let near: Vec<&String> = from.iter().filter(is_near).copied().collect();
            if let Some(path) = self.rng.choice(near) {
                return Some(path);
            }
        }
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

    /// The next operation that the state allows; `None` if 200 tries give none.
    pub fn allowed(&mut self, state: &State) -> Option<Op> {
        let last = self.last.take();
        let following = last.and_then(|last| self.following(&last, state));
        self.follows = following.is_some();
        let drawn = following.or_else(|| {
            (0..200).find_map(|_| {
                let op = self.candidate(state)?;
                state.allows(&op).is_ok().then_some(op)
            })
        })?;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.extend(self.drawn.take());
        self.last = Some(drawn.clone());
        if !drawn.is_sync()
            && let Some(path) = touched(&drawn).last()
        {
            self.focus = (*path).to_owned();
        }
        Some(drawn)
    }

    /// Whether the last operation followed from the one before.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// In one case of three, the sync of a file.
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

    /// A sync of a changed path. A sync of everything is rare, because it also makes durable what a
    /// missing sync of another file would lose.
    pub fn sync_of(&mut self, path: String) -> Op {
        match self.rng.u8(0..200) {
            0 => Op::SyncAll,
            1..40 => Op::Fdatasync { path },
            _ => Op::Fsync { path },
        }
    }

    /// An operation, if the state has the files that it needs.
    fn candidate(&mut self, state: &State) -> Option<Op> {
        let paths = state.paths();
        let held: Vec<String> = state.held.keys().map(|n| held_path(*n)).collect();
        // Most operations are on files with a name.
        let of_held = self.rng.u8(0..5) == 0;
        let mut there = There::new(state, &paths, &held, of_held);
        if state.has_group() && self.rng.u8(0..8) < self.bounds.habits.place {
            there.keep_grouped();
        }
        let deed = self.kind()?;
        self.drawn = Some(deed);
        self.deed(deed, &there)
    }

    /// The kind of the next operation; `None` if none is drawn.
    fn kind(&mut self) -> Option<Deed> {
        let habit = self.bounds.habits.kind;
        if habit > 0 && self.rng.u8(0..8) < habit && !self.recent.is_empty() {
            return self.rng.choice(&self.recent).copied();
        }
        let total = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.u8(0..total);
        let drawn = self.weights.iter().find(|(_, weight)| {
            let is_here = at < *weight;
            at = at.saturating_sub(*weight);
            is_here
        });
        drawn.map(|(deed, _)| *deed)
    }

    fn deed(&mut self, deed: Deed, there: &There<'_>) -> Option<Op> {
        let may_name = there.any.len() < self.bounds.entries;
        match deed {
            Deed::Create if may_name => self.create(there),
            Deed::Mkdir if may_name => self.mkdir(there),
            Deed::Symlink if may_name => self.symlink(there),
            Deed::Mkfifo if may_name => self.mkfifo(there),
            Deed::Link if may_name => self.link(there),
            Deed::LinkHeld if may_name => self.link_held(there),
            Deed::Whiteout if may_name => self.whiteout(there),
            Deed::Write => self.write(there),
            Deed::Truncate => self.truncate(there),
            Deed::Fallocate => self.fallocate(there),
            Deed::Unlink => self.unlink(there),
            Deed::HoldUnlink if there.may_hold() => self.hold_unlink(there),
            Deed::Tmpfile if there.may_hold() => Some(there.tmpfile()),
            Deed::Hold if there.may_hold() => self.hold(there),
            Deed::Rmdir => self.rmdir(there),
            Deed::Rename => self.rename(there),
            Deed::RenameNew => self.rename_new(there),
            Deed::Exchange => self.exchange(there),
            Deed::Chmod => self.chmod(there),
            Deed::Chown => self.chown(there),
            Deed::SetXattr => self.set_xattr(there),
            Deed::LargeXattr => self.large_xattr(there),
            Deed::RemoveXattr => self.remove_xattr(there),
            Deed::Fsync => self.fsync(there),
            Deed::Fdatasync => self.fdatasync(there),
            Deed::FsyncDir => self.fsync_dir(there),
            Deed::SyncAll => Some(Op::SyncAll),
            Deed::MapForm => self.chattr(there),
            Deed::Close => self.close(there),
            Deed::MapWrite => self.map_write(there),
            Deed::Append => self.append(there),
            Deed::Copy => self.copy(there),
            Deed::Flags => self.flags(there),
            Deed::Acl => self.set_acl(there),
            Deed::Limit => self.limit(),
            Deed::Project => self.project(there),
            Deed::Memory => self.memory(),
            Deed::Trim => Some(Op::Trim),
            Deed::Atomic => self.atomic(there),
            // A group goes on for a while before it ends.
            Deed::Commit | Deed::Abort if self.bounds.habits.kind > 0 && self.rng.u8(0..4) > 0 => {
                None
            }
            Deed::Early => Some(Op::Early),
            Deed::Commit => Some(Op::Commit),
            Deed::Abort => Some(Op::Abort),
            Deed::Freeze => Some(Op::Freeze),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Counts the operations of the same kind as the one before, and those on the same path.
    fn repeated(habits: Habits) -> (usize, usize) {
        let bounds = Bounds {
            habits,
            ..Bounds::default()
        };
        let kinds = [
            Deed::Create,
            Deed::Mkdir,
            Deed::Write,
            Deed::Chmod,
            Deed::SetXattr,
        ];
        let weights = kinds.map(|deed| (deed, 4)).to_vec();
        let mut generator = Generator::drawing(7, weights, bounds);
        let mut state = State::new(4096, true);
        let (mut same, mut last) = ((0, 0), (String::new(), String::new()));
        for at in 1..600 {
            let op = generator.allowed(&state).unwrap();
            state.apply(&op, at);
            let line = op.to_string();
            let mut words = line.split(' ').map(String::from);
            let this = (words.next().unwrap(), words.next().unwrap());
            same.0 += usize::from(this.0 == last.0);
            same.1 += usize::from(this.1 == last.1);
            last = this;
        }
        same
    }

    #[test]
    fn what_has_habits_does_the_same_at_the_same_place() {
        let (weak, strong) = (repeated(Habits::default()), repeated(Habits::STRONG));
        assert!(strong.0 > weak.0, "kinds: {strong:?}, {weak:?}");
        assert!(strong.1 > weak.1, "places: {strong:?}, {weak:?}");
    }
}
