//! A file system that holds an image, and can share blocks of it.

use std::path::PathBuf;

use anyhow::Result;
use stetfs_testkit::{Image, KernelMount, LoopDev, LoopOptions, Scratch};

use super::format::Format;

/// XFS has at least so much beside the image: its log, and what is given new blocks.
const BESIDE: u64 = 512 << 20;
/// MiB of its log.
const LOG_MIB: u32 = 64;

/// An XFS of its own in a loop device over a written file, without the host's page cache between:
/// what it writes and flushes for the image is what that device gets.
pub(super) struct XfsHost {
    mount: KernelMount,
    // Dropped after the mount.
    _disk: Image,
}

impl XfsHost {
    /// With room for an image of `bytes`, the blocks of a quarter of it twice.
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

    /// A sparse file on it.
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
