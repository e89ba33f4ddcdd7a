//! One way to say "mount this image", whoever does it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::cmd;
use crate::loopdev::{LoopDev, LoopOptions};
use crate::mount::KernelMount;
use crate::stet::StetMount;
use crate::sys::Shutdown;

/// No test keeps a mount for longer.
const DEADLINE: Duration = Duration::from_secs(900);

/// What `stetfs mount` is given.
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

/// Mounts images, by the kernel or by StetFS.
#[derive(Clone, Debug)]
pub enum Mounter {
    /// The kernel, over a loop device.
    Kernel {
        /// e.g. `ext4`.
        fstype: String,
        /// `mount -o` options, may be empty.
        options: String,
        /// Direct I/O between the loop device and the image.
        direct_io: bool,
    },
    /// `stetfs mount`.
    Stetfs {
        /// The `stetfs` program.
        binary: PathBuf,
        /// `-o` options, may be empty.
        options: String,
        /// What it is given to mount.
        attach: Attach,
        /// The server is killed if a mount stands longer than this, so that one that hangs fails
        /// its test.
        deadline: Option<Duration>,
    },
}

impl Mounter {
    /// The kernel's ext4.
    pub fn ext4(options: &str) -> Self {
        Self::Kernel {
            fstype: "ext4".into(),
            options: options.into(),
            direct_io: false,
        }
    }

    /// `binary` on the image file itself, each mount for a quarter of an hour at most.
    pub fn stetfs(binary: impl Into<PathBuf>, options: &str) -> Self {
        Self::Stetfs {
            binary: binary.into(),
            options: options.into(),
            attach: Attach::File,
            deadline: Some(DEADLINE),
        }
    }

    /// The same on the image as `attach` says, not on the file itself. The kernel always has a loop
    /// device.
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

    /// Recovers a dirty image without leaving it mounted: the kernel by mounting and unmounting it,
    /// StetFS with `stetfs recover`.
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
    /// By the kernel.
    Kernel(KernelMount),
    /// By StetFS.
    Stetfs {
        /// The mount. Dropped before the device.
        mount: StetMount,
        /// The loop device below it, if one was asked for.
        device: Option<LoopDev>,
    },
}

impl Mounted {
    /// Where it is mounted.
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

    /// Unmounts; an error unless the volume was left clean as far as the unmounting tells.
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

    /// Stops it in the middle: the kernel's ext4 by its shutdown ioctl without a log flush, StetFS
    /// by killing the server with SIGKILL. The image stays dirty. Nothing may be in use on the
    /// kernel's mount.
    pub fn crash(self) -> Result<()> {
        self.crash_with(Shutdown::NoLogFlush, || {})
    }

    /// [`Mounted::crash`] under its users: `release` is called once nothing reaches the image any
    /// more, to end what still has files open there. `how` is for the kernel.
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
