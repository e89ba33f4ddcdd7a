//! The ioctls of files that are written atomically.

use crate::ops::IoctlArgs;

/// `F2FS_IOC_GET_FEATURES`, and the bit that says that files can be written atomically.
pub(crate) const GET_FEATURES: u32 = 0x8004_f50c;
pub(crate) const ATOMIC_WRITE: u32 = 0x4;
/// `F2FS_IOC_START_ATOMIC_WRITE`, `F2FS_IOC_COMMIT_ATOMIC_WRITE`, `F2FS_IOC_ABORT_ATOMIC_WRITE`.
const START: u32 = 0xf501;
const COMMIT: u32 = 0xf502;
pub(crate) const ABORT: u32 = 0xf505;
/// `STETFS_IOC_GET_ATOMIC_GROUP`, `STETFS_IOC_JOIN_ATOMIC_GROUP` (`include/stetfs_atomic.h`): a
/// descriptor's number says nothing to a server, so groups have tokens.
const GET_GROUP: u32 = 0x8008_f540;
const JOIN: u32 = 0x4008_f541;
/// `STETFS_IOC_BREAK_ATOMIC_WRITE`.
pub(crate) const BREAK: u32 = 0xf542;

/// What a handle asks for with an ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Features,
    Start,
    Commit,
    Abort,
    /// The token of its group.
    Group,
    /// To be of the group with this token.
    Join(u64),
    /// To end that of the file, whoever began it.
    Break,
}

impl Verb {
    /// That of a request, if it is one of these.
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

/// FusionIO's `DFS_IOCTL_ATOMIC_WRITE_SET`, by which MariaDB asks whether a page that it writes is
/// whole or absent after a crash: pages of up to so many bytes are meant.
pub(crate) const WRITES_WHOLE: u32 = 0x4004_9502;
pub(crate) const WHOLE_BYTES: usize = 64 << 10;
