//! Loop devices, which are detached when dropped.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{FileType, Mode, makedev, mknodat};

use crate::sys;

/// The major number of loop devices.
const LOOP_MAJOR: u32 = 7;

/// Options for attaching a loop device.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopOptions {
    /// Bypass the page cache of the file system that holds the image.
    pub direct_io: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Logical block size in bytes; 0 is the kernel's default (512).
    pub block_size: u32,
}

/// A file attached to a loop device; detached when dropped. If the process dies, the kernel
/// detaches it as soon as it is not mounted.
#[derive(Debug)]
pub struct LoopDev {
    /// The open device; `None` once it is detached.
    dev: Option<File>,
    path: PathBuf,
}

/// Most time that others may hold the device after its detachment: a server that just started has
/// copies of all mounts for a moment.
const HELD: Duration = Duration::from_secs(5);

impl LoopDev {
    /// Attaches `file` to a free loop device.
    pub fn attach(file: &Path, options: LoopOptions) -> Result<Self> {
        let backing = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .open(file)
            .with_context(|| format!("open {}", file.display()))?;
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")
            .context("/dev/loop-control")?;
        let mut flags = sys::LO_AUTOCLEAR;
        if options.direct_io {
            flags |= sys::LO_DIRECT_IO;
        }
        if options.read_only {
            flags |= sys::LO_READ_ONLY;
        }
        // Another process can take the device between the two calls; then the next free one is
        // tried.
        for _ in 0..64 {
            let number = sys::loop_get_free(control.as_fd()).context("LOOP_CTL_GET_FREE")?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let dev = open_node(&path, number, !options.read_only)?;
            match sys::loop_configure(dev.as_fd(), backing.as_fd(), options.block_size, flags) {
                Ok(()) => {
                    let dev = Some(dev);
                    return Ok(Self { dev, path });
                }
                Err(e) if e.kind() == ErrorKind::ResourceBusy => {}
                Err(e) => {
                    return Err(e).with_context(|| {
                        format!("LOOP_CONFIGURE {} {}", path.display(), file.display())
                    });
                }
            }
        }
        bail!("no loop device became free for {}", file.display())
    }

    /// The device node, e.g. `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens the node; makes it first if `/dev` lacks it.
fn open_node(path: &Path, number: u32, write: bool) -> Result<File> {
    let open = || OpenOptions::new().read(true).write(write).open(path);
    match open() {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let mode = Mode::from_raw_mode(0o660);
            match mknodat(
                rustix::fs::CWD,
                path,
                FileType::BlockDevice,
                mode,
                makedev(LOOP_MAJOR, number),
            ) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(e).with_context(|| format!("mknod {}", path.display())),
            }
            open()
        }
        other => other,
    }
    .with_context(|| format!("open {}", path.display()))
}

impl LoopDev {
    /// The backing file, as the kernel reports it.
    fn backing(&self) -> Option<Vec<u8>> {
        let name = self.path.file_name()?;
        std::fs::read(Path::new("/sys/block").join(name).join("loop/backing_file")).ok()
    }
}

impl Drop for LoopDev {
    /// Returns when all data is in the file, unless others hold the device for long.
    fn drop(&mut self) {
        let Some(dev) = self.dev.take() else {
            return;
        };
        let file = self.backing();
        // Fails only if it is detached already; a user that still has it open delays it
        // (autoclear).
        let _ = sys::loop_clear(dev.as_fd());
        drop(dev);
        let until = Instant::now() + HELD;
        while file.is_some() && self.backing() == file && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::{Image, KernelMount, Mkfs};

    /// Simulates a server just after it has moved to a mount namespace of its own.
    #[test]
    fn copies_of_a_mount_are_waited_for() {
        let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
        let device = LoopDev::attach(image.path(), LoopOptions::default()).unwrap();
        let mount = KernelMount::new(device, "ext4", "").unwrap();
        let path = mount.device().path().to_owned();
        let mut holder = Command::new("unshare");
        holder.args(["-m", "sh", "-c", "echo; sleep 0.5"]);
        let mut holder = holder.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0];
        let said = holder.stdout.as_mut().unwrap().read_exact(&mut line);
        said.unwrap();
        let at = Path::new("/sys/block").join(path.file_name().unwrap());
        let backing = || std::fs::read(at.join("loop/backing_file")).ok();
        let before = backing();
        assert!(before.is_some());
        mount.umount().unwrap();
        assert_ne!(backing(), before);
        holder.wait().unwrap();
    }
}
