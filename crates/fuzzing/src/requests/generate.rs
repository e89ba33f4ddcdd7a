//! Makes requests, most of them such as a kernel sends, with something wrong in many.

use std::collections::BTreeSet;

use super::encode::{Bytes, HEAD, Who, long, request, word};
use super::op;

/// Those that change or read something, by how often they come.
const USUAL: [(u32, u32); 42] = [
    (op::LOOKUP, 12),
    (op::FORGET, 4),
    (op::GETATTR, 4),
    (op::SETATTR, 10),
    (op::READLINK, 2),
    (op::SYMLINK, 4),
    (op::MKNOD, 4),
    (op::MKDIR, 8),
    (op::UNLINK, 8),
    (op::RMDIR, 4),
    (op::RENAME, 4),
    (op::LINK, 5),
    (op::OPEN, 4),
    (op::READ, 6),
    (op::WRITE, 14),
    (op::STATFS, 1),
    (op::RELEASE, 3),
    (op::FLUSH, 2),
    (op::FSYNC, 3),
    (op::SETXATTR, 10),
    (op::GETXATTR, 3),
    (op::LISTXATTR, 2),
    (op::REMOVEXATTR, 4),
    (op::INIT, 1),
    (op::OPENDIR, 1),
    (op::READDIR, 3),
    (op::RELEASEDIR, 1),
    (op::FSYNCDIR, 1),
    (op::CREATE, 12),
    (op::INTERRUPT, 3),
    (op::BMAP, 2),
    (op::IOCTL, 5),
    (op::BATCH_FORGET, 3),
    (op::FALLOCATE, 8),
    (op::READDIRPLUS, 4),
    (op::RENAME2, 10),
    (op::LSEEK, 3),
    (op::COPY_FILE_RANGE, 6),
    (op::SYNCFS, 1),
    (op::TMPFILE, 3),
    (op::STATX, 1),
    (0, 2),
];

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
/// Numbers of ioctls that the server knows, and one that it does not.
const IOCTLS: [u32; 17] = [
    0x8008_6601,
    0x4008_6602,
    0x8008_7601,
    0x801c_581f,
    0x401c_5820,
    0x8100_9431,
    0x4100_9432,
    0xc018_5879,
    0x8004_587d,
    // Atomic writes; begun more often than ended.
    0x8004_f50c,
    0xf501,
    0xf501,
    0xf501,
    0xf502,
    0xf505,
    0x4004_9502,
    0x1234_5678,
];

/// What is known of the other side.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Nodes that answers named.
    pub(super) nodes: Vec<u64>,
    /// Handles that answers gave.
    pub(super) handles: Vec<u64>,
    /// Nodes that no request may name.
    pub(super) apart: BTreeSet<u64>,
    /// Numbers of requests that were made.
    pub(super) uniques: Vec<u64>,
    pub(super) next: u64,
}

impl Known {
    /// Learns from the answer to `request`.
    pub(super) fn learn(&mut self, request: &[u8], answer: &[u8]) {
        let (Some(opcode), Some(0)) = (word(request, 4), word(answer, 4)) else {
            return;
        };
        let body = answer.get(16..).unwrap_or_default();
        let entry = matches!(
            opcode,
            op::LOOKUP | op::SYMLINK | op::MKNOD | op::MKDIR | op::LINK | op::CREATE | op::TMPFILE
        );
        if let (true, Some(node)) = (entry, long(body, 0))
            && node != 0
            && !self.apart.contains(&node)
        {
            self.nodes.push(node);
        }
        let handle = match opcode {
            op::OPEN | op::OPENDIR => long(body, 0),
            op::CREATE | op::TMPFILE => long(body, 128),
            _ => None,
        };
        self.handles.extend(handle.filter(|h| *h != 0));
    }
}

/// Makes the next request of one session.
pub(super) struct Maker<'a> {
    pub(super) rng: &'a mut fastrand::Rng,
    pub(super) known: &'a mut Known,
}

impl Maker<'_> {
    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.usize(..all.len())]
    }

    /// A node: mostly one that the kernel would know.
    fn node(&mut self) -> u64 {
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
            // Some of them are deleted or forgotten by now.
            _ => self.known.nodes[self.rng.usize(..self.known.nodes.len())],
        };
        if self.known.apart.contains(&node) {
            1
        } else {
            node
        }
    }

    fn handle(&mut self) -> u64 {
        match self.rng.u32(..8) {
            0 => self.rng.u64(..),
            1 => self.rng.u64(..10),
            2..=4 if !self.known.handles.is_empty() => {
                self.known.handles[self.rng.usize(..self.known.handles.len())]
            }
            _ => 0,
        }
    }

    fn name(&mut self) -> Vec<u8> {
        match self.rng.u32(..24) {
            0 => self.of(&BAD_NAMES).to_vec(),
            1 => vec![b'n'; self.of(&[254, 255, 256, 1023, 1024, 4096, 70_000])],
            _ => self.of(&NAMES).to_vec(),
        }
    }

    fn xattr(&mut self) -> Vec<u8> {
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
    fn long(&mut self) -> u64 {
        match self.rng.u32(..6) {
            0 => self.of(&EDGES),
            1 => self
                .of(&EDGES)
                .wrapping_add(self.rng.u64(..5000))
                .wrapping_sub(2500),
            _ => self.rng.u64(..100_000),
        }
    }

    fn mode(&mut self) -> u32 {
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

    fn flags(&mut self, some: &[u32]) -> u32 {
        match self.rng.u32(..8) {
            0 => self.rng.u32(..),
            _ => self.of(some),
        }
    }

    fn id(&mut self) -> u32 {
        self.of(&[0, 0, 0, 1000, 65_535, 65_536, u32::MAX])
    }

    /// A size that is mostly `len`.
    fn about(&mut self, len: usize) -> u32 {
        match self.rng.u32(..12) {
            0 => self.of(&[0, 1, len as u32 + 1, 1 << 20, 1 << 31, u32::MAX]),
            _ => len as u32,
        }
    }

    fn data(&mut self, most: usize) -> Vec<u8> {
        vec![self.rng.u8(..); self.rng.usize(..most)]
    }

    /// What follows the head of a request.
    fn body(&mut self, opcode: u32) -> Bytes {
        let b = Bytes::default();
        match opcode {
            op::LOOKUP | op::UNLINK | op::RMDIR => b.name(&self.name()),
            op::REMOVEXATTR => b.name(&self.xattr()),
            op::FORGET => b.u64(self.forgets()),
            op::BATCH_FORGET => {
                let count = self.rng.usize(..6);
                let mut b = b.u32(self.about(count)).u32(0);
                for _ in 0..count {
                    let (node, n) = (self.node(), self.forgets());
                    b = b.u64(node).u64(n);
                }
                b
            }
            op::SETATTR => {
                let valid =
                    self.flags(&[1, 2, 4, 6, 8, 8, 0x48, 16, 32, 0x1b0, 0x400, 0x808, 0x7ff]);
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
            op::SYMLINK => {
                let target = match self.rng.u32(..5) {
                    0 => vec![b't'; self.of(&[0, 59, 60, 1023, 1024, 4095, 4096, 70_000])],
                    _ => b"target".to_vec(),
                };
                b.name(&self.name()).name(&target)
            }
            op::MKNOD => b
                .u32(self.mode())
                .u32(self.rng.u32(..))
                .u32(0o22)
                .u32(0)
                .name(&self.name()),
            op::MKDIR => b.u32(self.mode()).u32(0o22).name(&self.name()),
            op::CREATE | op::TMPFILE => {
                let flags = self.flags(&[0o2, 0o102, 0o1102, 0o302, 0o1]);
                b.u32(flags)
                    .u32(self.mode())
                    .u32(0o22)
                    .u32(0)
                    .name(&self.name())
            }
            op::RENAME => b.u64(self.node()).name(&self.name()).name(&self.name()),
            op::RENAME2 => {
                let flags = self.flags(&[0, 1, 2, 2, 4, 3, 5, 6, 7, 8]);
                b.u64(self.node())
                    .u32(flags)
                    .u32(0)
                    .name(&self.name())
                    .name(&self.name())
            }
            op::LINK => b.u64(self.node()).name(&self.name()),
            op::OPEN | op::OPENDIR => b.u32(self.flags(&[0, 1, 2, 0o1002, 0o200_000])).u32(0),
            op::READ | op::READDIR | op::READDIRPLUS => {
                let size = self.of(&[0, 1, 100, 4096, 4096, 65_536, 1 << 20, u32::MAX]);
                b.u64(self.handle())
                    .u64(self.long())
                    .u32(size)
                    .u32(0)
                    .u64(0)
                    .u32(self.flags(&[0]))
                    .u32(0)
            }
            op::WRITE => {
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
            op::RELEASE | op::RELEASEDIR | op::FLUSH => b.u64(self.handle()).u32(0).u32(0).u64(0),
            op::FSYNC | op::FSYNCDIR => b.u64(self.handle()).u32(self.flags(&[0, 1])).u32(0),
            op::SETXATTR => {
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
                    .name(&self.xattr())
                    .bytes(&value)
            }
            op::GETXATTR => {
                let size = self.of(&[0, 1, 100, 65_536, u32::MAX]);
                b.u32(size).u32(0).name(&self.xattr())
            }
            op::LISTXATTR => b.u32(self.of(&[0, 1, 100, 65_536, u32::MAX])).u32(0),
            op::INIT => b
                .u32(7)
                .u32(39)
                .u32(1 << 20)
                .u32(self.rng.u32(..))
                .u32(0)
                .bytes(&[0; 44]),
            op::INTERRUPT => {
                let of = match self.known.uniques.len() {
                    0 => 0,
                    n => self.known.uniques[self.rng.usize(..n)],
                };
                b.u64(if self.one_in(4) { self.rng.u64(..) } else { of })
            }
            op::BMAP => b
                .u64(self.long())
                .u32(self.of(&[0, 1, 512, 1024, 4096, 1 << 31]))
                .u32(0),
            op::IOCTL => {
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
            op::FALLOCATE => {
                let mode = self.flags(&[0, 1, 3, 2, 0x10, 0x11, 8, 0x20, 0x40]);
                b.u64(self.handle())
                    .u64(self.long())
                    .u64(self.long())
                    .u32(mode)
                    .u32(0)
            }
            op::LSEEK => b
                .u64(self.handle())
                .u64(self.long())
                .u32(self.flags(&[3, 4, 0, 2]))
                .u32(0),
            op::COPY_FILE_RANGE => {
                let (from, at, to, fh) = (self.handle(), self.long(), self.node(), self.handle());
                b.u64(from)
                    .u64(at)
                    .u64(to)
                    .u64(fh)
                    .u64(self.long())
                    .u64(self.long())
                    .u64(self.rng.u64(..2))
            }
            _ => b.bytes(&self.data(200)),
        }
    }

    fn forgets(&mut self) -> u64 {
        self.of(&[0, 1, 1, 1, 2, 1000, 1 << 63, u64::MAX])
    }

    fn opcode(&mut self) -> u32 {
        let all: u32 = USUAL.iter().map(|(_, often)| often).sum();
        let mut at = self.rng.u32(..all);
        for (opcode, often) in USUAL {
            if at < often {
                // The last is for those that there are not, or that the server does not have.
                return match opcode {
                    0 => self.of(&[
                        0,
                        7,
                        19,
                        25,
                        31,
                        32,
                        33,
                        34,
                        40,
                        41,
                        48,
                        49,
                        53,
                        63,
                        64,
                        4096,
                        u32::MAX,
                    ]),
                    known => known,
                };
            }
            at -= often;
        }
        op::GETATTR
    }

    fn unique(&mut self) -> u64 {
        if self.one_in(30) && !self.known.uniques.is_empty() {
            return self.known.uniques[self.rng.usize(..self.known.uniques.len())];
        }
        self.known.next += 2;
        self.known.uniques.push(self.known.next);
        self.known.next
    }

    /// The next request.
    pub(super) fn next(&mut self) -> Vec<u8> {
        let opcode = self.opcode();
        let body = self.body(opcode);
        let who = Who {
            uid: self.id(),
            gid: self.id(),
            pid: self.of(&[0, std::process::id(), 1 << 30, u32::MAX]),
        };
        let (unique, node) = (self.unique(), self.node());
        let mut bytes = request(opcode, unique, node, who, &body);
        match self.rng.u32(..40) {
            // Cut off.
            0 => bytes.truncate(self.rng.usize(..=bytes.len())),
            // Longer, or of another length, than its head says.
            1 => bytes.extend(self.data(100)),
            2 => {
                bytes[..4].copy_from_slice(&self.of(&[0, 39, 40, 1 << 31, u32::MAX]).to_ne_bytes())
            }
            // Without NULs.
            3 if bytes.len() > HEAD => bytes[HEAD..].iter_mut().for_each(|b| *b |= 1),
            // Some byte of the body is another.
            4 if bytes.len() > HEAD => {
                let at = self.rng.usize(HEAD..bytes.len());
                bytes[at] = self.rng.u8(..);
            }
            _ => {}
        }
        self.keep_off(&mut bytes);
        bytes
    }

    /// No number in a request is a node that is to be left alone.
    fn keep_off(&self, bytes: &mut [u8]) {
        for at in [16, HEAD, HEAD + 16] {
            if long(bytes, at).is_some_and(|n| self.known.apart.contains(&n)) {
                bytes[at..at + 8].fill(0);
            }
        }
    }
}
