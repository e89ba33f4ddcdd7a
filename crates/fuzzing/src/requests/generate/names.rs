//! Requests that make or change names.

use super::Maker;
use stetfs_testkit::fuse::Bytes;

impl Maker<'_> {
    pub(super) fn symlink(&mut self) -> Bytes {
        let b = Bytes::default();
        let target = match self.rng.u32(..5) {
            0 => vec![b't'; self.of(&[0, 59, 60, 1023, 1024, 4095, 4096, 70_000])],
            _ => b"target".to_vec(),
        };
        b.name(self.name()).name(target)
    }

    pub(super) fn mknod(&mut self) -> Bytes {
        let b = Bytes::default();
        b.u32(self.mode())
            .u32(self.rng.u32(..))
            .u32(0o22)
            .u32(0)
            .name(self.name())
    }

    pub(super) fn create(&mut self) -> Bytes {
        let b = Bytes::default();
        let flags = self.flags(&[0o2, 0o102, 0o1102, 0o302, 0o1]);
        b.u32(flags)
            .u32(self.mode())
            .u32(0o22)
            .u32(0)
            .name(self.name())
    }

    pub(super) fn rename2(&mut self) -> Bytes {
        let b = Bytes::default();
        let flags = self.flags(&[0, 1, 2, 2, 4, 3, 5, 6, 7, 8]);
        b.u64(self.node())
            .u32(flags)
            .u32(0)
            .name(self.name())
            .name(self.name())
    }
}
