//! Making and taking down the mount itself.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::awake::PATH as CPU_LATENCY;
use crate::fusermount;
use crate::mountinfo::{self, MountEntry};
use crate::uring_switch::PATH as IO_URING_SWITCH;

/// How a volume appears in the name space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What `mount` and `df` show as the source.
    pub source: PathBuf,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Users other than the one who mounts may use it; the default of a mount by root.
    pub allow_other: bool,
    /// The kernel judges who may do what, by owners and modes; else whoever may use the mount may
    /// do all.
    pub judged: bool,
    /// Set-user-id bits have no effect.
    pub nosuid: bool,
    /// Device nodes have no effect.
    pub nodev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// Every write is synced.
    pub sync: bool,
    /// Every change of names is synced.
    pub dirsync: bool,
    /// Shown, and kept by the volume: no access times at all.
    pub noatime: bool,
    /// Likewise for directories.
    pub nodiratime: bool,
    /// Likewise: access times at every read.
    pub strictatime: bool,
}

impl MountOptions {
    /// The defaults for `source`.
    pub fn new(source: impl Into<PathBuf>) -> MountOptions {
        MountOptions {
            source: source.into(),
            read_only: false,
            allow_other: is_root(),
            judged: true,
            nosuid: false,
            nodev: false,
            noexec: false,
            sync: false,
            dirsync: false,
            noatime: false,
            nodiratime: false,
            strictatime: false,
        }
    }

    pub(crate) fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, self.nosuid);
        flags.set(MountFlags::NODEV, self.nodev);
        flags.set(MountFlags::NOEXEC, self.noexec);
        flags.set(MountFlags::SYNCHRONOUS, self.sync);
        flags.set(MountFlags::DIRSYNC, self.dirsync);
        flags.set(MountFlags::NOATIME, self.noatime);
        flags.set(MountFlags::NODIRATIME, self.nodiratime);
        flags.set(MountFlags::STRICTATIME, self.strictatime);
        flags.set(MountFlags::RELATIME, !self.noatime && !self.strictatime);
        flags
    }
}

/// Why a volume could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE, or this container no access to it.
    #[error("cannot open /dev/fuse: {error}{hint}", error = .0, hint = fuse_hint(.0))]
    NoFuse(io::Error),
    /// Without root a helper is needed.
    #[error(
        "mounting without root needs fusermount3, which is not installed; install it (apt install fuse3) or run as root"
    )]
    NoFusermount,
    /// The directory holds a mount whose server is gone.
    #[error("{dir} is a mount whose server died; take it down first: stetfs umount {dir}", dir = .0.display())]
    DeadMount(PathBuf),
    /// The directory cannot be used.
    #[error("cannot mount on {}: {source}", dir.display())]
    Dir {
        /// The directory.
        dir: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// Mounting twice on one directory hides the first volume.
    #[error("{} has {} mounted already; unmount it first, or choose another directory", dir.display(), source_path.display())]
    Taken {
        /// The directory.
        dir: PathBuf,
        /// What is mounted there.
        source_path: PathBuf,
    },
    /// The mount was refused.
    #[error("cannot mount on {}: {source}{}", dir.display(), permission_hint(source))]
    Mount {
        /// The directory.
        dir: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// It stood, and somebody took it down before it could be served.
    #[error("unmounted at once")]
    Gone,
    /// Files on it are open.
    #[error("{dir} is busy: a program has a file open or its working directory there (fuser -vm {dir} lists them)", dir = .0.display())]
    Busy(PathBuf),
    /// Nothing of ours is mounted there.
    #[error("no StetFS volume is mounted on {}", .0.display())]
    NotMounted(PathBuf),
    /// The unmount was refused.
    #[error("cannot unmount {}: {source}", dir.display())]
    Unmount {
        /// The directory.
        dir: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The connection to the kernel failed.
    #[error("the connection to the kernel failed: {0}")]
    Session(io::Error),
    /// `-o io_uring=on`, and the kernel's switch cannot be turned on.
    #[error(
        "FUSE over io_uring cannot be turned on: {IO_URING_SWITCH}: {0}; it takes Linux 6.14 and root, or mount with io_uring=auto"
    )]
    IoUring(io::Error),
    /// `-o low_latency=on`, and there is nothing to keep processors awake with.
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

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `dir` as an absolute path, if a volume can be mounted on it.
///
/// # Errors
/// It is no directory, a dead mount, or has a volume of ours mounted already.
pub fn check_dir(dir: &Path) -> Result<PathBuf, MountError> {
    let fail = |source: io::Error| match source.raw_os_error() {
        Some(libc::ENOTCONN | libc::ECONNABORTED) => MountError::DeadMount(dir.to_owned()),
        _ => MountError::Dir {
            dir: dir.to_owned(),
            source,
        },
    };
    let full = dir.canonicalize().map_err(fail)?;
    if !full.metadata().map_err(fail)?.is_dir() {
        return Err(fail(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    match mountinfo::mount_at(&full).map_err(fail)? {
        Some(below) if mountinfo::is_stetfs(&below) => Err(MountError::Taken {
            dir: full,
            source_path: PathBuf::from(below.source),
        }),
        _ => Ok(full),
    }
}

/// Opens `/dev/fuse`, or says what is missing.
pub(crate) fn open_fuse() -> Result<OwnedFd, MountError> {
    File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map(OwnedFd::from)
        .map_err(MountError::NoFuse)
}

/// What the kernel is to mount.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// Nothing it knows (`fuse`).
    Nothing,
    /// A block device, with the block size it is given (`fuseblk`): then sync(2) reaches us, and
    /// umount(2) waits for us.
    Device(&'a Path, u32),
}

/// Mounts with mount(2) on the absolute path `dir`.
pub(crate) fn mount(
    fuse: &OwnedFd,
    what: What<'_>,
    dir: &Path,
    options: &MountOptions,
) -> Result<(), MountError> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        fuse.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if options.judged {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let (fstype, source) = match what {
        What::Nothing => ("fuse.stetfs", options.source.as_path()),
        What::Device(device, block_size) => {
            data.push_str(&format!(",blksize={block_size}"));
            ("fuseblk.stetfs", device)
        }
    };
    let fail = |source: io::Error| MountError::Mount {
        dir: dir.to_owned(),
        source,
    };
    let data = CString::new(data).map_err(|e| fail(e.into()))?;
    rustix::mount::mount(source, dir, fstype, options.flags(), data.as_c_str())
        .map_err(|e| fail(e.into()))
}

/// How to take a mount down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refuse while it is in use.
    Now,
    /// Out of the name space now; served until the last user is gone (MNT_DETACH).
    Lazy,
}

impl Unmount {
    pub(crate) fn flags(self) -> UnmountFlags {
        match self {
            Unmount::Now => UnmountFlags::NOFOLLOW,
            Unmount::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        }
    }
}

/// Takes down the mount at `dir`. Returns when the name is free again; the server may still be
/// bringing things home.
///
/// # Errors
/// [`MountError::Busy`], [`MountError::NoFusermount`] without root, or what the kernel says.
pub fn unmount(dir: &Path, how: Unmount) -> Result<(), MountError> {
    match rustix::mount::unmount(dir, how.flags()) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(MountError::Busy(dir.to_owned())),
        Err(rustix::io::Errno::PERM) if !is_root() => fusermount::unmount(dir, how),
        Err(e) => Err(MountError::Unmount {
            dir: dir.to_owned(),
            source: e.into(),
        }),
    }
}

/// Ends the connection of a mount that does not come down: requests fail with ENOTCONN and the
/// server goes on to close the volume. Root only.
pub(crate) fn abort_connection(entry: &MountEntry) -> io::Result<()> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let (major, minor) = entry.dev.split_once(':').ok_or_else(bad)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| bad());
    // The kernel's own packing of a device number.
    let connection = number(major)? << 20 | number(minor)?;
    let path = format!("/sys/fs/fuse/connections/{connection}/abort");
    match std::fs::write(path, "1") {
        // Not every system has it mounted.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
            let control = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
            rustix::mount::fsconfig_create(&control)?;
            let root = rustix::mount::fsmount(
                &control,
                FsMountFlags::FSMOUNT_CLOEXEC,
                MountAttrFlags::empty(),
            )?;
            let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
            let abort = format!("{connection}/abort");
            let file = rustix::fs::openat(root, abort, flags, rustix::fs::Mode::empty())?;
            rustix::io::write(file, b"1")?;
            Ok(())
        }
        other => other,
    }
}
