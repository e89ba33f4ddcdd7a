//! Random changes of attributes.

use super::Generator;
use super::there::There;
use crate::workload::op::{Flag, Op};

impl Generator {
    pub(super) fn chmod(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        let mode = *self.rng.choice(&[0o640, 0o444, 0o700])?;
        Some(Op::Chmod { path, mode })
    }

    pub(super) fn chown(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.any)?.clone();
        let uid = self.rng.u32(0..100_000);
        let gid = self.rng.u32(0..10);
        Some(Op::Chown { path, uid, gid })
    }

    /// Changes the form of the map of a file, or rarely of a directory; mostly to block maps, which
    /// fewer files can have.
    pub(super) fn chattr(&mut self, there: &There<'_>) -> Option<Op> {
        let of = match self.rng.u8(0..8) {
            0 => &there.dirs,
            _ => &there.content,
        };
        let path = self.pick(of)?.clone();
        let on = self.rng.u8(0..3) == 0;
        let flag = Flag::Extents;
        Some(Op::Chattr { path, flag, on })
    }

    pub(super) fn set_xattr(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        let name = format!("user.{}", self.rng.choice(&["a", "bb", "ccc"])?);
        let len = *self.rng.choice(&[0, 10, 40, 300])?;
        Some(Op::SetXattr {
            path,
            name,
            key: self.key(),
            len,
        })
    }

    pub(super) fn remove_xattr(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        let name = there.state.node(&path)?.xattrs.keys().next()?.clone();
        Some(Op::RemoveXattr { path, name })
    }
}
