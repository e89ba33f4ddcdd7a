//! Reading and changing the attributes of files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::low::{Attr, FileType, SetAttr, TimeSet, Timestamp};
use crate::resolve::{self, Last};
use crate::volume::Volume;
use stetfs_ext4::Ctx;

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// The attributes of a file, as [`std::fs::Metadata`].
#[derive(Clone, Debug)]
pub struct Metadata(pub(crate) Attr);

impl Metadata {
    /// The type of the file.
    pub fn file_type(&self) -> FileType {
        self.0.kind
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.kind.is_dir()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.kind.is_file()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.kind.is_symlink()
    }

    /// Size, bytes.
    #[allow(clippy::len_without_is_empty)] // As in std.
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// The permissions.
    pub fn permissions(&self) -> std::fs::Permissions {
        std::fs::Permissions::from_mode(self.0.mode)
    }

    /// Type and permissions, as `st_mode`.
    pub fn mode(&self) -> u32 {
        self.0.mode
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Number of names.
    pub fn nlink(&self) -> u64 {
        u64::from(self.0.nlink)
    }

    /// Allocated space, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Inode number, the same for all names of a file.
    pub fn ino(&self) -> u64 {
        u64::from(self.0.ino)
    }

    /// Major and minor number of a device file; (0, 0) for other files.
    pub fn device(&self) -> (u32, u32) {
        let rdev = self.0.rdev;
        (rustix::fs::major(rdev), rustix::fs::minor(rdev))
    }

    /// Time of the last change of content.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// Time of the last read, as far as the volume records it.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// Time of the last change of any kind.
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.ctime)
    }

    /// Time of creation.
    pub fn created(&self) -> SystemTime {
        system_time(self.0.crtime)
    }
}

/// Changes of a file's attributes; attributes that are not set stay.
///
/// ```
/// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
/// # let volume = stetfs::Volume::open(image.path(), &stetfs::MountOptions::new())?;
/// use stetfs::SetMetadata;
///
/// volume.write("/key", "secret")?;
/// volume.set_metadata("/key", SetMetadata::new().mode(0o600).owner(1000).group(100))?;
/// let metadata = volume.metadata("/key")?;
/// assert_eq!((metadata.mode() & 0o777, metadata.uid(), metadata.gid()), (0o600, 1000, 100));
/// # Ok::<(), stetfs::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SetMetadata(pub(crate) SetAttr);

impl SetMetadata {
    /// No changes.
    pub fn new() -> SetMetadata {
        SetMetadata::default()
    }

    /// The permissions, 12 bits. A new owner clears set-user-id and set-group-id, unless the mode
    /// is set with it.
    pub fn mode(&mut self, mode: u32) -> &mut SetMetadata {
        self.0.mode = Some(mode & PERMISSIONS);
        self
    }

    /// Owner.
    pub fn owner(&mut self, uid: u32) -> &mut SetMetadata {
        self.0.uid = Some(uid);
        self
    }

    /// Group.
    pub fn group(&mut self, gid: u32) -> &mut SetMetadata {
        self.0.gid = Some(gid);
        self
    }

    /// Time of the last change of content.
    pub fn modified(&mut self, time: SystemTime) -> &mut SetMetadata {
        self.0.mtime = Some(TimeSet::At(timestamp(time)));
        self
    }

    /// Time of the last read.
    pub fn accessed(&mut self, time: SystemTime) -> &mut SetMetadata {
        self.0.atime = Some(TimeSet::At(timestamp(time)));
        self
    }
}

impl From<std::fs::Permissions> for SetMetadata {
    fn from(permissions: std::fs::Permissions) -> SetMetadata {
        SetMetadata::new().mode(permissions.mode()).clone()
    }
}

fn system_time(t: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(t.sec.unsigned_abs());
    let seconds = match t.sec < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    // The range of an inode's times is far inside that of SystemTime.
    seconds.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(u64::from(t.nsec))
}

fn timestamp(time: SystemTime) -> Timestamp {
    let seconds = |d: Duration| i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp {
            sec: seconds(after),
            nsec: after.subsec_nanos(),
        },
        Err(e) => {
            let before = e.duration();
            // Nanoseconds count forwards.
            match before.subsec_nanos() {
                0 => Timestamp {
                    sec: -seconds(before),
                    nsec: 0,
                },
                nsec => Timestamp {
                    sec: -seconds(before) - 1,
                    nsec: 1_000_000_000 - nsec,
                },
            }
        }
    }
}

impl Volume {
    /// The attributes of the file at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// It does not exist; too many symbolic links.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.look(path.as_ref(), Last::Follow)
    }

    /// As [`metadata`](Self::metadata), but a symbolic link at the end is not followed.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.look(path.as_ref(), Last::Keep)
    }

    fn look(&self, path: &Path, last: Last) -> Result<Metadata> {
        let found = resolve::find(self.start(), path, last);
        let attr = found.map(|found| found.attr.clone());
        attr.map(Metadata)
            .map_err(|e| Error::new("look at", path, e))
    }

    /// Whether the file at `path` exists; symbolic links are followed.
    ///
    /// # Errors
    /// The answer cannot be determined.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Changes owner, mode and times of the file at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// The file does not exist, or is immutable; the volume is read-only, or full.
    pub fn set_metadata(&self, path: impl AsRef<Path>, set: &SetMetadata) -> Result<()> {
        self.set(path.as_ref(), set, Last::Follow)
    }

    /// As [`set_metadata`](Self::set_metadata), but a symbolic link at the end is not followed.
    ///
    /// # Errors
    /// As [`set_metadata`](Self::set_metadata).
    pub fn set_symlink_metadata(&self, path: impl AsRef<Path>, set: &SetMetadata) -> Result<()> {
        self.set(path.as_ref(), set, Last::Keep)
    }

    fn set(&self, path: &Path, set: &SetMetadata, last: Last) -> Result<()> {
        let fs = self.shared.fs();
        let done = resolve::find(self.start(), path, last)
            .and_then(|found| fs.setattr(&Ctx::ROOT, found.ino(), &set.0));
        done.map(drop).map_err(|e| Error::new("change", path, e))
    }

    /// The inode flags (`FS_*_FL`) of the file at `path`, as lsattr(1) shows them.
    ///
    /// # Errors
    /// It does not exist.
    pub fn flags(&self, path: impl AsRef<Path>) -> Result<u32> {
        let (fs, path) = (self.shared.fs(), path.as_ref());
        let flags = resolve::find(self.start(), path, Last::Follow)
            .and_then(|found| fs.get_flags(found.ino()));
        flags.map_err(|e| Error::new("read the flags of", path, e))
    }

    /// Sets the inode flags of the file or directory at `path` to `flags`, as chattr(1) does. Flags
    /// that chattr cannot change stay.
    ///
    /// ```
    /// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
    /// # let volume = stetfs::Volume::open(image.path(), &stetfs::MountOptions::new())?;
    /// const IMMUTABLE: u32 = 0x10;
    /// volume.write("/ballot", "yes")?;
    /// let flags = volume.flags("/ballot")?;
    /// volume.set_flags("/ballot", flags | IMMUTABLE)?;
    /// assert!(volume.write("/ballot", "no").is_err());
    /// # Ok::<(), stetfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// The file does not exist; EOPNOTSUPP for flags that do not exist, or have no meaning for such
    /// a file; the volume is read-only, or full.
    pub fn set_flags(&self, path: impl AsRef<Path>, flags: u32) -> Result<()> {
        let (fs, path) = (self.shared.fs(), path.as_ref());
        let done = resolve::find(self.start(), path, Last::Follow)
            .and_then(|found| fs.set_flags(&Ctx::ROOT, found.ino(), flags));
        done.map_err(|e| Error::new("set the flags of", path, e))
    }

    /// Sets the permissions of the file at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// As [`set_metadata`](Self::set_metadata).
    pub fn set_permissions(
        &self,
        path: impl AsRef<Path>,
        permissions: std::fs::Permissions,
    ) -> Result<()> {
        self.set_metadata(path, &SetMetadata::from(permissions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_come_back() {
        for t in [
            (0, 0),
            (7, 5),
            (-7, 0),
            (-7, 5),
            (-0x8000_0000, 0),
            (0x3_7FFF_FFFF, 999_999_999),
        ] {
            let t = Timestamp {
                sec: t.0,
                nsec: t.1,
            };
            assert_eq!(timestamp(system_time(t)), t);
        }
        let before = UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!(
            timestamp(before),
            Timestamp {
                sec: -2,
                nsec: 500_000_000
            }
        );
    }
}
