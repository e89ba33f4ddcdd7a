//! Volumes in memory: made by mke2fs, checked by e2fsck.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use stetfs::low::{BlockDevice, Ctx, Fs, FsError, FsOptions, MemDevice, Preset, preset};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::mmp::{self, Mmp};
use stetfs_testkit::Image;
use stetfs_testkit::image::e2fsck_said;

use crate::outside::{self, Files, superblock};
use crate::tree::Seen;

/// Directories for scripts, one for each thread.
pub const DIRS: [&str; 4] = ["w0", "w1", "w2", "w3"];

/// The second of multiple mount protection; it is short because a crash state waits for many of
/// them.
const MMP_SECOND: Duration = Duration::from_millis(2);

/// The part that a crash leaves of a batch that the device shared and has not flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Batches {
    /// Any units of the batch.
    #[default]
    Torn,
    /// The whole batch, or nothing.
    Atomic,
}

/// A fresh volume, and the sums of its blocks and inodes.
#[derive(Clone, Debug)]
pub struct Base {
    /// The volume, clean.
    pub image: Arc<MemDevice>,
    /// Bytes in a block.
    pub block: u32,
    /// Free blocks plus blocks of files; no operation changes this sum.
    pub blocks: u64,
    /// Free inodes plus used ones; no operation changes this sum.
    pub inodes: u64,
    /// Whether both sums hold: no quota files grow, and no attribute values have inodes of their
    /// own.
    pub is_closed: bool,
}

/// A small volume with blocks of `block` bytes, a journal of 1024 blocks and an empty directory for
/// each thread. Made once per block size.
///
/// # Errors
/// mke2fs fails, or the volume that it made cannot be opened.
pub fn base(block: u32) -> Result<Base> {
    base_with(block, 1024)
}

/// The volume of [`base`] with a journal of `journal` blocks.
///
/// # Errors
/// mke2fs fails, or the volume that it made cannot be opened.
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

/// The parameters of a volume to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Bytes in a block.
    pub(crate) block: u32,
    /// Size of the journal in MiB.
    pub(crate) journal_mib: u64,
    /// Least size of everything else in MiB.
    pub(crate) rest_mib: u64,
    /// Number of inodes.
    pub(crate) inodes: u32,
}

/// Makes a volume with an empty directory for each thread and the files that `fill` adds.
///
/// # Errors
/// mke2fs fails, or the volume that it made cannot be opened.
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
    // mke2fs refuses a journal that is larger than half of the free space of the empty volume.
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

/// An existing volume, recovered, with an empty directory for each thread.
///
/// # Errors
/// The volume has other files of these names or no room for the directories, or e2fsck finds an
/// error.
pub fn copy_of(device: MemDevice) -> Result<Base> {
    let device = Arc::new(able(device, Batches::default(), false));
    let fs = open(&device, &options(preset::ORDERED))?;
    let block = fs.statfs().block_size;
    fs.unmount()?;
    drop(fs);
    settle(device, block, &mut |_| Ok(()))
}

/// Makes the directories, runs `fill`, and counts blocks and inodes.
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

/// The device with SHARE, for batches of a few blocks of 4 KiB, and with or without FUA.
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
/// The output of mke2fs.
pub fn mke2fs(image: &Path, args: &[&str]) -> Result<()> {
    let mut mke2fs = Command::new("mke2fs");
    mke2fs
        .args(["-q", "-F", "-t", "ext4"])
        .args(args)
        .arg(image);
    stetfs_testkit::cmd::run(&mut mke2fs)
        .map(drop)
        .context("cannot run mke2fs (package e2fsprogs)")
}

/// The sums of free and used blocks and of free and used inodes.
pub fn sums(fs: &Fs, seen: &Seen) -> (u64, u64) {
    let statfs = fs.statfs();
    let (blocks, inodes) = seen.usage(u64::from(statfs.block_size));
    (statfs.bfree + blocks, statfs.ffree + inodes)
}

/// Options of a volume under test: no timed commits, and a small cache.
pub fn options(preset: Preset) -> FsOptions {
    FsOptions {
        journal: preset.into(),
        commit_secs: 3600,
        cache_bytes: 4 << 20,
        mmp_second: MMP_SECOND,
        ..FsOptions::default()
    }
}

/// Opens the volume on a device.
///
/// # Errors
/// The volume cannot be opened.
pub fn open<D: BlockDevice + 'static>(
    device: &Arc<D>,
    options: &FsOptions,
) -> Result<Arc<Fs>, FsError> {
    outside::open(device, options)
}

/// Runs `e2fsck -fn` on a copy.
///
/// # Errors
/// The output of e2fsck.
pub fn fsck(device: &MemDevice) -> Result<(), String> {
    on_copy(device, |files| e2fsck(files, &["-fn"], 0)).map(drop)
}

/// A copy with a multiple-mount-protection block that says "unused", so that nobody waits for a
/// former user.
///
/// # Errors
/// The MMP block is damaged.
pub(crate) fn released(device: &MemDevice) -> Result<MemDevice> {
    let copy = device.fork();
    let sb = superblock(&copy)?;
    if sb.incompat().contains(Incompat::MMP) {
        let at = sb.mmp_block.get() * u64::from(sb.geometry()?.block_size);
        let mut block = [0; mmp::LEN];
        copy.read(at, &mut block)?;
        let mut mmp = Mmp::decode(&block, &sb.checksum_mode())?;
        mmp.seq.set(mmp::SEQ_CLEAN);
        copy.write(at, mmp.made_plain(&sb.checksum_mode()))?;
    }
    Ok(copy)
}

/// Whether a program that opens the volume for writing first waits for seconds, by multiple mount
/// protection.
pub(crate) fn makes_wait(device: &MemDevice) -> bool {
    superblock(device).is_ok_and(|sb| sb.incompat().contains(Incompat::MMP))
}

/// Runs e2fsck with `args` on a copy of an unused volume. Gives the corrected copy and the output.
///
/// # Errors
/// The output, if e2fsck could not correct everything.
pub fn by_e2fsck(device: &MemDevice, args: &[&str]) -> Result<(MemDevice, String), String> {
    let device = released(device).map_err(|e| format!("{e:#}"))?;
    on_copy(&device, |files| {
        let told = e2fsck(files, args, 1)?;
        Ok((files.load()?, told))
    })
}

/// Runs e2fsck; an exit status above `highest` is an error.
fn e2fsck(files: &Files, args: &[&str], highest: i32) -> Result<String> {
    let journal = files.journal();
    let outside = journal
        .iter()
        .flat_map(|path| [OsStr::new("-j"), path.as_os_str()]);
    let args: Vec<&OsStr> = args.iter().map(OsStr::new).chain(outside).collect();
    e2fsck_said(&files.volume(), &args, highest)
}

/// Runs `run` on a copy of the volume in files.
fn on_copy<T>(device: &MemDevice, run: impl FnOnce(&Files) -> Result<T>) -> Result<T, String> {
    let on_files = || run(&Files::of(device)?);
    on_files().map_err(|e: anyhow::Error| format!("{e:#}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// mke2fs needs twice the journal's size, plus room for the metadata.
    #[test]
    fn every_journal_has_a_volume_that_it_fits_into() {
        for block in [1024, 2048, 4096] {
            for mib in [5, 8, 21, 64, 256] {
                let blocks = (mib << 20) / block;
                base_with(block, blocks).unwrap();
            }
        }
        // The plan of `crash stress` with few files.
        let plan = Plan {
            block: 1024,
            journal_mib: 64,
            rest_mib: 25,
            inodes: 1025,
        };
        make(plan, &mut |_| Ok(())).unwrap();
    }
}
