//! Images formatted by this crate.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use stetfs_block::{BlockDevice, Direct, FileDevice, OpenOptions};
use stetfs_format::{Before, FormatOptions, Plan, Space, Summary};
use stetfs_testkit::{Image, cmd};

pub(crate) const K: u64 = 1 << 10;
pub(crate) const M: u64 = 1 << 20;
pub(crate) const G: u64 = 1 << 30;
pub(crate) const T: u64 = 1 << 40;

/// Options with these features (`-O`).
pub(crate) fn with(features: &str) -> FormatOptions {
    FormatOptions {
        features: features.parse().unwrap(),
        ..FormatOptions::default()
    }
}

/// Opens an image for formatting.
pub(crate) fn open(path: &Path) -> Result<FileDevice> {
    let how = OpenOptions {
        direct: Direct::Off,
        ..OpenOptions::default()
    };
    Ok(FileDevice::open(path, how)?)
}

/// Formats an image.
pub(crate) fn format(image: &Image, options: &FormatOptions, before: Before) -> Result<Summary> {
    let device = open(image.path())?;
    let space = Space {
        bytes: device.size(),
        sector: device.sector_size(),
    };
    let plan = Plan::new(space, options)?;
    plan.write(&device, before)?;
    Ok(plan.summary())
}

/// A new sparse image with a volume.
pub(crate) fn made(bytes: u64, options: &FormatOptions) -> Result<(Image, Summary)> {
    // The file system below the temporary directory may end at 16 TiB; one in memory does not.
    let image = match bytes < 15 * T {
        true => Image::sparse(bytes)?,
        false => Image::in_memory(bytes)?,
    };
    let summary = format(&image, options, Before::Zeros)?;
    Ok((image, summary))
}

/// A volume that e2fsck and dumpe2fs find nothing against, with the free space that was planned.
pub(crate) fn sound(bytes: u64, options: &FormatOptions) -> Result<(Image, Summary)> {
    let (image, summary) = made(bytes, options)?;
    check(&image).with_context(|| format!("{bytes} bytes, {summary:?}"))?;
    let said = dumpe2fs(&image)?;
    let count = |name: &str| {
        said.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    let free = (count("Free blocks:"), count("Free inodes:"));
    let planned = (Some(summary.free_blocks), Some(summary.free_inodes.into()));
    anyhow::ensure!(
        free == planned,
        "{bytes} bytes: free {free:?}, planned {planned:?}"
    );
    Ok((image, summary))
}

/// `e2fsck -fn` and `dumpe2fs`.
pub(crate) fn check(image: &Image) -> Result<()> {
    image.e2fsck_fn()?;
    dumpe2fs(image).map(drop)
}

/// The output of `dumpe2fs`.
pub(crate) fn dumpe2fs(image: &Image) -> Result<String> {
    cmd::run(Command::new("dumpe2fs").arg(image.path()))
}
