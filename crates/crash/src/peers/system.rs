//! The file systems under test: making their volumes, and recovering crashed ones.

use std::fmt;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result};
use stetfs::low::{MemDevice, Preset};
use stetfs_testkit::loopdev::{LoopDev, LoopOptions};
use stetfs_testkit::mount::KernelMount;
use stetfs_testkit::{Image, Mkfs, Scratch, cmd};

use super::posix;
use crate::judge;
use crate::setup::JournalSpec;
use crate::tree::Seen;
use crate::volume::fsck;

/// A file system under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// `stetfs:PRESET`.
    Stetfs(Preset),
    /// A file system of the kernel: `ext4:OPTIONS`, `xfs` or `btrfs`.
    Kernel {
        /// The type, as for mount(8).
        fstype: String,
        /// Mount options; may be empty.
        options: String,
    },
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            System::Stetfs(preset) => write!(f, "stetfs:{preset}"),
            System::Kernel { fstype, options } if options.is_empty() => f.write_str(fstype),
            System::Kernel { fstype, options } => write!(f, "{fstype}:{options}"),
        }
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<System, String> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "stetfs" => Ok(System::Stetfs(if options.is_empty() {
                Preset::default()
            } else {
                options.parse().map_err(|e| format!("{e}"))?
            })),
            "ext4" | "xfs" | "btrfs" => Ok(System::Kernel {
                fstype: name.into(),
                options: options.into(),
            }),
            _ => Err(format!(
                "there is no file system {name:?} here: \
                 give stetfs:PRESET, ext4[:OPTIONS], xfs or btrfs"
            )),
        }
    }
}

impl System {
    /// A fresh volume.
    pub(super) fn make(&self) -> Result<MemDevice> {
        let image = match self {
            System::Kernel { fstype, .. } if fstype != "ext4" => {
                let mib = if fstype == "xfs" { 300 } else { 128 };
                let image = Image::sparse(mib << 20)?;
                let mut mkfs = Command::new(format!("mkfs.{fstype}"));
                cmd::run(mkfs.args(["-q", "-f"]).arg(image.path()))
                    .with_context(|| format!("is {fstype}progs (or {fstype}-progs) installed?"))?;
                image
            }
            _ => Image::make(32 << 20, &Mkfs::blocks(4096).journal_mib(4))?,
        };
        Ok(MemDevice::load(image.path())?)
    }

    pub(super) fn is_ext4(&self) -> bool {
        matches!(self, System::Stetfs(_))
            || matches!(self, System::Kernel { fstype, .. } if fstype == "ext4")
    }

    /// Recovers a crashed volume. Gives its tree, and the volume afterwards.
    pub(super) fn recover(&self, crashed: &MemDevice) -> Result<(Seen, MemDevice), String> {
        match self {
            System::Stetfs(preset) => {
                let options = JournalSpec::of(*preset).options;
                let device = Arc::new(crashed.fork());
                let fs = crate::volume::open(&device, &options)
                    .map_err(|e| format!("cannot be opened: {e}"))?;
                let seen = Seen::capture(&fs)?;
                fs.unmount().map_err(|e| e.to_string())?;
                judge::gone(fs).map_err(|e| e.to_string())?;
                Ok((seen, device.fork()))
            }
            System::Kernel { fstype, options } => {
                let said = |e: anyhow::Error| format!("{e:#}");
                let scratch = Scratch::new("state").map_err(said)?;
                let path = scratch.path().join("image");
                crashed.save(&path).map_err(|e| e.to_string())?;
                let device = LoopDev::attach(&path, LoopOptions::default()).map_err(said)?;
                let mut options = options.clone();
                if fstype == "xfs" {
                    // Several images of one volume are mounted at once, with the same UUID.
                    options.push_str(if options.is_empty() {
                        "nouuid"
                    } else {
                        ",nouuid"
                    });
                }
                let mount = KernelMount::new(device, fstype, &options).map_err(|e| {
                    let why = fsck(crashed).err().filter(|_| fstype == "ext4");
                    let why = why.map_or(String::new(), |w| format!("; e2fsck: {w}"));
                    format!("cannot be mounted: {e:#}{why}")
                })?;
                let seen = posix::capture(mount.path());
                mount.umount().map_err(said)?;
                let after = MemDevice::load(&path).map_err(|e| e.to_string())?;
                Ok((seen?, after))
            }
        }
    }

    /// The number of states that may be recovered at once. btrfs identifies volumes by UUID and
    /// must not see two with the same one.
    pub(super) fn threads(&self) -> usize {
        match self {
            System::Kernel { fstype, .. } if fstype == "btrfs" => 1,
            _ => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
