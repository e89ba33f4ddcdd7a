//! Volumes in memory, made by mke2fs and checked by e2fsck.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use stetfs::low::{BlockDevice, Ctx, Fs, FsError, FsOptions, MemDevice, Preset, preset};
use stetfs_testkit::image::{e2fsck, e2fsck_said};
use stetfs_testkit::{Image, Scratch};

use crate::tree::Seen;

/// Directories that scripts work in: one for each thread.
pub const DIRS: [&str; 4] = ["w0", "w1", "w2", "w3"];

/// What a crash leaves of a batch that the device shares and has not flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Batches {
    /// Any units of it.
    #[default]
    Torn,
    /// All of it, or nothing.
    Atomic,
}

/// An empty volume as it was made, and what is used of it.
#[derive(Clone, Debug)]
pub struct Base {
    /// The volume, clean.
    pub image: Arc<MemDevice>,
    /// Bytes in a block.
    pub block: u32,
    /// Free blocks plus blocks of files: stays the same whatever is done.
    pub blocks: u64,
    /// The same for inodes.
    pub inodes: u64,
    /// Both do: no quota files grow, and no attributes have inodes of their own.
    pub is_closed: bool,
}

/// A small volume with blocks of `block` bytes, a journal of 1024 blocks and an empty directory for
/// each thread. Made once per size.
///
/// # Errors
/// mke2fs failed, or the volume it made.
pub fn base(block: u32) -> Result<Base> {
    base_with(block, 1024)
}

/// The same with a journal of `journal` blocks.
///
/// # Errors
/// mke2fs failed, or the volume it made.
pub fn base_with(block: u32, journal: u32) -> Result<Base> {
    static MADE: Mutex<BTreeMap<(u32, u32), Base>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock();
    if let Some(base) = made.get(&(block, journal)) {
        return Ok(base.clone());
    }
    let journal_mib = (u64::from(journal) * u64::from(block)) >> 20;
    let plan = Plan {
        block,
        journal_mib,
        rest_mib: if block == 1024 { 7 } else { 20 },
        inodes: 256,
    };
    let base = make(plan, &mut |_| Ok(())).with_context(|| {
        format!("making a volume with blocks of {block} bytes and a journal of {journal} blocks")
    })?;
    made.insert((block, journal), base.clone());
    Ok(base)
}

/// A volume to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Bytes in a block.
    pub(crate) block: u32,
    /// Size of the journal, MiB.
    pub(crate) journal_mib: u64,
    /// Size of everything else, MiB: at least so much.
    pub(crate) rest_mib: u64,
    /// Inodes.
    pub(crate) inodes: u32,
}

/// Makes a volume with an empty directory for each thread, and what `fill` makes.
///
/// # Errors
/// mke2fs failed, or the volume it made.
pub(crate) fn make(plan: Plan, fill: &mut dyn FnMut(&Arc<Fs>) -> Result<()>) -> Result<Base> {
    let Plan {
        block,
        journal_mib,
        rest_mib,
        inodes,
    } = plan;
    ensure!(
        matches!(block, 1024 | 2048 | 4096),
        "blocks have 1024, 2048 or 4096 bytes"
    );
    ensure!(
        (1..=256).contains(&journal_mib) && journal_mib << 20 >= u64::from(block) * 1024,
        "a journal has at least 1024 blocks, and at most 256 MiB here"
    );
    // mke2fs makes no journal that is larger than half of what the empty volume has free.
    let rest_mib = rest_mib.max(journal_mib + journal_mib.div_ceil(8));
    let image = Image::sparse((journal_mib + rest_mib) << 20)?;
    let (journal, inodes) = (format!("size={journal_mib}"), inodes.to_string());
    mke2fs(
        image.path(),
        &["-b", &block.to_string(), "-J", &journal, "-N", &inodes],
    )?;
    let device = Arc::new(able(
        MemDevice::load(image.path())?,
        Batches::default(),
        false,
    ));
    settle(device, block, fill)
}

/// A volume that is there, recovered, with an empty directory for each thread.
///
/// # Errors
/// It has other things of these names or no room for them; e2fsck finds fault with it.
pub fn copy_of(device: MemDevice) -> Result<Base> {
    let device = Arc::new(able(device, Batches::default(), false));
    let fs = open(&device, &options(preset::ORDERED))?;
    let block = fs.statfs().block_size;
    fs.unmount()?;
    drop(fs);
    settle(device, block, &mut |_| Ok(()))
}

/// Makes the directories, and what `fill` makes, and counts.
pub(crate) fn settle(
    device: Arc<MemDevice>,
    block: u32,
    fill: &mut dyn FnMut(&Arc<Fs>) -> Result<()>,
) -> Result<Base> {
    let fs = open(&device, &options(preset::ORDERED))?;
    for dir in DIRS {
        let made = fs.mkdir(
            &Ctx::default(),
            stetfs::low::ROOT_INO,
            dir.as_bytes(),
            0o755,
            0,
        )?;
        fs.forget(made.ino, 1);
    }
    fill(&fs)?;
    let seen = Seen::capture(&fs).map_err(anyhow::Error::msg)?;
    let (blocks, inodes) = sums(&fs, &seen);
    fs.unmount()?;
    drop(fs);
    fsck(&device).map_err(anyhow::Error::msg)?;
    Ok(Base {
        image: device,
        block,
        blocks,
        inodes,
        is_closed: true,
    })
}

/// The device with SHARE, of a few blocks of 4 KiB at a time, and with FUA or without.
pub(crate) fn able(device: MemDevice, batches: Batches, fua: bool) -> MemDevice {
    let device = device.with_share(16, batches == Batches::Atomic);
    match fua {
        true => device.with_fua(),
        false => device,
    }
}

/// Runs `mke2fs -t ext4 ARGS IMAGE`.
///
/// # Errors
/// What it said.
pub fn mke2fs(image: &Path, args: &[&str]) -> Result<()> {
    let mut mke2fs = Command::new("mke2fs");
    mke2fs
        .args(["-q", "-F", "-t", "ext4"])
        .args(args)
        .arg(image);
    stetfs_testkit::cmd::run(&mut mke2fs)
        .map(drop)
        .context("mke2fs is of the package e2fsprogs")
}

/// What is free and what is used, together: blocks and inodes.
pub fn sums(fs: &Fs, seen: &Seen) -> (u64, u64) {
    let statfs = fs.statfs();
    let (blocks, inodes) = seen.usage(u64::from(statfs.block_size));
    (statfs.bfree + blocks, statfs.ffree + inodes)
}

/// Options of a volume under test: nothing commits by itself, the cache is small.
pub fn options(preset: Preset) -> FsOptions {
    FsOptions {
        journal: preset.into(),
        commit_secs: 3600,
        cache_bytes: 4 << 20,
        ..FsOptions::default()
    }
}

/// Opens the volume on a device.
///
/// # Errors
/// The volume's.
pub fn open<D: BlockDevice + 'static>(
    device: &Arc<D>,
    options: &FsOptions,
) -> Result<Arc<Fs>, FsError> {
    Fs::open(Arc::clone(device) as Arc<dyn BlockDevice>, options.clone())
}

/// `e2fsck -fn` of a copy.
///
/// # Errors
/// What it printed.
pub fn fsck(device: &MemDevice) -> Result<(), String> {
    on_copy(device, |path| e2fsck(path, &["-fn"], 0))
}

/// What e2fsck makes of a copy with these arguments, and what it printed.
///
/// # Errors
/// What it printed, if it could not correct everything.
pub fn by_e2fsck(device: &MemDevice, args: &[&str]) -> Result<(MemDevice, String), String> {
    on_copy(device, |path| {
        let told = e2fsck_said(path, args, 1)?;
        Ok((MemDevice::load(path)?, told))
    })
}

/// Runs something on the volume in a file.
fn on_copy<T>(
    device: &MemDevice,
    run: impl FnOnce(&Path) -> anyhow::Result<T>,
) -> Result<T, String> {
    let on_scratch = || {
        let scratch = Scratch::new("e2fsck")?;
        let path = scratch.path().join("image");
        device.save(&path)?;
        run(&path)
    };
    on_scratch().map_err(|e| format!("{e:#}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// mke2fs wants as much again beside a journal, and what a volume is described in.
    #[test]
    fn every_journal_has_a_volume_that_it_fits_into() {
        for block in [1024, 2048, 4096] {
            for mib in [5, 8, 21, 64, 256] {
                let blocks = (mib << 20) / block;
                base_with(block, blocks).unwrap();
            }
        }
        // As of `crash stress` with few files.
        let plan = Plan {
            block: 1024,
            journal_mib: 64,
            rest_mib: 25,
            inodes: 1025,
        };
        make(plan, &mut |_| Ok(())).unwrap();
    }
}
