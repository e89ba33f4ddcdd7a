//! The C functions that read the attributes of files.

use std::ffi::c_int;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::answer::{done, given};
use crate::border::Text;
use crate::file::File;
use crate::volume::Volume;

/// A time, counted from 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub sec: i64,
    /// Nanoseconds, 0 to 999 999 999.
    pub nsec: u32,
    /// 0.
    pub reserved: u32,
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        let (sec, nsec) = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => (
                i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                after.subsec_nanos(),
            ),
            Err(e) => {
                let before = e.duration();
                let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => (-whole, 0),
                    nsec => (-whole - 1, 1_000_000_000 - nsec),
                }
            }
        };
        Time {
            sec,
            nsec,
            reserved: 0,
        }
    }
}

/// The attributes of a file (`struct stetfs_stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stat {
    /// Inode number.
    pub ino: u64,
    /// Size, bytes.
    pub size: u64,
    /// Allocated space, in units of 512 bytes.
    pub blocks: u64,
    /// Number of names.
    pub nlink: u64,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major number of a device file.
    pub major: u32,
    /// Minor number of a device file.
    pub minor: u32,
    /// 0.
    pub reserved: u32,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last change of any kind.
    pub ctime: Time,
    /// Time of creation.
    pub btime: Time,
}

impl From<&stetfs::Metadata> for Stat {
    fn from(m: &stetfs::Metadata) -> Stat {
        let (major, minor) = m.device();
        Stat {
            ino: m.ino(),
            size: m.len(),
            blocks: m.blocks(),
            nlink: m.nlink(),
            mode: m.mode(),
            uid: m.uid(),
            gid: m.gid(),
            major,
            minor,
            reserved: 0,
            atime: m.accessed().into(),
            mtime: m.modified().into(),
            ctime: m.changed().into(),
            btime: m.created().into(),
        }
    }
}

/// Passes the result of `look` at `path` to `stat`.
fn found(
    volume: Option<&Volume>,
    path: &Text,
    stat: Option<&mut Stat>,
    look: impl FnOnce(&stetfs::Volume, &Path) -> stetfs::Result<stetfs::Metadata>,
) -> c_int {
    done(|| {
        let volume = given(volume, "volume")?;
        let found = look(&volume.0, given(path.path(), "path")?)?;
        *given(stat, "stat")? = Stat::from(&found);
        Ok(())
    })
}

/// Attributes of the file at `path`; symbolic links are followed.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_stat(
    volume: Option<&Volume>,
    path: Text,
    stat: Option<&mut Stat>,
) -> c_int {
    found(volume, &path, stat, |volume, path| volume.metadata(path))
}

/// Attributes of the file at `path`; a symbolic link at the end is not followed.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_lstat(
    volume: Option<&Volume>,
    path: Text,
    stat: Option<&mut Stat>,
) -> c_int {
    found(volume, &path, stat, |volume, path| {
        volume.symlink_metadata(path)
    })
}

/// Attributes of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_file_stat(file: Option<&File>, stat: Option<&mut Stat>) -> c_int {
    done(|| {
        let found = given(file, "file")?.0.metadata()?;
        *given(stat, "stat")? = Stat::from(&found);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::volume::Space;

    /// The same values as in `tests/capi.c`, which checks the header.
    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(size_of::<Time>(), 16);
        assert_eq!(size_of::<Stat>(), 120);
        assert_eq!(size_of::<Space>(), 40);
    }

    #[test]
    fn times_before_1970_count_up_too() {
        let time = Time::from(UNIX_EPOCH - Duration::from_millis(1500));
        assert_eq!((time.sec, time.nsec), (-2, 500_000_000));
        let time = Time::from(UNIX_EPOCH + Duration::from_millis(1500));
        assert_eq!((time.sec, time.nsec), (1, 500_000_000));
    }
}
