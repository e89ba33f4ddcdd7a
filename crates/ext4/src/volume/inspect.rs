//! Looking at a volume without opening it.

use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_journal::{Canary, Log};
use stetfs_ondisk::ext4::superblock::Superblock;

use super::early::{Early, read_superblock};
use super::{features, log, open, orphans};
use crate::error::{FsError, Result};
use crate::space::Zones;

/// A volume that is only looked at: nothing is replayed, nothing is written.
pub struct Inspection {
    /// The superblock as it is on the device.
    pub superblock: Superblock,
    /// The log; `None` on a volume without, or when it is on another device.
    pub log: Option<Log>,
    /// Orphaned inodes that the next mount deletes or truncates, as far as the unreplayed volume shows.
    pub orphans: u64,
    /// Why this version would not open the volume for writing, as far as the unreplayed volume shows.
    pub refused: Option<FsError>,
}

/// Looks at the volume on `device`.
///
/// # Errors
/// `Corrupt` and `Unsupported` when not even that is possible; the device's.
pub fn inspect(device: Arc<dyn BlockDevice>) -> Result<Inspection> {
    let superblock = read_superblock(&*device)?;
    let layout = superblock.geometry()?;
    open::check_size(&layout, &*device)?;
    let early = Early {
        device: &*device,
        layout: &layout,
        checksums: superblock.checksum_mode(),
    };
    // A log on another device is not looked at.
    let elsewhere = superblock.journal_inum.get() == 0;
    let log = if elsewhere {
        None
    } else {
        log::find(&device, &early, &superblock, None, Canary::default())?.map(|found| found.log)
    };
    let (_, found) = orphans::find(&early, &superblock)?;
    let refused = features::check(&superblock, false).err().or_else(|| {
        // Else a replay may put them in order.
        let replayed = log.as_ref().is_none_or(|log| !log.is_dirty());
        replayed.then(|| damage(&early).err()).flatten()
    });
    Ok(Inspection {
        superblock,
        log,
        orphans: found.list.len() as u64,
        refused,
    })
}

/// What stands in the way of every mount.
fn damage(early: &Early<'_>) -> Result<()> {
    Zones::new(early.layout, early.descriptors()?.iter())?;
    early.check_root()
}
