//! Requests for attributes.

use super::Maker;
use stetfs_testkit::fuse::Bytes;

impl Maker<'_> {
    pub(super) fn setattr(&mut self) -> Bytes {
        let b = Bytes::default();
        let valid = self.flags(&[1, 2, 4, 6, 8, 8, 0x48, 16, 32, 0x1b0, 0x400, 0x808, 0x7ff]);
        let (fh, size) = (self.handle(), self.long());
        let times = [self.long(), self.long(), self.long()];
        let mut b = b.u32(valid).u32(0).u64(fh).u64(size).u64(0);
        for time in times {
            b = b.u64(time);
        }
        let nanos = self.of(&[0, 999_999_999, 1_000_000_000, u32::MAX]);
        b = b.u32(nanos).u32(nanos).u32(nanos).u32(self.mode()).u32(0);
        b.u32(self.id()).u32(self.id()).u32(0)
    }

    pub(super) fn setxattr(&mut self) -> Bytes {
        let b = Bytes::default();
        let value = match self.rng.u32(..6) {
            0 => vec![b'v'; self.of(&[0, 1000, 4096, 65_535, 65_536, 65_537])],
            _ => self.data(300),
        };
        let size = self.about(value.len());
        let flags = self.flags(&[0, 0, 1, 2, 3]);
        b.u32(size)
            .u32(flags)
            .u32(self.flags(&[0, 1]))
            .u32(0)
            .name(self.xattr())
            .bytes(&value)
    }

    pub(super) fn getxattr(&mut self) -> Bytes {
        let b = Bytes::default();
        let size = self.of(&[0, 1, 100, 65_536, u32::MAX]);
        b.u32(size).u32(0).name(self.xattr())
    }
}
