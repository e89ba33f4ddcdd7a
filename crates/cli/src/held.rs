//! The volume of a mount, and servers that hold a volume without a visible mount.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use stetfs::low::{BlockError, NbdAddress, Part, Source};
use stetfs_fuse::mountinfo::{self, MountEntry};

/// Advice about process `pid`, which has the volume at `path` open, if it is a StetFS server
/// without a visible mount.
pub(crate) fn detached(path: &Path, pid: u32) -> Option<String> {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut args = command.split(|byte| *byte == 0).skip(1);
    if (args.next(), args.next()) != (Some(b"mount"), Some(b"--server")) {
        return None;
    }
    let volume = Volume::at(path)?;
    let mounts = mountinfo::mounts_of_process();
    let is_seen = mounts.iter().any(|mount| volume.is_of(mount));
    (!is_seen).then(|| {
        format!(
            "its server, process {pid}, has no mount that is visible here: it was detached (umount \
             -l), an overlay uses it, it is mounted in another mount namespace, or it is just \
             starting or ending\nend its users, or: kill -TERM {pid}, which ends it when they are \
             gone; a second one does not wait for them"
        )
    })
}

/// A file that may be a volume.
pub(crate) enum Volume {
    File(Metadata),
    Export(PathBuf),
}

impl Volume {
    pub(crate) fn at(place: &Path) -> Option<Volume> {
        if let Some(Ok(address)) = place.to_str().map(str::parse::<NbdAddress>) {
            return Some(Volume::Export(address.to_string().into()));
        }
        let there = std::fs::metadata(place).ok()?;
        let kind = there.file_type();
        (kind.is_file() || kind.is_block_device()).then_some(Volume::File(there))
    }

    /// Whether it is the volume of a StetFS mount, by the name given to mount or by the name shown:
    /// an image, or the loop device of one.
    pub(crate) fn is_of(&self, mount: &MountEntry) -> bool {
        mountinfo::is_stetfs(mount)
            && (self.is_at(&volume_of(mount).path) || self.is_at(Path::new(&mount.source)))
    }

    /// Advice about a StetFS server that has it open without a mount.
    pub(crate) fn user(&self, place: &Path) -> Option<String> {
        let Volume::File(_) = self else { return None };
        match &*stetfs::low::user_of(&Source::from(place)).ok()?? {
            BlockError::Locked { holder, .. } => detached(place, holder.as_ref()?.pid?),
            _ => None,
        }
    }

    /// Whether `path` names it.
    fn is_at(&self, path: &Path) -> bool {
        match self {
            Volume::Export(address) => address == path,
            Volume::File(m) => {
                std::fs::metadata(path).is_ok_and(|other| match m.file_type().is_block_device() {
                    true => other.file_type().is_block_device() && m.rdev() == other.rdev(),
                    false => (m.dev(), m.ino()) == (other.dev(), other.ino()),
                })
            }
        }
    }
}

/// The place of a mount's volume. For a loop device it is the image, because the device may go with
/// its mount.
pub(crate) fn volume_of(mount: &MountEntry) -> Source {
    let dir = PathBuf::from(format!("/sys/dev/block/{}/loop", mount.dev));
    let path = match std::fs::read(dir.join("backing_file")) {
        Ok(path) if mount.fstype.starts_with("fuseblk") => path,
        _ => return Source::from(&mount.source),
    };
    let number = |name| {
        let text = std::fs::read_to_string(dir.join(name)).ok()?;
        text.trim().parse().ok().filter(|n: &u64| *n > 0)
    };
    let part = match (number("offset"), number("sizelimit")) {
        (None, None) => Part::Whole,
        (offset, size) => Part::Range {
            offset: offset.unwrap_or(0),
            size,
        },
    };
    Source {
        part,
        ..Source::from(OsStr::from_bytes(path.trim_ascii_end()))
    }
}

/// The name of a mount's volume as its server uses it, whether the server is alive or not. For a
/// loop device that was made for the mount it is the image.
pub(crate) fn name_of(mount: &MountEntry) -> PathBuf {
    let autoclear = format!("/sys/dev/block/{}/loop/autoclear", mount.dev);
    match std::fs::read(autoclear) {
        Ok(said) if said.trim_ascii() == b"1" => volume_of(mount).path,
        _ => PathBuf::from(&mount.source),
    }
}
