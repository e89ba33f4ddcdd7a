//! Between the file system's values and fuser's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, INodeNo, TimeOrNow};
use stetfs::{Attr, FileType, Ino, ROOT_INO, TimeSet, Timestamp};

/// FUSE calls the root 1; ext4 calls it 2 and uses 1 for bad blocks, which no name leads to.
pub(crate) fn ino_of(node: INodeNo) -> Option<Ino> {
    match node.0 {
        1 => Some(ROOT_INO),
        n => Ino::try_from(n).ok().filter(|ino| *ino > ROOT_INO),
    }
}

/// The node number of `ino`.
pub(crate) fn node_of(ino: Ino) -> INodeNo {
    INodeNo(if ino == ROOT_INO { 1 } else { u64::from(ino) })
}

/// A point in time for the kernel.
pub(crate) fn system_time(t: Timestamp) -> SystemTime {
    // Timestamps hold 34 bits of seconds: no overflow.
    let nanos = Duration::from_nanos(u64::from(t.nsec));
    match u64::try_from(t.sec) {
        Ok(sec) => UNIX_EPOCH + Duration::from_secs(sec) + nanos,
        Err(_) => UNIX_EPOCH - Duration::from_secs(t.sec.unsigned_abs()) + nanos,
    }
}

/// A point in time as fuser 0.18 hands it over.
///
/// Before 1970 it subtracts the nanoseconds where it should add them (`system_time_from_time`);
/// that can be undone, because whole seconds and nanoseconds are still apart in the difference.
pub(crate) fn timestamp(t: SystemTime) -> Timestamp {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => Timestamp {
            sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            nsec: d.subsec_nanos(),
        },
        Err(before) => {
            let d = before.duration();
            Timestamp {
                sec: 0i64.checked_sub_unsigned(d.as_secs()).unwrap_or(i64::MIN),
                nsec: d.subsec_nanos(),
            }
        }
    }
}

/// A time to set.
pub(crate) fn time_set(t: TimeOrNow) -> TimeSet {
    match t {
        TimeOrNow::Now => TimeSet::Now,
        TimeOrNow::SpecificTime(t) => TimeSet::At(timestamp(t)),
    }
}

pub(crate) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
    }
}

/// Attributes; `ino` is what stat(2) shows.
pub(crate) fn attr(a: &Attr, ino: INodeNo) -> FileAttr {
    FileAttr {
        ino,
        size: a.size,
        blocks: a.blocks,
        atime: system_time(a.atime),
        mtime: system_time(a.mtime),
        ctime: system_time(a.ctime),
        crtime: system_time(a.crtime),
        kind: kind(a.kind),
        perm: (a.mode & 0o7777) as u16,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        // The low 32 bits of makedev's packing are what the kernel sends and takes.
        rdev: a.rdev as u32,
        blksize: a.blksize,
        flags: 0,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What fuser 0.18 makes of the kernel's seconds and nanoseconds.
    fn as_fuser(sec: i64, nsec: u32) -> SystemTime {
        if sec >= 0 {
            UNIX_EPOCH + Duration::new(sec as u64, nsec)
        } else {
            UNIX_EPOCH - Duration::new(sec.unsigned_abs(), nsec)
        }
    }

    #[test]
    fn times_before_and_after_1970_survive_both_ways() {
        for (sec, nsec) in [
            (0, 0),
            (1, 999_999_999),
            (-1, 0),
            (-2, 800_000_000),
            (-1, 1),
            (1 << 33, 7),
        ] {
            assert_eq!(timestamp(as_fuser(sec, nsec)), Timestamp { sec, nsec });
            // fuser splits a reply's time with the seconds rounded down, as the kernel wants it.
            let shown = system_time(Timestamp { sec, nsec });
            let (s, n) = match shown.duration_since(UNIX_EPOCH) {
                Ok(d) => (d.as_secs() as i64, d.subsec_nanos()),
                Err(e) if e.duration().subsec_nanos() == 0 => (-(e.duration().as_secs() as i64), 0),
                Err(e) => (
                    -(e.duration().as_secs() as i64) - 1,
                    1_000_000_000 - e.duration().subsec_nanos(),
                ),
            };
            assert_eq!((s, n), (sec, nsec));
        }
    }

    #[test]
    fn the_root_has_two_names_and_reserved_inodes_none() {
        assert_eq!(ino_of(INodeNo(1)), Some(ROOT_INO));
        assert_eq!(node_of(ROOT_INO), INodeNo(1));
        assert_eq!(ino_of(INodeNo(2)), None);
        assert_eq!(ino_of(INodeNo(0)), None);
        assert_eq!(ino_of(INodeNo(11)), Some(11));
        assert_eq!(ino_of(INodeNo(1 << 40)), None);
    }
}
