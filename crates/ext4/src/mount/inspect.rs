//! Inspection of a volume without opening it.

use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_journal::{Canary, Log};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::superblock::Superblock;

use super::early::{Early, check_size};
use super::{external, features, log, orphans};
use crate::error::{FsError, Result};
use crate::space::Zones;
use crate::volume::super_bytes::read_superblock;

/// The result of an inspection. Nothing is replayed or written.
pub struct Inspection {
    /// The superblock as it is on the device.
    pub superblock: Superblock,
    /// The log; `None` on a volume without a log, when its device is missing, or when it cannot be
    /// read.
    pub log: Option<Log>,
    /// There is something to replay or to finish, or this cannot be found out.
    pub unfinished: bool,
    /// The reason why this version would not open the volume for writing, as far as the volume
    /// shows it without a replay.
    pub refused: Option<FsError>,
}

/// Inspects the volume on `device`, whose journal may be on a device of its own.
///
/// # Errors
/// `Corrupt` when even that is not possible; errors of the device.
pub fn inspect(
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
) -> Result<Inspection> {
    let superblock = read_superblock(&*device)?;
    let layout = superblock.geometry()?;
    check_size(&layout, &*device)?;
    let elsewhere = journal.is_some();
    let log = match find_log(Arc::clone(&device), journal) {
        // A caller that needs the log reports that it is missing.
        Err(FsError::JournalDevice(_)) if !elsewhere => Ok(None),
        other => other,
    };
    let replayed = matches!(&log, Ok(log) if log.as_ref().is_none_or(|log| !log.is_dirty()));
    let early = Early::new(&*device, &layout, &superblock);
    let refused = features::check(&superblock, false).err().or_else(|| {
        // Otherwise a replay may repair them.
        replayed.then(|| damage(&early).err()).flatten()
    });
    // The orphans on the device are the final ones only if nothing has to be replayed.
    let unfinished = superblock.incompat().contains(Incompat::RECOVER)
        || !replayed
        || !orphans::find(&early, &superblock).is_ok_and(|(_, found)| found.is_empty());
    Ok(Inspection {
        superblock,
        log: log.ok().flatten(),
        unfinished,
        refused,
    })
}

/// Damage that prevents every mount.
fn damage(early: &Early<'_>) -> Result<()> {
    Zones::new(early.layout, early.descriptors()?.iter())?;
    early.check_root()
}

/// The log of the volume on `device`, whose journal may be on a device of its own; `None` on a
/// volume without a log.
///
/// # Errors
/// `Corrupt`, `Format` or `Unsupported` because of the volume or its log; `JournalDevice`; errors
/// of the device.
pub fn find_log(
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
) -> Result<Option<Log>> {
    let sb = read_superblock(&*device)?;
    let layout = sb.geometry()?;
    let (device, area) = external::join(device, journal, &sb)?;
    let early = Early::new(&*device, &layout, &sb);
    let found = log::find(&device, &early, &sb, area.as_deref(), Canary::default())?;
    Ok(found.map(|found| found.log))
}
