//! Random changes of content, and syncs.

use super::Generator;
use super::there::There;
use crate::workload::op::Op;

impl Generator {
    /// An offset in a file of `size` bytes, or a little behind its end; often at a block boundary.
    fn offset(&mut self, size: u64) -> u64 {
        let any = self.rng.u64(0..=(size + 3000).min(self.bounds.file));
        match self.rng.u8(0..4) {
            0 => size,
            1 => any / 4096 * 4096,
            2 => any / 1024 * 1024,
            _ => any,
        }
    }

    pub(super) fn write(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        let offset = self.offset(there.size(&path)?);
        let len = match self.rng.u8(0..3) {
            0 => self.rng.usize(1..600),
            1 => self.rng.usize(1..5) * 4096,
            _ => self.rng.usize(1..self.bounds.write),
        };
        (offset + len as u64 <= self.bounds.file).then(|| Op::Write {
            path,
            offset,
            len,
            key: self.key(),
        })
    }

    pub(super) fn map_write(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        let offset = self.rng.u64(0..there.size(&path)?.max(1));
        let op = Op::MapWrite {
            len: self.rng.usize(1..=4096 - (offset % 4096) as usize),
            path,
            offset,
            key: self.key(),
        };
        there.state.allows(&op).ok().map(|()| op)
    }

    pub(super) fn truncate(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        let size = self.offset(there.size(&path)?);
        Some(Op::Truncate { path, size })
    }

    /// Punches a hole, zeroes a range, or allocates blocks.
    pub(super) fn fallocate(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        let size = there.size(&path)?;
        let len = self.rng.u64(1..12_000);
        let offset = self.rng.u64(0..=size);
        Some(match self.rng.u8(0..3) {
            0 => Op::Punch { path, offset, len },
            1 => Op::Zero {
                path,
                offset,
                len,
                keep: self.rng.bool(),
            },
            _ => Op::Allocate {
                path,
                offset,
                len,
                keep: self.rng.bool(),
            },
        })
    }

    pub(super) fn fsync(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        Some(Op::Fsync { path })
    }

    pub(super) fn fdatasync(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.content)?.clone();
        Some(Op::Fdatasync { path })
    }

    /// Syncs a directory; the script's own one if there is no other.
    pub(super) fn fsync_dir(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.dirs).cloned().unwrap_or_default();
        Some(Op::Fsync { path })
    }
}
