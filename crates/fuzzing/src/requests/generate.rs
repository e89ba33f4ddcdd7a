//! The generator of requests: most are such as a kernel sends, and many of these have something
//! wrong.

mod attributes;
mod content;
mod known;
mod names;
mod session;
mod values;

pub(super) use self::known::Known;
use stetfs_testkit::fuse::{Bytes, HEAD, Who, long, op, request};

/// Operations that change or read something, with their frequencies.
const USUAL: [(u32, u32); 42] = [
    (op::LOOKUP, 12),
    (op::FORGET, 4),
    (op::GETATTR, 4),
    (op::SETATTR, 10),
    (op::READLINK, 2),
    (op::SYMLINK, 4),
    (op::MKNOD, 12),
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

/// Generates the requests of one session.
pub(super) struct Maker<'a> {
    pub(super) rng: &'a mut fastrand::Rng,
    pub(super) known: &'a mut Known,
}

impl Maker<'_> {
    /// The body of a request, behind its header.
    fn body(&mut self, opcode: u32) -> Bytes {
        let b = Bytes::default();
        match opcode {
            op::LOOKUP | op::UNLINK | op::RMDIR => b.name(self.name()),
            op::REMOVEXATTR => b.name(self.xattr()),
            op::FORGET => b.u64(self.forgets()),
            op::BATCH_FORGET => self.batch_forget(),
            op::SETATTR => self.setattr(),
            op::SYMLINK => self.symlink(),
            op::MKNOD => self.mknod(),
            op::MKDIR => b.u32(self.mode()).u32(0o22).name(self.name()),
            op::CREATE | op::TMPFILE => self.create(),
            op::RENAME => b.u64(self.node()).name(self.name()).name(self.name()),
            op::RENAME2 => self.rename2(),
            op::LINK => b.u64(self.node()).name(self.name()),
            op::OPEN | op::OPENDIR => b.u32(self.flags(&[0, 1, 2, 0o1002, 0o200_000])).u32(0),
            op::READ | op::READDIR | op::READDIRPLUS => self.read(),
            op::WRITE => self.write(),
            op::RELEASE | op::RELEASEDIR | op::FLUSH => b.u64(self.handle()).u32(0).u32(0).u64(0),
            op::FSYNC | op::FSYNCDIR => b.u64(self.handle()).u32(self.flags(&[0, 1])).u32(0),
            op::SETXATTR => self.setxattr(),
            op::GETXATTR => self.getxattr(),
            op::LISTXATTR => b.u32(self.of(&[0, 1, 100, 65_536, u32::MAX])).u32(0),
            op::INIT => self.init(),
            op::INTERRUPT => self.interrupt(),
            op::BMAP => self.bmap(),
            op::IOCTL => self.ioctl(),
            op::FALLOCATE => self.fallocate(),
            op::LSEEK => self.lseek(),
            op::COPY_FILE_RANGE => self.copy_file_range(),
            _ => b.bytes(&self.data(200)),
        }
    }

    fn opcode(&mut self) -> u32 {
        let all: u32 = USUAL.iter().map(|(_, often)| often).sum();
        let mut at = self.rng.u32(..all);
        for (opcode, often) in USUAL {
            if at < often {
                // The last value is for operations that do not exist, or that the server does not
                // have.
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
            // The request is cut off.
            0 => bytes.truncate(self.rng.usize(..=bytes.len())),
            // The request is longer than its header says, or the length in the header is wrong.
            1 => bytes.extend(self.data(100)),
            2 => {
                bytes[..4].copy_from_slice(&self.of(&[0, 39, 40, 1 << 31, u32::MAX]).to_ne_bytes())
            }
            // The request has no NULs.
            3 if bytes.len() > HEAD => bytes[HEAD..].iter_mut().for_each(|b| *b |= 1),
            // A byte of the body is changed.
            4 if bytes.len() > HEAD => {
                let at = self.rng.usize(HEAD..bytes.len());
                bytes[at] = self.rng.u8(..);
            }
            _ => {}
        }
        self.keep_off(&mut bytes);
        bytes
    }

    /// Removes each number from a request that is a node to be left alone.
    fn keep_off(&self, bytes: &mut [u8]) {
        for at in [16, HEAD, HEAD + 16] {
            if long(bytes, at).is_some_and(|n| self.known.apart.contains(&n)) {
                bytes[at..at + 8].fill(0);
            }
        }
    }
}
