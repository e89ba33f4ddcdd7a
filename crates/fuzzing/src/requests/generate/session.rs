//! Requests of the session itself, and ioctls.

use super::Maker;
use stetfs_testkit::fuse::Bytes;

/// Numbers of the ioctls that the server knows, and of one that it does not know.
const IOCTLS: [u32; 18] = [
    0x8008_6601,
    0x4008_6602,
    0x8008_7601,
    0x801c_581f,
    0x401c_5820,
    0x8100_9431,
    0x4100_9432,
    0xc018_5879,
    0x8004_587d,
    // Atomic writes; begins are more frequent than ends.
    0x8004_f50c,
    0xf501,
    0xf501,
    0xf501,
    0xf502,
    0xf505,
    0xf542,
    0x4004_9502,
    0x1234_5678,
];

impl Maker<'_> {
    pub(super) fn init(&mut self) -> Bytes {
        let b = Bytes::default();
        b.u32(7)
            .u32(39)
            .u32(1 << 20)
            .u32(self.rng.u32(..))
            .u32(0)
            .bytes(&[0; 44])
    }

    pub(super) fn interrupt(&mut self) -> Bytes {
        let b = Bytes::default();
        let of = match self.known.uniques.len() {
            0 => 0,
            n => self.known.uniques[self.rng.usize(..n)],
        };
        b.u64(if self.one_in(4) { self.rng.u64(..) } else { of })
    }

    pub(super) fn batch_forget(&mut self) -> Bytes {
        let b = Bytes::default();
        let count = self.rng.usize(..6);
        let mut b = b.u32(self.about(count)).u32(0);
        for _ in 0..count {
            let (node, n) = (self.node(), self.forgets());
            b = b.u64(node).u64(n);
        }
        b
    }

    pub(super) fn ioctl(&mut self) -> Bytes {
        let b = Bytes::default();
        let input = match self.rng.u32(..3) {
            0 => self.data(300),
            _ => {
                let flags = self.flags(&[0, 0x8, 0x10, 0x20, 0x40, 0x80, 0x2000_0000]);
                let mut input = flags.to_ne_bytes().to_vec();
                input.resize(28, 0);
                input
            }
        };
        let (size, cmd) = (self.about(input.len()), self.of(&IOCTLS));
        let out = self.of(&[0, 4, 8, 28, 256, u32::MAX]);
        let flags = self.of(&[0, 0, 0, 1, 2, u32::MAX]);
        b.u64(self.handle())
            .u32(flags)
            .u32(cmd)
            .u64(self.long())
            .u32(size)
            .u32(out)
            .bytes(&input)
    }
}
