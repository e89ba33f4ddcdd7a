//! A loop device over an image, to be shown to the kernel.
//!
//! Linux passes sync(2) and syncfs(2) on to a FUSE server, and lets umount(2) wait for it, only for
//! mounts of a block device (`fuseblk`). So an image gets a loop device: the kernel mounts that,
//! and nothing is read or written through it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use stetfs::low::Span;

use crate::mount::mountinfo::bytes;
use crate::system::sys;

/// `LO_FLAGS_READ_ONLY`.
const READ_ONLY: u32 = 1;
/// `LO_FLAGS_AUTOCLEAR`: detached with its last user.
const AUTOCLEAR: u32 = 4;

/// A loop device; it is detached when this is dropped and nothing is mounted from it.
pub(crate) struct LoopDevice {
    path: PathBuf,
    _device: File,
}

impl LoopDevice {
    /// Attaches an image, or a part of one or of a block device.
    pub(crate) fn attach(
        image: &Path,
        part: Option<Span>,
        read_only: bool,
    ) -> io::Result<LoopDevice> {
        const TRIES: usize = 16;
        let open = |path: &Path| File::options().read(true).write(!read_only).open(path);
        let file = open(image)?;
        let control = File::options()
            .read(true)
            .write(true)
            .open("/dev/loop-control")?;
        let flags = AUTOCLEAR | if read_only { READ_ONLY } else { 0 };
        for _ in 0..TRIES {
            let path = PathBuf::from(format!("/dev/loop{}", sys::loop_get_free(control.as_fd())?));
            let device = open(&path)?;
            match sys::loop_configure(device.as_fd(), file.as_fd(), bytes(image), part, flags) {
                Ok(()) => {
                    return Ok(LoopDevice {
                        path,
                        _device: device,
                    });
                }
                // Another process took it in between.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// `/dev/loopN`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Drops the kernel's cached content of the loop device at `path`: the image changes without the
/// device.
pub(crate) fn forget_content(path: &Path) -> io::Result<()> {
    let device = File::open(path)?;
    Ok(rustix::fs::fadvise(
        &device,
        0,
        None,
        rustix::fs::Advice::DontNeed,
    )?)
}
