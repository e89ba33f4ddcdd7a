//! Looking at a volume without opening it.

use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_journal::{Canary, Log};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::superblock::Superblock;

use super::early::{Early, check_size, read_superblock};
use super::{external, features, log, orphans};
use crate::error::{FsError, Result};
use crate::space::Zones;

/// A volume that is only looked at: nothing is replayed, nothing is written.
pub struct Inspection {
    /// The superblock as it is on the device.
    pub superblock: Superblock,
    /// The log; `None` on a volume without, when it is on another device that is not there, or
    /// when it cannot be read.
    pub log: Option<Log>,
    /// There is something to replay or to finish, or it cannot be told whether there is.
    pub unfinished: bool,
    /// Why this version would not open the volume for writing, as far as the unreplayed volume
    /// shows.
    pub refused: Option<FsError>,
}

/// Looks at the volume on `device`, whose journal may be on a device of its own.
///
/// # Errors
/// `Corrupt` when not even that is possible; the device's.
pub fn inspect(
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
) -> Result<Inspection> {
    let superblock = read_superblock(&*device)?;
    let layout = superblock.geometry()?;
    check_size(&layout, &*device)?;
    let elsewhere = journal.is_some();
    let log = match find_log(Arc::clone(&device), journal) {
        // Who needs it says that it is missing.
        Err(FsError::JournalDevice(_)) if !elsewhere => Ok(None),
        other => other,
    };
    let replayed = matches!(&log, Ok(log) if log.as_ref().is_none_or(|log| !log.is_dirty()));
    let early = Early::new(&*device, &layout, &superblock);
    let refused = features::check(&superblock, false).err().or_else(|| {
        // Else a replay may put them in order.
        replayed.then(|| damage(&early).err()).flatten()
    });
    // Only when nothing is to be replayed what the volume shows is what a replay would leave.
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

/// What stands in the way of every mount.
fn damage(early: &Early<'_>) -> Result<()> {
    Zones::new(early.layout, early.descriptors()?.iter())?;
    early.check_root()
}

/// The log of the volume on `device`, whose journal may be on a device of its own; `None` on a
/// volume without.
///
/// # Errors
/// `Corrupt`, `Format` or `Unsupported` for what the volume or its log says; `JournalDevice`; the
/// device's.
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
