//! Random operations of the swarm: flags, limits, groups, copies, and the volume as a whole.

use super::Generator;
use super::there::There;
use crate::workload::op::{Flag, Op};

/// The user other than root.
pub const USER: u32 = 1000;

impl Generator {
    pub(super) fn append(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        let offset = there.size(&path)?;
        let len = self.rng.usize(1..self.bounds.write);
        (offset + len as u64 <= self.bounds.file).then(|| Op::Write {
            path,
            offset,
            len,
            key: self.key(),
        })
    }

    pub(super) fn copy(&mut self, there: &There<'_>) -> Option<Op> {
        let from = self.pick(&there.files)?.clone();
        let to = self.pick(&there.files)?.clone();
        let size = there.size(&from)?;
        let offset = self.rng.u64(0..size.max(1));
        let most = (size - offset.min(size)).min(self.bounds.write as u64);
        let len = self.rng.usize(1..most.max(1) as usize + 1);
        let at = self.rng.u64(0..=there.size(&to)?);
        (offset < size && at + len as u64 <= self.bounds.file).then_some(Op::Copy {
            from,
            offset,
            to,
            at,
            len,
        })
    }

    pub(super) fn mkfifo(&mut self, there: &There<'_>) -> Option<Op> {
        Some(Op::Mkfifo {
            path: self.new_path(there),
            mode: 0o600,
        })
    }

    pub(super) fn rename_new(&mut self, there: &There<'_>) -> Option<Op> {
        let from = self.pick(&there.any)?.clone();
        let to = self.new_path(there);
        let into_itself = to.starts_with(&format!("{from}/"));
        (!into_itself).then_some(Op::RenameNew { from, to })
    }

    pub(super) fn whiteout(&mut self, there: &There<'_>) -> Option<Op> {
        match self.rename(there)? {
            Op::Rename { from, to } => Some(Op::Whiteout { from, to }),
            _ => None,
        }
    }

    /// Sets or clears a flag; a flag that forbids changes is soon cleared.
    pub(super) fn flags(&mut self, there: &There<'_>) -> Option<Op> {
        let is_guarded = |path: &&&String| there.state.node(path).is_some_and(|n| n.is_guarded());
        let guarded: Vec<&String> = there.any.iter().filter(is_guarded).copied().collect();
        if !guarded.is_empty() && self.rng.bool() {
            let path = self.pick(&guarded)?.clone();
            let flags = there.state.node(&path)?.flags;
            let has = |flag: &Flag| flags & flag.bit() != 0;
            let flag = [Flag::Immutable, Flag::Append].into_iter().find(has)?;
            let on = false;
            return Some(Op::Chattr { path, flag, on });
        }
        let of = match self.rng.bool() {
            true => &there.dirs,
            false => &there.files,
        };
        let path = self.pick(of)?.clone();
        let flag = match self.rng.u8(0..3) {
            0 => *self.rng.choice(&Flag::ALL[3..])?,
            _ => *self.rng.choice(&[Flag::Append, Flag::Immutable])?,
        };
        let on = there.state.node(&path)?.flags & flag.bit() == 0;
        Some(Op::Chattr { path, flag, on })
    }

    pub(super) fn set_acl(&mut self, there: &There<'_>) -> Option<Op> {
        let of = match self.rng.u8(0..4) {
            0 => &there.dirs,
            _ => &there.files,
        };
        Some(Op::SetAcl {
            path: self.pick(of)?.clone(),
            user: self.rng.u32(1..5),
            perms: self.rng.u16(0..8),
        })
    }

    pub(super) fn large_xattr(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        let name = self
            .rng
            .choice(&["user.large", "user.larger", "trusted.t"])?;
        let len = *self.rng.choice(&[700, 3000, 5000, 20_000, 65_536])?;
        Some(Op::SetXattr {
            path,
            name: (*name).into(),
            key: self.key(),
            len,
        })
    }

    pub(super) fn limit(&mut self) -> Option<Op> {
        Some(Op::Limit {
            uid: USER,
            kib: *self.rng.choice(&[0, 0, 16, 40, 100, 400])?,
            inodes: *self.rng.choice(&[0, 0, 4, 10, 30])?,
        })
    }

    pub(super) fn project(&mut self, there: &There<'_>) -> Option<Op> {
        let of = match self.rng.u8(0..4) {
            0 => &there.dirs,
            _ => &there.files,
        };
        Some(Op::Project {
            path: self.pick(of)?.clone(),
            id: self.rng.u32(0..3),
        })
    }

    pub(super) fn memory(&mut self) -> Option<Op> {
        let mib = *self.rng.choice(&[1, 2, 4, 16])?;
        Some(Op::Memory { mib })
    }

    /// Begins an atomic group of a few files.
    pub(super) fn atomic(&mut self, there: &There<'_>) -> Option<Op> {
        if there.state.has_group() {
            return None;
        }
        let mut paths: Vec<String> = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            let path = self.pick(&there.files)?;
            let is_in = |other: &String| there.state.find(other) == there.state.find(path);
            if !paths.iter().any(is_in) {
                paths.push(path.clone());
            }
        }
        Some(Op::Atomic { paths })
    }

    /// The next operation on a frozen volume; mostly a thaw.
    pub fn frozen(&mut self) -> Op {
        match self.rng.u8(0..4) {
            0 => Op::SyncAll,
            1 => self.sync_of(String::new()),
            _ => Op::Thaw,
        }
    }
}
