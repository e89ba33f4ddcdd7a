//! The ioctls for atomic writes of files.

use crate::api::ops::IoctlArgs;
pub(crate) use crate::system::sys::BREAK;

/// `F2FS_IOC_GET_FEATURES`, and the bit for atomic writes.
pub(crate) const GET_FEATURES: u32 = 0x8004_f50c;
pub(crate) const ATOMIC_WRITE: u32 = 0x4;
/// `F2FS_IOC_START_ATOMIC_WRITE`, `F2FS_IOC_COMMIT_ATOMIC_WRITE`, `F2FS_IOC_ABORT_ATOMIC_WRITE`.
const START: u32 = 0xf501;
const COMMIT: u32 = 0xf502;
pub(crate) const ABORT: u32 = 0xf505;
/// `STETFS_IOC_GET_ATOMIC_GROUP`, `STETFS_IOC_JOIN_ATOMIC_GROUP` (`include/stetfs_atomic.h`): a
/// server cannot use a descriptor's number, so groups have tokens.
const GET_GROUP: u32 = 0x8008_f540;
const JOIN: u32 = 0x4008_f541;

/// A decoded ioctl of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Features,
    Start,
    Commit,
    Abort,
    /// Query of the token of its group.
    Group,
    /// Join of the group with this token.
    Join(u64),
    /// Abort of the file's group, whichever handle began it.
    Break,
}

impl Verb {
    /// Decodes a request; `None` for other ioctls.
    pub(crate) fn of(args: &IoctlArgs<'_>) -> Option<Verb> {
        Some(match args.cmd {
            GET_FEATURES => Verb::Features,
            START => Verb::Start,
            COMMIT => Verb::Commit,
            ABORT => Verb::Abort,
            GET_GROUP => Verb::Group,
            BREAK => Verb::Break,
            JOIN => Verb::Join(u64::from_ne_bytes(*args.input.first_chunk()?)),
            _ => return None,
        })
    }
}

/// FusionIO's `DFS_IOCTL_ATOMIC_WRITE_SET`, by which MariaDB asks whether a written page is whole
/// or absent after a crash; its pages have up to this many bytes.
pub(crate) const WRITES_WHOLE: u32 = 0x4004_9502;
pub(crate) const WHOLE_BYTES: usize = 64 << 10;
