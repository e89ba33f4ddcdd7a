//! What the mounter is told, and what it makes.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use stetfs::low::Span;

use crate::mounted::Mounted;
use crate::serve_options::ServeOptions;

/// What is to be mounted, as it is known before the volume is looked at.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where, as [`crate::check_dir`] gave it.
    pub dir: PathBuf,
    /// How.
    pub options: ServeOptions,
    /// The image file or block device; none where another machine has the volume.
    pub device: Option<PathBuf>,
}

/// The socket at which the server of a mount can be asked: bound, and nobody listens yet.
#[derive(Debug)]
pub struct Entrance {
    /// The socket.
    pub socket: OwnedFd,
    /// What it is known by to who removes it.
    pub name: String,
}

/// What depends on the volume. A server that was taken over meanwhile chooses among these, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    /// The kernel is shown the device, with blocks of so many bytes: then sync(2) arrives.
    pub(crate) shown: Option<u32>,
    /// The part of the device that the volume is.
    pub(crate) span: Option<Span>,
    /// The device is only read, and so the mount is read-only, whatever the plan says.
    pub(crate) read_only: bool,
}

/// A mount that was just made.
pub(crate) struct Stood {
    /// The connection.
    pub(crate) fuse: OwnedFd,
    /// The loop device, if one was made.
    pub(crate) loop_device: Option<PathBuf>,
    /// The mount, unless somebody took it down at once.
    pub(crate) mounted: Option<Mounted>,
    /// Why requests do not come by io_uring; they may where nothing is said.
    pub(crate) no_uring: Option<String>,
    /// Where the server can be asked.
    pub(crate) entrance: Option<Entrance>,
}
