//! Mounting by the kernel, and questions about mounts.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::mount::{UnmountFlags, unmount};

use crate::cmd;
use crate::image::Image;
use crate::loopdev::{LoopDev, LoopOptions};
use crate::scratch::Scratch;
use crate::sys::{self, Shutdown};
use crate::tools;

/// All mount points of this process's name space that lie in `dir` (not `dir` itself), innermost
/// first.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mount_points()
        .into_iter()
        .filter(|m| m != dir && m.starts_with(dir))
        .collect();
    found.reverse();
    found
}

/// True if something is mounted exactly at `dir`.
pub fn is_mounted(dir: &Path) -> bool {
    mount_points().iter().any(|m| m == dir)
}

fn mount_points() -> Vec<PathBuf> {
    let Ok(info) = std::fs::read("/proc/self/mountinfo") else {
        return Vec::new();
    };
    info.split(|&b| b == b'\n')
        .filter_map(|line| line.split(|&b| b == b' ').nth(4))
        .map(|field| PathBuf::from(std::ffi::OsString::from_vec(unescape(field))))
        .collect()
}

/// Undoes the `\040` escapes of mountinfo.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail.get(..3).filter(|_| first == b'\\');
        let value = code.and_then(|c| u8::from_str_radix(std::str::from_utf8(c).ok()?, 8).ok());
        if let Some(byte) = value {
            out.push(byte);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

/// Unmounts `dir`, trying for up to `patience` while it is busy.
pub fn umount(dir: &Path, patience: Duration) -> Result<()> {
    let until = Instant::now() + patience;
    loop {
        match unmount(dir, UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(e).with_context(|| format!("umount {}", dir.display())),
        }
    }
}

/// Takes down everything mounted at `dir` by force (lazily); for cleaning up after a failure.
pub fn detach(dir: &Path) {
    while is_mounted(dir) {
        if unmount(dir, UnmountFlags::DETACH).is_err() {
            break;
        }
    }
}

/// [`detach`] for everything mounted below `dir`.
pub fn detach_below(dir: &Path) {
    for mount in mounts_below(dir) {
        detach(&mount);
    }
}

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

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes a file system of `size` bytes by `mkfs.FSTYPE ARGUMENTS` (Debian's FSTYPEprogs or
    /// FSTYPE-progs), and mounts it. The image that it is in goes when it is dropped.
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

    /// Unmounts, waiting a little while it is busy, and detaches the loop device.
    pub fn umount(mut self) -> Result<()> {
        umount(&self.dir, Duration::from_secs(10))?;
        self.mounted = false;
        Ok(())
    }

    /// Stops the mounted ext4 as a power cut would, then unmounts it: the image stays dirty. Before
    /// the unmount `release` must end whatever uses it.
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
