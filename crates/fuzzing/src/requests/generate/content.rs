//! Requests for the content of files and directories.

use super::Maker;
use stetfs_testkit::fuse::Bytes;

impl Maker<'_> {
    pub(super) fn read(&mut self) -> Bytes {
        let b = Bytes::default();
        let size = self.of(&[0, 1, 100, 4096, 4096, 65_536, 1 << 20, u32::MAX]);
        b.u64(self.handle())
            .u64(self.long())
            .u32(size)
            .u32(0)
            .u64(0)
            .u32(self.flags(&[0]))
            .u32(0)
    }

    pub(super) fn write(&mut self) -> Bytes {
        let b = Bytes::default();
        let data = self.data(20_000);
        let size = self.about(data.len());
        let (fh, offset, how) = (self.handle(), self.long(), self.flags(&[0, 0, 1, 4]));
        let open = self.flags(&[1, 2, 0o2001, 0o40_001, 0o10_001, 0o4_010_001]);
        b.u64(fh)
            .u64(offset)
            .u32(size)
            .u32(how)
            .u64(0)
            .u32(open)
            .u32(0)
            .bytes(&data)
    }

    pub(super) fn fallocate(&mut self) -> Bytes {
        let b = Bytes::default();
        let mode = self.flags(&[0, 1, 3, 2, 0x10, 0x11, 8, 0x20, 0x40]);
        b.u64(self.handle())
            .u64(self.long())
            .u64(self.long())
            .u32(mode)
            .u32(0)
    }

    pub(super) fn lseek(&mut self) -> Bytes {
        let b = Bytes::default();
        b.u64(self.handle())
            .u64(self.long())
            .u32(self.flags(&[3, 4, 0, 2]))
            .u32(0)
    }

    pub(super) fn copy_file_range(&mut self) -> Bytes {
        let b = Bytes::default();
        let (from, at, to, fh) = (self.handle(), self.long(), self.node(), self.handle());
        b.u64(from)
            .u64(at)
            .u64(to)
            .u64(fh)
            .u64(self.long())
            .u64(self.long())
            .u64(self.rng.u64(..2))
    }

    pub(super) fn bmap(&mut self) -> Bytes {
        let b = Bytes::default();
        b.u64(self.long())
            .u32(self.of(&[0, 1, 512, 1024, 4096, 1 << 31]))
            .u32(0)
    }
}
