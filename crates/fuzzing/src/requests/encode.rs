//! Requests as bytes: `linux/fuse.h`, protocol 7.39, host byte order.

use stetfs_fuse::OPERATION;

use super::op;

/// Bytes of `struct fuse_in_header`.
pub(super) const HEAD: usize = 40;

/// A request being put together.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Bytes {
    pub(super) fn u32(mut self, value: u32) -> Bytes {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Bytes {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Bytes {
        self.0.extend(bytes);
        self
    }

    /// A string and its NUL.
    pub(super) fn name(self, name: &[u8]) -> Bytes {
        self.bytes(name).bytes(&[0])
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
}

/// A whole request, whose head says how long it is.
pub(super) fn request(opcode: u32, unique: u64, nodeid: u64, who: Who, body: &Bytes) -> Vec<u8> {
    let len = HEAD + body.0.len();
    Bytes::default()
        .u32(len as u32)
        .u32(opcode)
        .u64(unique)
        .u64(nodeid)
        .u32(who.uid)
        .u32(who.gid)
        .u32(who.pid)
        .u32(0)
        .bytes(&body.0)
        .0
}

/// The 8 bytes at `at`, if they are there.
pub(super) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// The 4 bytes at `at`, if they are there.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_ne_bytes(*bytes))
}

/// A request as the kernel puts it into a ring: its head, that of the operation, and what follows.
pub(super) fn parts(request: &[u8]) -> (&[u8], [u8; OPERATION], &[u8]) {
    let (head, body) = request.split_at(HEAD.min(request.len()));
    let len = word(head, 4).map_or(0, operation_len).min(body.len());
    let mut operation = [0; OPERATION];
    operation[..len].copy_from_slice(&body[..len]);
    (head, operation, &body[len..])
}

/// Bytes of an operation's own head.
fn operation_len(opcode: u32) -> usize {
    match opcode {
        op::MKDIR | op::RENAME | op::LINK | op::OPEN | op::OPENDIR => 8,
        op::GETXATTR | op::LISTXATTR | op::INTERRUPT => 8,
        op::MKNOD | op::CREATE | op::TMPFILE | op::RENAME2 | op::GETATTR | op::BMAP => 16,
        op::FSYNC | op::FSYNCDIR | op::SETXATTR => 16,
        op::RELEASE | op::RELEASEDIR | op::FLUSH | op::LSEEK => 24,
        op::IOCTL | op::FALLOCATE => 32,
        op::READ | op::READDIR | op::READDIRPLUS | op::WRITE => 40,
        op::COPY_FILE_RANGE => 56,
        op::INIT => 64,
        op::SETATTR => 88,
        _ => 0,
    }
}
