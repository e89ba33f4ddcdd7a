//! What keeps a volume from being opened twice.
//!
//! * Everywhere: flock, and an open-file-description lock for programs that look only at those. Both
//!   belong to the inode, so that hard links and other paths meet.
//! * A block device opened for writing: O_EXCL too, which keeps out the kernel's mount, mke2fs and e2fsck.
//! * An image opened for writing: no loop device may have it; and whoever opens a loop device locks
//!   the image behind it as well.
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

use super::{holders, sys};
use crate::{BlockError, Result};

/// Held as long as the device is open.
pub(super) struct Claim {
    /// Open with O_EXCL.
    exclusive: Mutex<Option<Arc<File>>>,
    /// The locked image behind a loop device.
    backing: Option<File>,
}

/// udev locks a block device while it looks at it; that passes.
const UDEV_TRIES: u32 = 10;
const UDEV_WAIT: Duration = Duration::from_millis(20);

/// A process that was killed may leave for a moment what nobody holds any more: requests of its
/// io_uring on their way, a loop device that goes with its last mount.
const LEFT_TRIES: u32 = 25;
const LEFT_WAIT: Duration = Duration::from_millis(20);

impl Claim {
    /// Claims `file`, which is open at `path`.
    pub(super) fn take(path: &Path, file: &File, read_only: bool) -> Result<Self> {
        for _ in 0..LEFT_TRIES {
            match Self::try_take(path, file, read_only) {
                Err(BlockError::Locked { holder: None, .. }) => std::thread::sleep(LEFT_WAIT),
                other => return other,
            }
        }
        Self::try_take(path, file, read_only).map_err(|e| match (e, file.metadata()) {
            (BlockError::Locked { path, holder: None }, Ok(meta)) => {
                let holder = if meta.file_type().is_block_device() {
                    holders::kept_by(&path, meta.rdev())
                } else {
                    holders::loop_device_of(&meta).map(|l| l.named_with_keeper())
                };
                BlockError::Locked { path, holder }
            }
            (e, _) => e,
        })
    }

    fn try_take(path: &Path, file: &File, read_only: bool) -> Result<Self> {
        let meta = file.metadata().map_err(|e| BlockError::open(path, e))?;
        let block_device = meta.file_type().is_block_device();
        let mut exclusive = None;
        if block_device && !read_only {
            exclusive = Some(open_exclusive(path, &meta)?);
        }
        flock(
            path,
            file,
            &meta,
            !read_only,
            if block_device { UDEV_TRIES } else { 0 },
        )?;
        let mut backing = None;
        if block_device {
            backing = lock_backing(path, file, &meta, read_only)?;
        } else {
            match sys::try_ofd_lock(file, !read_only) {
                Ok(()) => {}
                Err(Errno::AGAIN | Errno::ACCESS) => {
                    return Err(locked(path, holders::lock_holder(&meta)));
                }
                Err(e) => unsupported(path, e)?,
            }
            if !read_only && let Some(found) = holders::loop_device_of(&meta) {
                // One that nobody has mounted may be about to go.
                return Err(locked(
                    path,
                    found.mounted.as_ref().map(|m| format!("{found} ({m})")),
                ));
            }
        }
        Ok(Claim {
            exclusive: Mutex::new(exclusive.map(Arc::new)),
            backing,
        })
    }

    /// Gives the locks up. Closing the file would do that only once every copy of it is closed, and
    /// a child that somebody forked just now holds one until it executes its program.
    pub(super) fn release(&self, file: &File) {
        let held = [Some(file), self.backing.as_ref()];
        for file in held.into_iter().flatten() {
            // What was never locked, for want of locks on the host, needs no unlocking.
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            let _ = sys::ofd_unlock(file);
        }
    }

    /// See [`super::FileDevice::release_exclusive_claim`].
    pub(super) fn release_exclusive(&self) {
        *self.exclusive.lock() = None;
    }

    /// The block device as opened with O_EXCL, while it is claimed: only through this one does the
    /// kernel drop dirty pages of its cache for a discard.
    pub(super) fn exclusive(&self) -> Option<Arc<File>> {
        self.exclusive.lock().clone()
    }
}

fn locked(path: &Path, holder: Option<String>) -> BlockError {
    BlockError::Locked {
        path: path.to_owned(),
        holder,
    }
}

/// Passes the errors of file systems that have no locks, with a warning.
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

fn open_exclusive(path: &Path, meta: &Metadata) -> Result<File> {
    let opened = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_EXCL)
        .open(path);
    opened.map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => locked(
            path,
            holders::mount_of(meta.rdev()).or_else(|| holders::lock_holder(meta)),
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
            Err(Errno::WOULDBLOCK) => return Err(locked(path, holders::lock_holder(meta))),
            Err(e) => return unsupported(path, e),
        }
    }
}

/// If `device` is a loop device, locks the image behind it, where that can be reached.
fn lock_backing(
    path: &Path,
    device: &File,
    meta: &Metadata,
    read_only: bool,
) -> Result<Option<File>> {
    let Some(numbers) = sys::loop_backing(device) else {
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
    if (backing.dev(), backing.ino()) != numbers {
        return Ok(None);
    }
    flock(path, &file, &backing, !read_only, 0)?;
    Ok(Some(file))
}
