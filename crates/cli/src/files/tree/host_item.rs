//! Conversions between the host's attributes of files and those of this module.

use std::fs::File;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat, Timespec, UTIME_OMIT, ioctl_getflags, major, minor};
use rustix::io::Errno;
use stetfs::Node;

use super::{Item, KEPT_FLAGS, Kind};

pub(super) fn kind(m: &Stat) -> Kind {
    let device = (major(m.st_rdev), minor(m.st_rdev));
    match FileType::from_raw_mode(m.st_mode) {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Node(Node::Fifo),
        FileType::Socket => Kind::Node(Node::Socket),
        FileType::CharacterDevice => Kind::Node(Node::CharDevice(device.0, device.1)),
        FileType::BlockDevice => Kind::Node(Node::BlockDevice(device.0, device.1)),
        _ => Kind::File,
    }
}

pub(super) fn id(m: &Stat) -> (u64, u64) {
    (m.st_dev, m.st_ino)
}

// The type of the number of links is narrower on some machines.
#[allow(clippy::useless_conversion)]
pub(super) fn to_item(m: &Stat) -> Item {
    let time = |seconds: i64, nanos: u64| {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let at = match seconds < 0 {
            true => UNIX_EPOCH.checked_sub(whole),
            false => UNIX_EPOCH.checked_add(whole),
        };
        at.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(nanos)
    };
    Item {
        kind: kind(m),
        mode: m.st_mode & 0o7777,
        uid: m.st_uid,
        gid: m.st_gid,
        size: u64::try_from(m.st_size).unwrap_or(0),
        is_sparse: m.st_blocks.saturating_mul(512) < m.st_size,
        links: m.st_nlink.into(),
        id: id(m),
        modified: time(m.st_mtime, m.st_mtime_nsec),
        accessed: time(m.st_atime, m.st_atime_nsec),
    }
}

/// The time for utimensat(2); `None` leaves it as it is.
pub(super) fn timespec(time: Option<SystemTime>) -> Timespec {
    let Some(time) = time else {
        return Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
    };
    let seconds = |d: Duration| i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: seconds(after),
            tv_nsec: after.subsec_nanos().into(),
        },
        Err(e) => {
            let before = e.duration();
            let nanos = i64::from(before.subsec_nanos());
            let borrowed = i64::from(nanos > 0);
            Timespec {
                tv_sec: -seconds(before) - borrowed,
                tv_nsec: borrowed * 1_000_000_000 - nanos,
            }
        }
    }
}

/// Whether the error means that the file system does not support the operation, or that it is not
/// permitted.
pub(super) fn is_unsupported(e: Errno) -> bool {
    matches!(e, Errno::OPNOTSUPP | Errno::PERM | Errno::NOSYS)
}

/// Whether the error means that the file system has no flags, or not these.
pub(super) fn has_no_flags(e: Errno) -> bool {
    matches!(e, Errno::NOTTY | Errno::INVAL)
}

/// The kept flags of an open file; `None` where there are no flags.
pub(super) fn flags_of(file: &File) -> Result<Option<u32>, Errno> {
    match ioctl_getflags(file) {
        Ok(flags) => Ok(Some(flags.bits() & KEPT_FLAGS)),
        Err(e) if is_unsupported(e) || has_no_flags(e) => Ok(None),
        Err(e) => Err(e),
    }
}
