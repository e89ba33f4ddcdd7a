//! Random changes of names.

use super::{Mutator, Op};

impl Mutator {
    pub(super) fn create(&mut self) -> Option<Op> {
        let path = self.fresh()?;
        let mode = *self.rng.choice(&[0o600, 0o644, 0o444])?;
        Some(Op::Create { path, mode })
    }

    pub(super) fn mkdir(&mut self) -> Option<Op> {
        let path = self.fresh()?;
        let mode = *self.rng.choice(&[0o700, 0o755])?;
        Some(Op::Mkdir { path, mode })
    }

    pub(super) fn symlink(&mut self) -> Option<Op> {
        let path = self.fresh()?;
        let target = "t".repeat(*self.rng.choice(&[1, 20, 59, 60, 300])?);
        Some(Op::Symlink { path, target })
    }

    pub(super) fn link(&mut self) -> Option<Op> {
        let from = self.file()?;
        let to = self.fresh()?;
        Some(Op::Link { from, to })
    }

    /// Removes a file or an empty directory.
    pub(super) fn remove(&mut self) -> Option<Op> {
        let path = self.any()?;
        if !self.model.is_directory(&path) {
            Some(Op::Unlink { path })
        } else if self.model.below(&path).is_empty() {
            Some(Op::Rmdir { path })
        } else {
            None
        }
    }

    pub(super) fn rename(&mut self) -> Option<Op> {
        let from = self.any()?;
        let to = if self.rng.u32(..3) == 0 {
            self.any()?
        } else {
            self.fresh()?
        };
        let inside = |a: &str, b: &str| b == a || b.starts_with(&format!("{a}/"));
        if inside(&from, &to) || inside(&to, &from) {
            return None;
        }
        if self.model.exists(&to) {
            let (a, b) = (self.model.is_directory(&from), self.model.is_directory(&to));
            if a != b || (b && !self.model.below(&to).is_empty()) {
                return None;
            }
        }
        Some(Op::Rename { from, to })
    }

    pub(super) fn exchange(&mut self) -> Option<Op> {
        let (a, b) = (self.any()?, self.any()?);
        let inside = |a: &str, b: &str| b == a || b.starts_with(&format!("{a}/"));
        if inside(&a, &b) || inside(&b, &a) || self.model.same_inode(&a, &b) {
            return None;
        }
        Some(Op::Exchange { a, b })
    }
}
