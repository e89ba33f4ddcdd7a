//! Random changes of attributes.

use super::{Mutator, Op};
use crate::tree::Time;

impl Mutator {
    pub(super) fn chmod(&mut self) -> Option<Op> {
        let path = self.not_symlink()?;
        let mode = self.rng.u32(..0o1000) | 0o400;
        Some(Op::Chmod { path, mode })
    }

    pub(super) fn chown(&mut self) -> Option<Op> {
        let path = self.any()?;
        let uid = self.rng.u32(..100_000);
        let gid = self.rng.u32(..100_000);
        Some(Op::Chown { path, uid, gid })
    }

    pub(super) fn set_xattr(&mut self) -> Option<Op> {
        let name = format!("user.{}", self.rng.choice(["a", "second", "the-third"])?);
        Some(Op::SetXattr {
            path: self.not_symlink()?,
            name,
            key: self.rng.u64(..),
            length: self.rng.usize(..120),
        })
    }

    pub(super) fn remove_xattr(&mut self) -> Option<Op> {
        let path = self.any()?;
        let names = self.model.xattr_names(&path);
        let name = names.first().map(|n| (*n).to_owned())?;
        Some(Op::RemoveXattr { path, name })
    }

    pub(super) fn set_times(&mut self) -> Option<Op> {
        // The seconds also fit in an inode without the extra time bits.
        let sec = self.rng.i64(-(1 << 31)..1 << 31);
        let path = self.any()?;
        let mtime = Time(sec, self.rng.i64(0..1_000_000_000));
        Some(Op::SetTimes { path, mtime })
    }
}
