//! A host file system for an image, which can share its blocks.

use std::path::PathBuf;

use anyhow::Result;
use stetfs_testkit::{Image, KernelMount, LoopDev, LoopOptions, Scratch};

use super::format::Format;

/// Bytes of XFS beside the image: its log, and blocks that are unshared.
const BESIDE: u64 = 512 << 20;
/// Size of its log, MiB.
const LOG_MIB: u32 = 64;

/// An XFS in a loop device over a written file, without the host's page cache: that device gets
/// exactly the writes and flushes that XFS makes for the image.
pub(super) struct XfsHost {
    mount: KernelMount,
    // Dropped after the mount.
    _disk: Image,
}

impl XfsHost {
    /// With space for an image of `bytes`, and a second copy of a quarter of its blocks.
    pub(super) fn new(bytes: u64) -> Result<Self> {
        let disk = Image::sparse(bytes + bytes / 4 + BESIDE)?;
        Format::Xfs.make(&disk, LOG_MIB, None)?;
        disk.fill()?;
        let direct = LoopOptions {
            direct_io: true,
            ..LoopOptions::default()
        };
        let device = LoopDev::attach(disk.path(), direct)?;
        Ok(Self {
            mount: KernelMount::new(device, "xfs", "")?,
            _disk: disk,
        })
    }

    /// Makes a sparse file on it.
    pub(super) fn image(&self, bytes: u64) -> Result<Image> {
        let path = self.mount.path().join("image");
        std::fs::File::create_new(&path)?.set_len(bytes)?;
        Ok(Image::at(path, Scratch::new("img")?))
    }

    /// The block device below it.
    pub(super) fn device(&self) -> PathBuf {
        self.mount.device().path().to_owned()
    }
}
