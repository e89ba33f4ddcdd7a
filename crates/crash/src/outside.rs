//! Volumes with an external journal. In the lab both are on one device, the journal behind the
//! volume, so that one recording holds all writes in their order.
//!
//! A flush of either makes both durable. That hides no fault: a volume always flushes both
//! together.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Result, ensure};
use stetfs::low::{BlockDevice, Fs, FsError, FsOptions, MemDevice};
use stetfs_block::{BlockError, Span, Window};
use stetfs_ondisk::ext4::features::Compat;
use stetfs_ondisk::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use stetfs_testkit::{KernelMount, LoopDev, LoopOptions, Scratch};

/// Alignment of the journal's device, bytes.
const UNIT: u64 = 1 << 20;
/// Byte ranges in a journal's superblock: the count of its volumes, and the first volume's UUID.
const USERS: Range<usize> = 64..68;
const FIRST_USER: Range<usize> = 256..272;

/// The superblock of a device, not checked.
///
/// # Errors
/// The device cannot be read.
pub(crate) fn superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(Superblock::decode_unchecked(&bytes)?)
}

/// First byte of the journal's device; `None` if the volume has an internal journal or none.
///
/// # Errors
/// The device fails.
fn journal_at(device: &dyn BlockDevice) -> Result<Option<u64>, BlockError> {
    match superblock(device) {
        Ok(sb) => Ok(journal_of(&sb, device.size())),
        Err(e) => e.downcast().map_or(Ok(None), Err),
    }
}

fn journal_of(sb: &Superblock, size: u64) -> Option<u64> {
    let is_outside = sb.compat().contains(Compat::HAS_JOURNAL) && sb.journal_inum.get() == 0;
    let block = u64::from(sb.geometry().ok()?.block_size);
    let end = sb.blocks_count().checked_mul(block)?;
    let at = end.next_multiple_of(UNIT);
    (is_outside && at < size).then_some(at)
}

/// The volume, and the device of its external journal, if it has one.
fn apart<D: BlockDevice + Clone>(device: &D) -> Result<(Window<D>, Option<Window<D>>), FsError> {
    let size = device.size();
    let window = |range: Range<u64>| {
        let span = Span {
            start: range.start,
            len: range.end - range.start,
        };
        Window::new(device.clone(), span, Path::new("the lab's device")).map_err(FsError::from)
    };
    match journal_at(device)? {
        None => Ok((window(0..size)?, None)),
        Some(at) => Ok((window(0..at)?, Some(window(at..size)?))),
    }
}

/// Opens the volume on a device, with its external journal if it has one.
///
/// # Errors
/// The volume cannot be opened.
pub(crate) fn open<D: BlockDevice + 'static>(
    device: &Arc<D>,
    options: &FsOptions,
) -> Result<Arc<Fs>, FsError> {
    if journal_at(&**device)?.is_none() {
        let device = Arc::clone(device) as Arc<dyn BlockDevice>;
        return Fs::open(device, options.clone());
    }
    let (volume, journal) = apart(device)?;
    let journal = journal.map(|journal| Arc::new(journal) as Arc<dyn BlockDevice>);
    Fs::open_with(Arc::new(volume), journal, options.clone(), &mut |_, _| {})
}

/// Makes an external journal of `blocks` blocks of `block` bytes with mke2fs, and attaches it to a
/// volume without a journal.
///
/// # Errors
/// mke2fs fails, or its result is not as expected.
pub(crate) fn with_journal(volume: &MemDevice, block: u64, blocks: u64) -> Result<MemDevice> {
    let scratch = Scratch::in_memory("journal")?;
    let path = scratch.path().join("journal");
    std::fs::File::create(&path)?.set_len(block * blocks)?;
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-O", "journal_dev", "-b", &block.to_string()]);
    stetfs_testkit::cmd::run(mke2fs.arg(&path))?;
    let journal = MemDevice::load(&path)?;
    let of_journal = superblock(&journal)?;
    // This does what `mke2fs -J device=` does, which needs a block device.
    let mut sb = superblock(volume)?;
    ensure!(
        !sb.compat().contains(Compat::HAS_JOURNAL),
        "the volume has a journal already"
    );
    sb.set_compat(sb.compat() | Compat::HAS_JOURNAL);
    sb.journal_uuid = of_journal.uuid;
    sb.update_checksum();
    let mut bytes = [0; SUPERBLOCK_SIZE];
    sb.encode(&mut bytes)?;
    volume.write(SUPERBLOCK_OFFSET, &bytes)?;
    let of_log = (SUPERBLOCK_OFFSET / block + 1) * block;
    let mut log = vec![0; usize::try_from(block)?];
    journal.read(of_log, &mut log)?;
    log[USERS].copy_from_slice(&1u32.to_be_bytes());
    log[FIRST_USER].copy_from_slice(&sb.uuid);
    journal.write(of_log, &log)?;
    let at = volume.size().next_multiple_of(UNIT);
    let both = MemDevice::new(at + journal.size());
    copy(volume, 0..volume.size(), &both, 0)?;
    copy(&journal, 0..journal.size(), &both, at)?;
    Ok(both)
}

/// Copies a range to a place on another device.
fn copy(from: &MemDevice, range: Range<u64>, to: &MemDevice, at: u64) -> Result<()> {
    let nothing = MemDevice::new(range.end);
    for part in nothing.differences(from) {
        let part = part.start.max(range.start)..part.end.min(range.end);
        if part.start < part.end {
            let mut bytes = vec![0; usize::try_from(part.end - part.start)?];
            from.read(part.start, &mut bytes)?;
            to.write(at + (part.start - range.start), &bytes)?;
        }
    }
    Ok(())
}

/// The files of a volume: its image, and the image of its external journal if it has one.
pub(crate) struct Files {
    scratch: Scratch,
    journal_at: Option<u64>,
}

impl Files {
    /// Writes a copy of a device to files.
    ///
    /// # Errors
    /// The files cannot be written.
    pub(crate) fn of(device: &MemDevice) -> Result<Files> {
        let files = Files {
            scratch: Scratch::in_memory("volume")?,
            journal_at: journal_at(device)?,
        };
        device.save(files.volume())?;
        if let (Some(journal), Some(at)) = (files.journal(), files.journal_at) {
            let of_journal = MemDevice::new(device.size() - at);
            copy(device, at..device.size(), &of_journal, 0)?;
            of_journal.save(journal)?;
        }
        Ok(files)
    }

    /// The path of the volume's image.
    pub(crate) fn volume(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    /// The path of the journal's image.
    pub(crate) fn journal(&self) -> Option<PathBuf> {
        self.journal_at.map(|_| self.scratch.path().join("journal"))
    }

    /// Mounts the volume by the kernel, with `options` and the one that names the journal. Gives
    /// the mount, and the journal's loop device, which has to outlive it.
    ///
    /// # Errors
    /// The volume cannot be mounted.
    pub(crate) fn mount(&self, options: &str) -> Result<(KernelMount, Option<LoopDev>)> {
        let attach = |path: &Path| LoopDev::attach(path, LoopOptions::default());
        let journal = self.journal().map(|path| attach(&path)).transpose()?;
        let options = match &journal {
            Some(journal) => format!("{options},journal_path={}", journal.path().display()),
            None => options.to_owned(),
        };
        let mount = KernelMount::new(attach(&self.volume())?, "ext4", &options)?;
        Ok((mount, journal))
    }

    /// Reads the files back as one device.
    ///
    /// # Errors
    /// The files cannot be read.
    pub(crate) fn load(&self) -> Result<MemDevice> {
        let volume = MemDevice::load(self.volume())?;
        if let (Some(journal), Some(at)) = (self.journal(), self.journal_at) {
            let journal = MemDevice::load(journal)?;
            copy(&journal, 0..journal.size(), &volume, at)?;
        }
        Ok(volume)
    }
}
