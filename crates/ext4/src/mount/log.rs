//! The volume's journal: its place, its recovery, its start.

use crate::volume::memory::journal_memory;
use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_cache::{Page, PageRef};
use stetfs_journal::{
    BlockNr, Cache, Canary, Journal, JournalConfig, Log, LogFeatures, Recovery, RecoveryOptions,
};
use stetfs_ondisk::ext4::features::{Compat, Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::{
    MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};

use super::early::Early;
use crate::error::{FsError, Result};
use crate::types::{FsOptions, OnDataError};

/// The log, before the journal runs.
pub(super) struct VolumeLog {
    pub(super) log: Log,
    /// Its blocks on the volume, for the system zones; none if it is on a device of its own.
    pub(super) runs: Vec<(u64, u64)>,
}

/// Finds the log; `None` on a volume without a log.
pub(super) fn find(
    device: &Arc<dyn BlockDevice>,
    early: &Early<'_>,
    sb: &Superblock,
    external: Option<&[(u64, u64)]>,
    canary: Canary,
) -> Result<Option<VolumeLog>> {
    if !sb.compat().contains(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let ino = sb.journal_inum.get();
    if ino == 0 {
        return match external {
            Some(area) => {
                let log = Log::open(device.clone(), early.layout.block_size, area, canary)?;
                // Its content may belong to another volume.
                if log.summary().users > 1 {
                    return Err(FsError::Unsupported(
                        "a journal that several volumes share".into(),
                    ));
                }
                let runs = Vec::new();
                Ok(Some(VolumeLog { log, runs }))
            }
            None => Err(FsError::JournalDevice(format!(
                "the journal of the volume is on another device, with UUID {}, which was not found; \
                 name it with journal_path=",
                stetfs_ondisk::uuid::text(&sb.journal_uuid)
            ))),
        };
    }
    let runs = early.runs(ino, &early.inode(ino)?)?;
    let log = Log::open(device.clone(), early.layout.block_size, &runs, canary)?;
    Ok(Some(VolumeLog { log, runs }))
}

/// Starts the engine that replaces a journal on a volume without one.
///
/// # Errors
/// `Unsupported` for presets that require a log.
pub(super) fn without(
    cache: Arc<Cache>,
    sb: &Superblock,
    opts: &FsOptions,
) -> Result<Arc<Journal>> {
    if opts.journal.data().keeps_whole() || !opts.journal.is_jbd2() {
        return Err(FsError::Unsupported(
            "journaling data on a volume without a journal (tune2fs -j adds one)".into(),
        ));
    }
    if opts.data_err == OnDataError::Abort {
        return Err(FsError::Unsupported(
            "data_err=abort on a volume without a journal to stop".into(),
        ));
    }
    tracing::warn!(
        "the volume has no journal: what is synced is durable, but a crash can leave the volume \
         inconsistent, for e2fsck to repair"
    );
    if !sb.state().contains(State::VALID_FS) {
        tracing::warn!(
            "the volume was not unmounted cleanly and has no journal to recover from; run e2fsck"
        );
    }
    Ok(Journal::without_log(cache, config(opts))?)
}

pub(super) fn config(opts: &FsOptions) -> JournalConfig {
    JournalConfig {
        commit_secs: opts.commit_secs,
        memory: journal_memory(opts.cache_bytes),
        barrier: opts.barrier,
        canary: opts.canary,
        ..JournalConfig::default()
    }
}

impl VolumeLog {
    /// Whether there may be something to replay.
    pub(super) fn is_dirty(&self) -> bool {
        self.log.is_dirty()
    }

    /// The error that the last user of the log stopped with, 0 if none (`s_errno`).
    pub(super) fn errno(&self) -> i32 {
        self.log.summary().errno
    }

    /// Clears that error, durably.
    pub(super) fn clear_errno(&mut self) -> Result<()> {
        Ok(self.log.clear_errno()?)
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.runs.iter().map(|(_, n)| n).sum()
    }

    /// Replays the log and empties it, except records of files. Images are written to their home
    /// locations in the way of the new journal.
    pub(super) fn replay(
        &self,
        blocks: u64,
        opts: &FsOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Recovery> {
        let how = RecoveryOptions {
            salvage: opts.salvage,
            cannot_be: Some(cannot_be),
            adapt: Some(adapt),
            ..RecoveryOptions::default()
        };
        Ok(self
            .log
            .recover(blocks, how, opts.journal.home(), progress)?)
    }

    /// Opens the log again after a replay changed it.
    pub(super) fn reopen(&self) -> Result<VolumeLog> {
        Ok(VolumeLog {
            log: self.log.reopen()?,
            runs: self.runs.clone(),
        })
    }

    /// Starts a journal in the empty log.
    pub(super) fn start(
        self,
        cache: Arc<Cache>,
        sb: &Superblock,
        opts: &FsOptions,
    ) -> Result<Arc<Journal>> {
        if self.runs.is_empty() && !opts.journal.is_jbd2() {
            // There, not all blocks behind its superblock belong to the log.
            return Err(FsError::Unsupported(
                "StetFS's own log in a journal on another device".into(),
            ));
        }
        let features = LogFeatures {
            checksums: sb.ro_compat().contains(RoCompat::METADATA_CSUM),
            wide: sb.incompat().contains(Incompat::BIT64),
            async_commit: opts.async_commit,
        };
        let mut journal = opts.journal.clone();
        if sb.ro_compat().contains(RoCompat::BIGALLOC) {
            // A record names blocks, which may share a cluster with others: files are synced by
            // commits.
            journal = journal.without_records();
        }
        Ok(self.log.start(cache, features, &journal, config(opts))?)
    }
}

/// Byte offset of `s_magic` in the superblock.
const MAGIC_AT: usize = 56;

/// The offset of the superblock in an image of this block, if it is there.
fn superblock_at(nr: BlockNr, image: &[u8]) -> Option<usize> {
    let at = SUPERBLOCK_OFFSET.checked_sub(nr.checked_mul(image.len() as u64)?)?;
    let at = usize::try_from(at).ok()?;
    image.get(at..at + SUPERBLOCK_SIZE)?;
    Some(at)
}

/// Refuses an image that would remove the superblock: the volume could never be opened again.
fn cannot_be(nr: BlockNr, image: &[u8]) -> Option<&'static str> {
    let at = superblock_at(nr, image)? + MAGIC_AT;
    let magic = image.get(at..at + 2)?;
    (magic != MAGIC.to_le_bytes()).then_some("this log image would overwrite the superblock")
}

/// The image of the superblock's block as it is to be written: each of its two sectors must be
/// valid together with the other sector of the present content. This is not so for the kernel's
/// images, which have the checksum in the second sector.
fn adapt(
    device: &dyn BlockDevice,
    nr: BlockNr,
    image: &[u8],
) -> stetfs_block::Result<Option<PageRef>> {
    let Some(at) = superblock_at(nr, image) else {
        return Ok(None);
    };
    let mut home = vec![0; SUPERBLOCK_SIZE];
    device.read(SUPERBLOCK_OFFSET, &mut home)?;
    let adapted = || {
        let logged = Superblock::decode_unchecked(image.get(at..)?).ok()?;
        let mut sb = logged.clone();
        sb.update_checksum_after(&Superblock::decode_unchecked(&home).ok()?);
        if sb == logged || !logged.verify_checksum() {
            return None;
        }
        let mut page = Page::zeroed(image.len());
        page.copy_from_slice(image);
        sb.encode(page.get_mut(at..)?).ok()?;
        Some(Arc::new(page))
    };
    Ok(adapted())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod image_tests {
    use stetfs_block::{MemDevice, Recorder, Replay};

    use super::*;

    /// A byte of the second sector.
    const SECOND: usize = 700;

    /// An image as the kernel makes it: a change of both sectors, and a new checksum.
    fn changed(bytes: &mut [u8], by: u8) {
        bytes[SECOND] = by;
        let mut sb = Superblock::decode_unchecked(bytes).unwrap();
        sb.magic.set(MAGIC);
        sb.set_ro_compat(RoCompat::METADATA_CSUM);
        sb.wtime.set(by.into());
        sb.update_checksum();
        sb.encode(bytes).unwrap();
    }

    /// Counts the superblocks after crashes at every moment, with every set of sectors: unchanged,
    /// new, and invalid ones.
    fn left(base: &MemDevice, log: &stetfs_block::Log) -> [u32; 3] {
        let mut replay = Replay::new(base, log);
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        let mut seen = [0; 3];
        for event in 0..=log.len() {
            replay.advance_to(event);
            for set in 0_u32..1 << replay.pending().len() {
                let mut sector = 0;
                let crashed = replay.crash(|_| {
                    sector += 1;
                    set >> (sector - 1) & 1 == 1
                });
                crashed.read(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
                let sb = Superblock::decode_unchecked(&bytes).unwrap();
                let kind = match (sb.verify_checksum(), sb.wtime.get()) {
                    (true, 1) => 0,
                    (true, _) => 1,
                    (false, _) => 2,
                };
                seen[kind] += 1;
            }
        }
        seen
    }

    #[test]
    fn a_crash_while_the_superblock_goes_home_leaves_one_that_is_sound() {
        for block in [1024_u64, 4096] {
            let base = MemDevice::new(64 << 10);
            let mut bytes = vec![0; SUPERBLOCK_SIZE];
            changed(&mut bytes, 1);
            base.write(SUPERBLOCK_OFFSET, &bytes).unwrap();
            changed(&mut bytes, 77);
            let nr = SUPERBLOCK_OFFSET / block;
            let mut image = vec![0; block as usize];
            let at = superblock_at(nr, &image).unwrap();
            image[at..at + SUPERBLOCK_SIZE].copy_from_slice(&bytes);
            let device = Recorder::new(base.fork());
            assert!(adapt(&device, nr + 1, &image).unwrap().is_none());
            let page = adapt(&device, nr, &image).unwrap().unwrap();
            device.write(nr * block, &page).unwrap();
            let again = adapt(&device, nr, &image).unwrap().unwrap();
            assert_eq!(again[..], page[..], "a recovery that is repeated");
            assert!(adapt(&device, nr, &page).unwrap().is_none());
            device.read(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
            assert_eq!(bytes[SECOND], 77);
            let [old, new, torn] = left(&base, &device.take_log());
            assert!(old > 0 && new > 2 && torn == 0, "{old}, {new}, {torn}");
            // The image as the kernel logged it would be torn.
            let device = Recorder::new(base.fork());
            device.write(nr * block, &image).unwrap();
            assert!(left(&base, &device.take_log())[2] > 0);
        }
    }

    #[test]
    fn an_image_without_the_superblock_is_told() {
        for (nr, size, at) in [(1, 1024, 0), (0, 2048, 1024), (0, 4096, 1024)] {
            let mut image = vec![0; size];
            assert!(cannot_be(nr, &image).is_some());
            assert_eq!(cannot_be(nr + 1, &image), None);
            image[at + MAGIC_AT..][..2].copy_from_slice(&MAGIC.to_le_bytes());
            assert_eq!(cannot_be(nr, &image), None);
        }
        assert_eq!(cannot_be(0, &[0; 1024]), None);
        assert_eq!(cannot_be(u64::MAX, &[0; 1024]), None);
    }
}
