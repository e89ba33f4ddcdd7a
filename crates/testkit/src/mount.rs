//! Mounts by the kernel.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cmd;
use crate::image::Image;
use crate::loopdev::{LoopDev, LoopOptions};
pub use crate::mounts::{TakenDown, detach, detach_below, is_mounted, mounts_below, umount};
use crate::scratch::Scratch;
use crate::sys::{self, Shutdown};
use crate::tools;

/// A file system mounted by the kernel over a loop device; unmounted when dropped.
#[derive(Debug)]
pub struct KernelMount {
    dir: PathBuf,
    mounted: bool,
    device: LoopDev,
    _scratch: Scratch,
}

impl KernelMount {
    /// Mounts `device` as `fstype` with the `mount -o` options given (may be empty).
    pub fn new(device: LoopDev, fstype: &str, options: &str) -> Result<Self> {
        let scratch = Scratch::new("mnt")?;
        let dir = scratch.path().join("fs");
        std::fs::create_dir(&dir)?;
        let mut command = Command::new("mount");
        command.arg("-i").args(["-t", fstype]);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        cmd::run(command.arg(device.path()).arg(&dir))?;
        Ok(Self {
            dir,
            mounted: true,
            device,
            _scratch: scratch,
        })
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes a file system of `size` bytes by `mkfs.FSTYPE ARGUMENTS` (Debian's FSTYPEprogs or
    /// FSTYPE-progs), and mounts it. Its image is removed when the image value is dropped.
    pub fn made(fstype: &str, arguments: &[&str], size: u64) -> Result<(Image, Self)> {
        let image = Image::sparse(size)?;
        let package = match fstype {
            "xfs" => "xfsprogs".to_owned(),
            other => format!("{other}-progs"),
        };
        let program = tools::system_tool(&format!("mkfs.{fstype}"), &package)?;
        cmd::run(Command::new(program).args(arguments).arg(image.path()))?;
        let device = LoopDev::attach(image.path(), LoopOptions::default())?;
        Ok((image, Self::new(device, fstype, "")?))
    }

    /// The loop device below it.
    pub fn device(&self) -> &LoopDev {
        &self.device
    }

    /// Unmounts, retrying for a while if it is busy, and detaches the loop device.
    pub fn umount(mut self) -> Result<()> {
        umount(&self.dir, Duration::from_secs(10))?;
        self.mounted = false;
        Ok(())
    }

    /// Stops the mounted ext4 as a power cut would, then unmounts it; the image stays dirty.
    /// `release` must end all users of the mount before the unmount.
    pub fn crash(self, how: Shutdown, release: impl FnOnce()) -> Result<()> {
        {
            let root = File::open(&self.dir)?;
            sys::ext4_shutdown(root.as_fd(), how).context("EXT4_IOC_SHUTDOWN")?;
        }
        release();
        self.umount()
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.mounted && umount(&self.dir, Duration::from_secs(2)).is_err() {
            detach(&self.dir);
        }
    }
}
