//! The claim on a volume: locks that keep it from being opened twice.
//!
//! * Always: flock, and an open-file-description lock for programs that check only those. Both
//!   belong to the inode, so that hard links and other paths meet.
//! * A block device opened for writing: O_EXCL too, which keeps out the kernel's mounts, mke2fs and
//!   e2fsck.
//! * An image opened for writing: no loop device may have it. Opening a loop device also locks the
//!   image behind it.
//!
//! * A part of an image: a shared flock, so that others may have other parts, and the
//!   open-file-description lock on that part alone. The first opener of a part checks, with the
//!   locks on the whole, that nothing has the whole image. A shared lock on the first bytes stays,
//!   for programs that check for locks there.
//!
//! A read-only open takes shared locks.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::holders::{self, Wanted};
use super::sys;
use crate::{BlockError, Holder, Result, Span};

/// The locks, held as long as the device is open.
pub(super) struct Claim {
    /// The file as opened with O_EXCL.
    exclusive: Mutex<Option<Arc<File>>>,
    /// The locked image behind a loop device.
    backing: Option<File>,
}

/// udev locks a block device for the short time in which it probes it.
const UDEV_TRIES: u32 = 10;
const UDEV_WAIT: Duration = Duration::from_millis(20);

/// A killed process may leave resources in use for a moment: requests of its io_uring in flight, a
/// loop device that goes with its last mount.
const LEFT_TRIES: u32 = 25;
const LEFT_WAIT: Duration = Duration::from_millis(20);

impl Claim {
    /// Claims `file`, which is open at `path`, or a part of it.
    pub(super) fn take(
        path: &Path,
        file: &File,
        read_only: bool,
        part: Option<Span>,
    ) -> Result<Self> {
        for _ in 0..LEFT_TRIES {
            match Self::try_take(path, file, read_only, part) {
                Err(BlockError::Locked { holder: None, .. }) => std::thread::sleep(LEFT_WAIT),
                other => return other,
            }
        }
        Self::try_take(path, file, read_only, part).map_err(|e| match (e, file.metadata()) {
            (BlockError::Locked { path, holder: None }, Ok(meta)) => {
                let holder = if meta.file_type().is_block_device() {
                    holders::kept_by(&path, meta.rdev())
                } else {
                    holders::loop_device_of(&meta, part).map(|l| l.named_with_keeper())
                };
                BlockError::Locked {
                    path,
                    holder: holder.map(Holder::from),
                }
            }
            (e, _) => e,
        })
    }

    fn try_take(path: &Path, file: &File, read_only: bool, part: Option<Span>) -> Result<Self> {
        let meta = file.metadata().map_err(|e| BlockError::open(path, e))?;
        let block_device = meta.file_type().is_block_device();
        let mut exclusive = None;
        if block_device && !read_only {
            exclusive = Some(open_exclusive(path, file, &meta)?);
        }
        let mut backing = None;
        if block_device {
            flock(path, file, &meta, !read_only, UDEV_TRIES)?;
            backing = lock_backing(path, file, &meta, read_only)?;
        } else {
            match part {
                None => lock_image(path, file, &meta, !read_only)?,
                Some(part) => lock_part(path, file, &meta, !read_only, part)?,
            }
            if !read_only && let Some(found) = holders::loop_device_of(&meta, part) {
                // A loop device without a mount may be about to go.
                return Err(locked(
                    path,
                    found
                        .mounted
                        .as_ref()
                        .map(|m| format!("{found} ({m})").into()),
                ));
            }
        }
        Ok(Claim {
            exclusive: Mutex::new(exclusive.map(Arc::new)),
            backing,
        })
    }

    /// Releases the locks. Closing the file is not enough: it releases them only once every copy is
    /// closed, and a child process that was just forked holds a copy until it executes its program.
    pub(super) fn release(&self, file: &File) {
        let held = [Some(file), self.backing.as_ref()];
        for file in held.into_iter().flatten() {
            // Without locks on the host there is nothing to unlock, which is no error.
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            let _ = sys::ofd_unlock(file);
        }
    }

    /// See [`super::FileDevice::release_exclusive_claim`].
    pub(super) fn release_exclusive(&self) {
        *self.exclusive.lock() = None;
    }

    /// The block device as opened with O_EXCL, while it is claimed: only through this descriptor
    /// does the kernel drop dirty pages of its cache for a discard.
    pub(super) fn exclusive(&self) -> Option<Arc<File>> {
        self.exclusive.lock().clone()
    }
}

fn locked(path: &Path, holder: Option<Holder>) -> BlockError {
    BlockError::Locked {
        path: path.to_owned(),
        holder,
    }
}

/// Ignores the errors of file systems without locks, with a warning.
fn unsupported(path: &Path, e: Errno) -> Result<()> {
    if matches!(
        e,
        Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL
    ) {
        tracing::warn!(path = %path.display(), "the host's file system has no locks: {e}");
        return Ok(());
    }
    Err(BlockError::open(path, e))
}

/// Takes both locks on an image.
fn lock_image(path: &Path, file: &File, meta: &Metadata, exclusive: bool) -> Result<()> {
    flock(path, file, meta, exclusive, 0)?;
    ofd_lock(path, file, meta, exclusive, None).map(drop)
}

/// Takes the locks on a part of an image.
fn lock_part(path: &Path, file: &File, meta: &Metadata, exclusive: bool, part: Span) -> Result<()> {
    // The bytes on which some programs check for locks.
    const HEAD: Span = Span { start: 0, len: 512 };
    match flock(path, file, meta, exclusive, 0) {
        Ok(()) if !exclusive => {}
        // No other flock exists; if the next lock succeeds there is no holder at all.
        Ok(()) => {
            let alone = ofd_lock(path, file, meta, exclusive, None)?;
            if !alone {
                // Only flock works here, and it cannot lock parts.
                return Ok(());
            }
            let _ = sys::ofd_unlock(file);
        }
        // Another part may be in use.
        Err(BlockError::Locked { .. }) if exclusive => {}
        Err(e) => return Err(e),
    }
    flock(path, file, meta, false, 0)?;
    ofd_lock(path, file, meta, false, Some(HEAD))?;
    ofd_lock(path, file, meta, exclusive, Some(part)).map(drop)
}

/// Takes the open-file-description lock; returns whether the host has such locks.
pub(super) fn ofd_lock(
    path: &Path,
    file: &File,
    meta: &Metadata,
    exclusive: bool,
    part: Option<Span>,
) -> Result<bool> {
    match sys::try_ofd_lock(file, exclusive, part) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => {
            let holder = holders::lock_holder(file, meta, Wanted::Range(part));
            Err(locked(path, holder))
        }
        Err(e) => unsupported(path, e).map(|()| false),
    }
}

fn open_exclusive(path: &Path, file: &File, meta: &Metadata) -> Result<File> {
    let opened = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_EXCL)
        .open(path);
    opened.map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => locked(
            path,
            holders::mount_of(meta.rdev())
                .map(Holder::from)
                .or_else(|| holders::lock_holder(file, meta, Wanted::Any)),
        ),
        _ => BlockError::open(path, e),
    })
}

fn flock(path: &Path, file: &File, meta: &Metadata, exclusive: bool, tries: u32) -> Result<()> {
    let how = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    let mut tries = tries;
    loop {
        match rustix::fs::flock(file, how) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if tries > 0 => {
                tries -= 1;
                std::thread::sleep(UDEV_WAIT);
            }
            Err(Errno::WOULDBLOCK) => {
                let holder = holders::lock_holder(file, meta, Wanted::Flock);
                return Err(locked(path, holder));
            }
            Err(e) => return unsupported(path, e),
        }
    }
}

/// Locks the image behind `device`, if that is a loop device and its image is accessible.
fn lock_backing(
    path: &Path,
    device: &File,
    meta: &Metadata,
    read_only: bool,
) -> Result<Option<File>> {
    let Some(behind) = sys::loop_backing(device) else {
        return Ok(None);
    };
    let Some(image) = holders::backing_path(meta.rdev()) else {
        return Ok(None);
    };
    let Ok(file) = File::open(&image) else {
        return Ok(None);
    };
    let Ok(backing) = file.metadata() else {
        return Ok(None);
    };
    if (backing.dev(), backing.ino()) != behind.numbers {
        return Ok(None);
    }
    flock(path, &file, &backing, !read_only, 0)?;
    Ok(Some(file))
}
