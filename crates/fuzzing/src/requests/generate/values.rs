//! Values of requests: numbers, names and data; some are such as no kernel sends.

use super::Maker;

const NAMES: [&[u8]; 12] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"dir",
    b"file",
    b"link",
    b"x1",
    b"x2",
    b"\xff\xfe",
    b"long.name.of.a.file",
];
/// Names that no kernel sends.
const BAD_NAMES: [&[u8]; 8] = [b"", b".", b"..", b"a/b", b"/", b"../a", b"./dir", b"dir/"];
const XATTRS: [&[u8]; 12] = [
    b"user.a",
    b"user.b",
    b"user.",
    b"",
    b"nothing",
    b"trusted.t",
    b"security.capability",
    b"system.data",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"system.",
    b"user",
];
const EDGES: [u64; 14] = [
    0,
    1,
    1023,
    1024,
    4096,
    4097,
    1 << 20,
    1 << 31,
    1 << 32,
    (1 << 44) - 4096,
    1 << 44,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];
impl Maker<'_> {
    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.usize(..all.len())]
    }

    /// A node, mostly one that the kernel would know.
    pub(super) fn node(&mut self) -> u64 {
        let node = match self.rng.u32(..20) {
            0 => self.rng.u64(..300),
            1 => self.of(&[
                0,
                2,
                3,
                4,
                7,
                8,
                9,
                10,
                11,
                12,
                1 << 32,
                (1 << 32) + 12,
                u64::MAX,
            ]),
            2..=5 => 1,
            _ if self.known.nodes.is_empty() => 1,
            // Some of these nodes are deleted or forgotten by now.
            _ => self.known.nodes[self.rng.usize(..self.known.nodes.len())],
        };
        if self.known.apart.contains(&node) {
            1
        } else {
            node
        }
    }

    pub(super) fn handle(&mut self) -> u64 {
        match self.rng.u32(..8) {
            0 => self.rng.u64(..),
            1 => self.rng.u64(..10),
            2..=4 if !self.known.handles.is_empty() => {
                self.known.handles[self.rng.usize(..self.known.handles.len())]
            }
            _ => 0,
        }
    }

    pub(super) fn name(&mut self) -> Vec<u8> {
        match self.rng.u32(..24) {
            0 => self.of(&BAD_NAMES).to_vec(),
            1 => vec![b'n'; self.of(&[254, 255, 256, 1023, 1024, 4096, 70_000])],
            _ => self.of(&NAMES).to_vec(),
        }
    }

    pub(super) fn xattr(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0 => [
                &b"user."[..],
                &vec![b'x'; self.of(&[249, 250, 251, 255, 300])],
            ]
            .concat(),
            _ => self.of(&XATTRS).to_vec(),
        }
    }

    /// An offset or a length.
    pub(super) fn long(&mut self) -> u64 {
        match self.rng.u32(..6) {
            0 => self.of(&EDGES),
            1 => self
                .of(&EDGES)
                .wrapping_add(self.rng.u64(..5000))
                .wrapping_sub(2500),
            _ => self.rng.u64(..100_000),
        }
    }

    pub(super) fn mode(&mut self) -> u32 {
        match self.rng.u32(..6) {
            0 => self.rng.u32(..),
            1 => {
                self.of(&[
                    0o010_000, 0o020_000, 0o040_000, 0o060_000, 0o120_000, 0o140_000, 0,
                ]) | 0o777
            }
            _ => 0o100_000 | self.rng.u32(..0o10_000),
        }
    }

    pub(super) fn flags(&mut self, some: &[u32]) -> u32 {
        match self.rng.u32(..8) {
            0 => self.rng.u32(..),
            _ => self.of(some),
        }
    }

    pub(super) fn id(&mut self) -> u32 {
        self.of(&[0, 0, 0, 1000, 65_535, 65_536, u32::MAX])
    }

    /// A size, mostly `len`.
    pub(super) fn about(&mut self, len: usize) -> u32 {
        match self.rng.u32(..12) {
            0 => self.of(&[0, 1, len as u32 + 1, 1 << 20, 1 << 31, u32::MAX]),
            _ => len as u32,
        }
    }

    pub(super) fn data(&mut self, most: usize) -> Vec<u8> {
        vec![self.rng.u8(..); self.rng.usize(..most)]
    }

    pub(super) fn forgets(&mut self) -> u64 {
        self.of(&[0, 1, 1, 1, 2, 1000, 1 << 63, u64::MAX])
    }
}
