//! Requests as bytes: `linux/fuse.h`, protocol 7.39, host byte order.

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
