//! The mounter's input and result.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use stetfs::low::Span;

use crate::mount::mounted::Mounted;
use crate::server::options::ServeOptions;

/// The part of a mount that is known before the volume is read.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The directory, as [`crate::check_dir`] returned it.
    pub dir: PathBuf,
    /// The options.
    pub options: ServeOptions,
    /// The image file or block device; `None` for a volume on another machine.
    pub device: Option<PathBuf>,
}

/// The socket for queries to the server of a mount: bound, but not listening yet.
#[derive(Debug)]
pub struct Entrance {
    /// The socket.
    pub socket: OwnedFd,
    /// The name by which it is removed.
    pub name: String,
}

/// The part of a mount that depends on the volume. A compromised server could choose among these
/// values, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    /// The block size in bytes if the kernel is to be shown the device: then sync(2) reaches the
    /// server.
    pub(crate) shown: Option<u32>,
    /// The part of the device that is the volume.
    pub(crate) span: Option<Span>,
    /// Whether the device is open read-only; the mount is then read-only, whatever the plan says.
    pub(crate) read_only: bool,
}

/// A mount that was just made.
pub(crate) struct Stood {
    /// The connection.
    pub(crate) fuse: OwnedFd,
    /// The loop device, if one was made.
    pub(crate) loop_device: Option<PathBuf>,
    /// The mount, unless it was unmounted at once.
    pub(crate) mounted: Option<Mounted>,
    /// The reason why requests do not come by io_uring; `None` if they may.
    pub(crate) no_uring: Option<String>,
    /// The socket for queries to the server.
    pub(crate) entrance: Option<Entrance>,
}
