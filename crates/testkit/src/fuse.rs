//! Requests of FUSE as bytes, as a kernel sends them: `linux/fuse.h`, host byte order.

/// Bytes of `struct fuse_in_header`.
pub const HEAD: usize = 40;

/// The numbers of operations: the names of `linux/fuse.h` without `FUSE_`.
#[allow(missing_docs, reason = "the names say it")]
pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// Bytes under construction.
#[derive(Clone, Debug, Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// Adds a number of 4 bytes.
    #[must_use]
    pub fn u32(mut self, value: u32) -> Bytes {
        self.0.extend(value.to_ne_bytes());
        self
    }

    /// Adds a number of 8 bytes.
    #[must_use]
    pub fn u64(mut self, value: u64) -> Bytes {
        self.0.extend(value.to_ne_bytes());
        self
    }

    /// Adds bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Bytes {
        self.0.extend(bytes);
        self
    }

    /// Adds a string and its NUL.
    #[must_use]
    pub fn name(self, name: impl AsRef<[u8]>) -> Bytes {
        self.bytes(name.as_ref()).bytes(&[0])
    }
}

/// The caller of a request, as its header names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process.
    pub pid: u32,
}

/// A whole request; its header holds the right length.
pub fn request(opcode: u32, unique: u64, node: u64, who: Who, body: &Bytes) -> Vec<u8> {
    Bytes::default()
        .u32((HEAD + body.0.len()) as u32)
        .u32(opcode)
        .u64(unique)
        .u64(node)
        .u32(who.uid)
        .u32(who.gid)
        .u32(who.pid)
        .u32(0)
        .bytes(&body.0)
        .0
}

/// The 8 bytes at `at` as a number; `None` beyond the end.
pub fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// The 4 bytes at `at` as a number; `None` beyond the end.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_ne_bytes(*bytes))
}

/// A request as the kernel puts it into a ring: the header, the operation's own header in `N`
/// bytes, and the rest.
pub fn parts<const N: usize>(request: &[u8]) -> (&[u8], [u8; N], &[u8]) {
    let (head, body) = request.split_at(HEAD.min(request.len()));
    let len = word(head, 4).map_or(0, operation_len).min(body.len());
    let mut operation = [0; N];
    operation[..len].copy_from_slice(&body[..len]);
    (head, operation, &body[len..])
}

/// Bytes of an operation's own header.
fn operation_len(opcode: u32) -> usize {
    match opcode {
        op::MKDIR | op::RENAME | op::LINK | op::OPEN | op::OPENDIR => 8,
        op::GETXATTR | op::LISTXATTR | op::INTERRUPT => 8,
        op::MKNOD | op::CREATE | op::TMPFILE | op::RENAME2 | op::GETATTR | op::BMAP => 16,
        op::FSYNC | op::FSYNCDIR | op::SETXATTR => 16,
        op::RELEASE | op::RELEASEDIR | op::FLUSH | op::LSEEK | op::STATX => 24,
        op::IOCTL | op::FALLOCATE => 32,
        op::READ | op::READDIR | op::READDIRPLUS | op::WRITE => 40,
        op::COPY_FILE_RANGE => 56,
        op::INIT => 64,
        op::SETATTR => 88,
        _ => 0,
    }
}
