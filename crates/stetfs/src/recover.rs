//! Recovering a volume without mounting it.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use stetfs_block::OpenOptions;
use stetfs_ext4::{Fs, FsOptions, Result, inspect};

use crate::external;
use crate::info::{self, RecoveryInfo};

/// What a recovery did.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    /// The volume.
    pub volume: String,
    /// What was found to do, and done.
    pub recovery: RecoveryInfo,
}

/// Replays the journal of the volume at `path`, finishes what was interrupted, and leaves the
/// volume clean. A clean volume is not written to.
///
/// # Errors
/// The volume is in use, damaged, of an unknown kind, or a device failed: then the journal is as it
/// was, and recovery can be tried again. With `salvage` what is whole of a damaged journal goes home, the rest is left out and told
/// ([`RecoveryInfo::damage`]), and the volume is marked as one with errors, for e2fsck to put in order.
///
/// `progress` gets (done, of), first in blocks of the log, then in blocks that go home.
pub fn recover(
    path: &Path,
    salvage: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Recovered> {
    let (device, journal) = external::devices(path, OpenOptions::default())?;
    let mut recovery = info::to_do(&inspect(Arc::clone(&device))?);
    if recovery.needed {
        let options = FsOptions {
            salvage,
            ..FsOptions::default()
        };
        let fs = Fs::open_with(device, journal, options, progress)?;
        if let Some(report) = fs.recovered() {
            recovery.transactions = report.transactions;
            recovery.blocks = report.blocks;
            recovery.records = report.records;
            recovery.fast_commits = report.fast_commits;
            recovery.damage.clone_from(&report.damage);
        }
        // The journal may have held some.
        recovery.orphans = fs.orphans_finished();
        fs.unmount()?;
    }
    Ok(Recovered {
        volume: path.display().to_string(),
        recovery,
    })
}
