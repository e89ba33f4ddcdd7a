//! The region of persistent memory for records of synced files.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use stetfs_block::BlockError;
use stetfs_ext4::{FsError, Result};
use stetfs_journal::Composition;
use stetfs_journal::region::{MOST_BYTES, RegionSource};
use stetfs_nvm::{Durability, FileRegion, MemRegion, Region, Way};

/// A region that is in use.
#[derive(Clone, Debug, Serialize)]
pub struct RegionInfo {
    /// The file.
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// How a sync makes durable: `lines` (the processor's flushes), `pages` (msync) or `stores`.
    pub way: &'static str,
    /// What its records survive.
    pub survives: &'static str,
    /// That is a loss of power.
    pub is_safe: bool,
}

impl RegionInfo {
    pub(crate) fn of(region: &FileRegion) -> RegionInfo {
        RegionInfo {
            path: region.path().display().to_string(),
            size: region.size(),
            way: match region.way() {
                Way::Lines(_) => "lines",
                Way::Pages => "pages",
                Way::Stores => "stores",
            },
            is_safe: region.durability() == Durability::Power,
            survives: match region.durability() {
                Durability::Power => "a loss of power",
                Durability::Process => "the process, not the machine",
                Durability::Nothing => "nothing",
            },
        }
    }
}

/// Opens and locks it.
///
/// # Errors
/// As [`FileRegion::open_all`]; `Unsuitable` where there is no file.
pub(crate) fn open(path: &Path) -> Result<Arc<FileRegion>> {
    if !path.exists() {
        let reason =
            "there is no such file for records of files; make one, such as with truncate -s 64M";
        let path = path.to_owned();
        let reason = reason.to_owned();
        return Err(FsError::from(BlockError::Unsuitable { path, reason }));
    }
    Ok(Arc::new(FileRegion::open_all(path)?))
}

/// A copy of it in memory, for a recovery on trial. The file is not changed.
///
/// # Errors
/// As [`open`].
pub(crate) fn copy(path: &Path) -> Result<RegionSource> {
    let region = open(path)?;
    let mut bytes = vec![0; region.size().min(MOST_BYTES) as usize];
    region.read(0, &mut bytes)?;
    Ok(RegionSource::Open(Arc::new(MemRegion::from_bytes(&bytes))))
}

/// Whether a journal has a use for a region.
///
/// # Errors
/// What it needs, as a sentence.
pub fn check_region(journal: &Composition) -> Result<(), String> {
    match journal.has_records() {
        true => Ok(()),
        false => Err(
            "nvm is where records of files go, which this journal has not: add sync=file (journal=ijournal has it)"
                .into(),
        ),
    }
}
