//! Random operations that must succeed.

mod attributes;
mod content;
mod deed;
mod follow;
mod names;
mod there;
mod volume;

pub use self::deed::{Deed, Family, Weights};
use self::there::There;
pub use self::volume::USER;
use super::ace::touched;
use super::model::{Kind, State};
use super::op::{Op, held_path};

/// Whether a path lies below another.
fn is_in(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// How large things become.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Files stay below this size, bytes.
    pub file: u64,
    /// So do writes.
    pub write: usize,
    /// The tree stays near this many entries.
    pub entries: usize,
    /// The number of names that are given: with few, those that were free again are soon used
    /// again.
    pub names: u32,
    /// Nearly all names are as long as can be: a few of them fill a block of a directory.
    pub long: bool,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            file: 60_000,
            write: 20_000,
            entries: 40,
            names: 1000,
            long: false,
        }
    }
}

/// Makes operations that must succeed.
pub struct Generator {
    rng: fastrand::Rng,
    key: u64,
    weights: Weights,
    bounds: Bounds,
    /// The path that was changed last: much of what follows is done to it, to what is in it, or to
    /// where it is. Empty where nothing is preferred.
    focus: String,
    /// The operation given last, where something may follow it.
    last: Option<Op>,
}

impl Generator {
    /// The same seed gives the same operations.
    pub fn new(seed: u64) -> Generator {
        Generator {
            rng: fastrand::Rng::with_seed(seed),
            key: seed << 32,
            weights: deed::USUAL.to_vec(),
            bounds: Bounds::default(),
            focus: String::new(),
            last: None,
        }
    }

    /// One that draws other operations, up to other bounds. The weights sum up to at most 255.
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
        if !self.focus.is_empty() && self.rng.bool() {
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

    /// The next operation that the state allows; `None`: there was none in so many tries.
    pub fn allowed(&mut self, state: &State) -> Option<Op> {
        let last = self.last.take();
        let following = last.and_then(|last| self.following(&last, state));
        let drawn = following.or_else(|| {
            (0..200).find_map(|_| {
                let op = self.candidate(state)?;
                state.allows(&op).is_ok().then_some(op)
            })
        })?;
        self.last = Some(drawn.clone());
        if !drawn.is_sync()
            && let Some(path) = touched(&drawn).last()
        {
            self.focus = (*path).to_owned();
        }
        Some(drawn)
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
        let mut there = There::new(state, &paths, &held, of_held);
        if state.has_group() && self.rng.bool() {
            there.keep_grouped();
        }
        let total = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.u8(0..total);
        let drawn = self.weights.iter().find(|(_, weight)| {
            let is_here = at < *weight;
            at = at.saturating_sub(*weight);
            is_here
        });
        let deed = drawn?.0;
        self.deed(deed, &there)
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
            Deed::Early => Some(Op::Early),
            Deed::Commit => Some(Op::Commit),
            Deed::Abort => Some(Op::Abort),
            Deed::Freeze => Some(Op::Freeze),
            _ => None,
        }
    }
}
