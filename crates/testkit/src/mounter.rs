//! Mounters: one interface to mount an image by the kernel or by StetFS.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::cmd;
use crate::loopdev::{LoopDev, LoopOptions};
use crate::mount::KernelMount;
use crate::stet::StetMount;
use crate::sys::Shutdown;

/// Most time that a test may keep a mount.
const DEADLINE: Duration = Duration::from_secs(900);

/// The form of the volume that `stetfs mount` gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// The image file.
    File,
    /// A loop device over the image file.
    Loop {
        /// Direct I/O between the loop device and the image.
        direct_io: bool,
    },
}

/// A mounter: the kernel or StetFS.
#[derive(Clone, Debug)]
pub enum Mounter {
    /// The kernel, over a loop device.
    Kernel {
        /// The file-system type, e.g. `ext4`.
        fstype: String,
        /// Options for `mount -o`; may be empty.
        options: String,
        /// Direct I/O between the loop device and the image.
        direct_io: bool,
    },
    /// `stetfs mount`.
    Stetfs {
        /// The `stetfs` program.
        binary: PathBuf,
        /// Options for `-o`; may be empty.
        options: String,
        /// The form of the volume.
        attach: Attach,
        /// Most time that a mount may exist; then the server is killed, so that a hanging server
        /// fails its test.
        deadline: Option<Duration>,
    },
}

impl Mounter {
    /// A mounter that uses the kernel's ext4.
    pub fn ext4(options: &str) -> Self {
        Self::Kernel {
            fstype: "ext4".into(),
            options: options.into(),
            direct_io: false,
        }
    }

    /// A mounter that runs `binary` on the image file itself; a mount may exist for a quarter of an
    /// hour.
    pub fn stetfs(binary: impl Into<PathBuf>, options: &str) -> Self {
        Self::Stetfs {
            binary: binary.into(),
            options: options.into(),
            attach: Attach::File,
            deadline: Some(DEADLINE),
        }
    }

    /// The same mounter with the image in the form `to`. The kernel always has a loop device.
    #[must_use]
    pub fn attached(mut self, to: Attach) -> Self {
        if let Self::Stetfs { attach, .. } = &mut self {
            *attach = to;
        }
        self
    }

    /// A short name for messages.
    pub fn name(&self) -> String {
        let (base, options) = match self {
            Self::Kernel {
                fstype, options, ..
            } => (format!("kernel {fstype}"), options),
            Self::Stetfs { options, .. } => ("stetfs".to_owned(), options),
        };
        if options.is_empty() {
            base
        } else {
            format!("{base} {options}")
        }
    }

    /// Mounts the image.
    pub fn mount(&self, image: &Path) -> Result<Mounted> {
        match self {
            Self::Kernel {
                fstype,
                options,
                direct_io,
            } => {
                let read_only = options.split(',').any(|o| o == "ro" || o == "noload");
                let device = LoopDev::attach(
                    image,
                    LoopOptions {
                        direct_io: *direct_io,
                        read_only,
                        block_size: 0,
                    },
                )?;
                Ok(Mounted::Kernel(KernelMount::new(device, fstype, options)?))
            }
            Self::Stetfs {
                binary,
                options,
                attach,
                deadline,
            } => {
                let device = match attach {
                    Attach::File => None,
                    Attach::Loop { direct_io } => Some(LoopDev::attach(
                        image,
                        LoopOptions {
                            direct_io: *direct_io,
                            ..Default::default()
                        },
                    )?),
                };
                let volume = device.as_ref().map_or(image, LoopDev::path);
                let mount = StetMount::new(binary, volume, options, *deadline)?;
                Ok(Mounted::Stetfs { mount, device })
            }
        }
    }

    /// Recovers a dirty image and leaves it unmounted: the kernel by a mount and an unmount, StetFS
    /// by `stetfs recover`.
    pub fn recover(&self, image: &Path) -> Result<()> {
        match self {
            Self::Kernel { .. } => self.mount(image)?.umount(),
            Self::Stetfs { binary, .. } => {
                cmd::run(Command::new(binary).arg("recover").arg(image)).map(drop)
            }
        }
    }
}

/// A mounted image; taken down when dropped.
#[derive(Debug)]
pub enum Mounted {
    /// A mount by the kernel.
    Kernel(KernelMount),
    /// A mount by StetFS.
    Stetfs {
        /// The mount, which is dropped before the device.
        mount: StetMount,
        /// The loop device below it, if one was asked for.
        device: Option<LoopDev>,
    },
}

impl Mounted {
    /// The mount point.
    pub fn path(&self) -> &Path {
        match self {
            Self::Kernel(m) => m.path(),
            Self::Stetfs { mount, .. } => mount.path(),
        }
    }

    /// The block device below it, if there is one.
    pub fn device(&self) -> Option<&Path> {
        match self {
            Self::Kernel(m) => Some(m.device().path()),
            Self::Stetfs { device, .. } => device.as_ref().map(LoopDev::path),
        }
    }

    /// Unmounts. An error if the unmount reports a failure.
    pub fn umount(self) -> Result<()> {
        match self {
            Self::Kernel(m) => m.umount(),
            Self::Stetfs { mount, device } => {
                mount.umount()?;
                drop(device);
                Ok(())
            }
        }
    }

    /// Stops the file system at once: the kernel's ext4 by its shutdown ioctl without a log flush,
    /// StetFS by SIGKILL to the server. The image stays dirty. The kernel's mount must not be in
    /// use.
    pub fn crash(self) -> Result<()> {
        self.crash_with(Shutdown::NoLogFlush, || {})
    }

    /// Does the same as [`Mounted::crash`] while the mount is in use. `release` is called when no
    /// more writes reach the image; it must end all users of the mount. `how` is for the kernel.
    pub fn crash_with(self, how: Shutdown, release: impl FnOnce()) -> Result<()> {
        match self {
            Self::Kernel(m) => m.crash(how, release),
            Self::Stetfs { mount, device } => {
                mount.kill9()?;
                release();
                drop(device);
                Ok(())
            }
        }
    }
}
