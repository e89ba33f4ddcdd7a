//! External journals: a journal on a device of its own (`mke2fs -O journal_dev`).

use std::sync::Arc;

use stetfs_block::{BlockDevice, Joined};
use stetfs_ondisk::ext4::features::{Compat, Incompat};
use stetfs_ondisk::ext4::superblock::{MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use stetfs_ondisk::uuid;

use crate::error::{FsError, Result};
use crate::volume::foreign;
use crate::volume::super_bytes::read_superblock;

/// The device of the volume, with the journal's device joined behind it if there is one; then also
/// the place of the log: runs of blocks (first, count).
pub(super) type WithJournal = (Arc<dyn BlockDevice>, Option<Vec<(u64, u64)>>);

/// The UUID of the device that has a volume's journal; `None` if the volume has no journal, or an
/// internal one.
///
/// # Errors
/// As for [`Fs::open`](crate::Fs::open).
pub fn journal_device(device: &dyn BlockDevice) -> Result<Option<String>> {
    Ok(journal_device_of(&read_superblock(device)?))
}

/// The same, from the superblock.
pub fn journal_device_of(sb: &Superblock) -> Option<String> {
    let external = sb.compat().contains(Compat::HAS_JOURNAL) && sb.journal_inum.get() == 0;
    external.then(|| uuid::text(&sb.journal_uuid))
}

/// Whether a device is a journal with this UUID.
///
/// # Errors
/// Errors of the device.
pub fn is_journal(device: &dyn BlockDevice, uuid: &str) -> Result<bool> {
    let sb = journal_head(device)?;
    Ok(is_one(&sb) && uuid::text(&sb.uuid) == uuid)
}

/// The ext4 superblock of a journal's device. It has no geometry to check: there are no groups.
fn journal_head(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut head = vec![0; SUPERBLOCK_SIZE];
    if device.size() >= SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        device.read(SUPERBLOCK_OFFSET, &mut head)?;
    }
    Ok(Superblock::decode_unchecked(&head)?)
}

fn is_one(sb: &Superblock) -> bool {
    sb.magic.get() == MAGIC && sb.verify_checksum() && sb.incompat().contains(Incompat::JOURNAL_DEV)
}

/// Joins the two devices, if there are two.
///
/// # Errors
/// `JournalDevice` when the other device is not the volume's journal; errors of that device.
pub(super) fn join(
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
    sb: &Superblock,
) -> Result<WithJournal> {
    let Some(journal) = journal else {
        return Ok((device, None));
    };
    let wrong = |what: String| Err(FsError::JournalDevice(what));
    let other = journal_head(&*journal)?;
    if other.magic.get() != MAGIC {
        let there = foreign::look(&*journal)?;
        return wrong(format!(
            "the device named as the journal is not a journal: {there}"
        ));
    }
    if !is_one(&other) {
        return wrong("the device named as the journal is not a journal".into());
    }
    if other.uuid != sb.journal_uuid {
        return wrong(format!(
            "the journal {} belongs to another volume; the journal of this volume is {}",
            uuid::text(&other.uuid),
            uuid::text(&sb.journal_uuid)
        ));
    }
    if other.log_block_size.get() != sb.log_block_size.get() {
        return wrong("the block sizes of the journal and the volume differ".into());
    }
    let size = u64::from(sb.geometry()?.block_size);
    let blocks = other.blocks_count();
    // Log blocks have the numbers of the device's blocks. Only the log's superblock, which is log
    // block 0 everywhere else, is behind the ext4 superblock.
    let header = SUPERBLOCK_OFFSET / size + 1;
    if blocks <= header || blocks.saturating_mul(size) > journal.size() {
        let detail = format!(
            "the journal's {blocks} blocks do not fit on its device of {} bytes",
            journal.size()
        );
        return Err(FsError::corrupt("journal device", 0, detail));
    }
    let joined = Joined::new(device, journal);
    let base = joined.base() / size;
    let runs = vec![(base + header, 1), (base + 1, blocks - 1)];
    Ok((Arc::new(joined), Some(runs)))
}
