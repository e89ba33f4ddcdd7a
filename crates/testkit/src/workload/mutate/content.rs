//! Random changes of content.

use super::{Mutator, Op};

/// Largest size of a file in bytes.
const FILE_MAX: u64 = 400_000;

impl Mutator {
    pub(super) fn write(&mut self) -> Option<Op> {
        let path = self.file()?;
        let length = 1usize << self.rng.u32(0..16);
        let length = self.rng.usize(1..=length);
        // Half of the writes append.
        let end = self.model.size(&path);
        let offset = if self.rng.bool() {
            end
        } else {
            self.rng.u64(..end + 8_192)
        };
        Some(Op::Write {
            path,
            offset: offset.min(FILE_MAX),
            key: self.rng.u64(..),
            length,
        })
    }

    pub(super) fn zero(&mut self) -> Option<Op> {
        let (path, offset, length) = self.range()?;
        Some(Op::Zero {
            path,
            offset,
            length,
        })
    }

    pub(super) fn punch(&mut self) -> Option<Op> {
        let (path, offset, length) = self.range()?;
        Some(Op::Punch {
            path,
            offset,
            length,
        })
    }

    pub(super) fn truncate(&mut self) -> Option<Op> {
        let path = self.file()?;
        let size = self.rng.u64(..FILE_MAX / 4);
        Some(Op::Truncate { path, size })
    }

    fn range(&mut self) -> Option<(String, u64, usize)> {
        let path = self.file()?;
        let offset = self.rng.u64(..self.model.size(&path) + 4_096).min(FILE_MAX);
        Some((path, offset, self.rng.usize(1..40_000)))
    }
}
