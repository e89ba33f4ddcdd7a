//! Errors of mounting and unmounting.

use std::io;
use std::path::PathBuf;

use crate::mount::uring_switch::PATH as IO_URING_SWITCH;
use crate::transport::awake::PATH as CPU_LATENCY;

/// The error of mounting or unmounting a volume.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE, or this container has no access to it.
    #[error("cannot open /dev/fuse: {error}{hint}", error = .0, hint = fuse_hint(.0))]
    NoFuse(io::Error),
    /// Mounting without root needs fusermount3, which is missing.
    #[error(
        "mounting without root needs fusermount3, which is not installed; install it (apt install fuse3) or run as root"
    )]
    NoFusermount,
    /// The directory has a mount whose server is gone.
    #[error("{dir} is a mount whose server died; take it down first: stetfs umount {dir}", dir = .0.display())]
    DeadMount(PathBuf),
    /// The directory cannot be used.
    #[error("cannot mount on {}: {source}", dir.display())]
    Dir {
        /// The directory.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The directory has a volume mounted already; a second mount would hide it.
    #[error("{} has {} mounted already; unmount it first, or choose another directory", dir.display(), source_path.display())]
    Taken {
        /// The directory.
        dir: PathBuf,
        /// The volume mounted there.
        source_path: PathBuf,
    },
    /// The mount was refused.
    #[error("cannot mount on {}: {source}{}", dir.display(), permission_hint(source))]
    Mount {
        /// The directory.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// It was unmounted before it could be served.
    #[error("it was unmounted before it could be served")]
    Gone,
    /// Files on it are open.
    #[error("{dir} is busy: a program has a file open or its working directory there (fuser -vm {dir} lists them)", dir = .0.display())]
    Busy(PathBuf),
    /// No StetFS volume is mounted there.
    #[error("no StetFS volume is mounted on {}", .0.display())]
    NotMounted(PathBuf),
    /// The unmount was refused.
    #[error("cannot unmount {}: {source}", dir.display())]
    Unmount {
        /// The directory.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The connection to the kernel failed.
    #[error("the connection to the kernel failed: {0}")]
    Session(io::Error),
    /// `-o io_uring=on`, but the kernel's switch cannot be turned on.
    #[error(
        "FUSE over io_uring cannot be turned on: {IO_URING_SWITCH}: {0}; it takes Linux 6.14 and root, or mount with io_uring=auto"
    )]
    IoUring(io::Error),
    /// `-o low_latency=on`, but there is no means to keep processors awake.
    #[error(
        "processors cannot be kept awake: {CPU_LATENCY}: {0}; it takes root, and in a container the device (--device {CPU_LATENCY}), or mount with low_latency=auto"
    )]
    LowLatency(io::Error),
}

fn fuse_hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run as root, or let users have it: chmod a+rw /dev/fuse"
        }
        _ => {
            "; load the module (modprobe fuse), or give the container the device (--device /dev/fuse --cap-add SYS_ADMIN)"
        }
    }
}

fn permission_hint(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; run as root, or give the container CAP_SYS_ADMIN",
        _ => "",
    }
}
