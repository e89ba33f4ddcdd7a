//! The region of persistent memory for records of synced files.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use stetfs_block::{BlockError, Span};
use stetfs_ext4::{FsError, Result};
use stetfs_journal::Composition;
use stetfs_journal::region::{MOST_BYTES, RegionSource};
use stetfs_nvm::{Durability, FileRegion, FlushBy, MemRegion, Region};

/// The place of a region: a file, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionFile {
    /// The file.
    pub path: PathBuf,
    /// The first byte, a multiple of 64.
    pub offset: u64,
    /// Number of bytes, a multiple of 64; `None` up to the file's end.
    pub size: Option<u64>,
}

impl<P: Into<PathBuf>> From<P> for RegionFile {
    /// A whole file.
    fn from(path: P) -> RegionFile {
        RegionFile {
            path: path.into(),
            offset: 0,
            size: None,
        }
    }
}

/// A region that is in use.
#[derive(Clone, Debug, Serialize)]
pub struct RegionInfo {
    /// The file.
    pub path: String,
    /// Its first byte in the file.
    pub offset: u64,
    /// Size, bytes.
    pub size: u64,
    /// The method by which a sync makes stores durable: `lines` (the processor's cache line
    /// flushes), `pages` (msync) or `stores`.
    pub way: &'static str,
    /// The events that its records survive.
    pub survives: &'static str,
    /// Whether it survives a loss of power.
    pub is_safe: bool,
    /// Whether the transactions are in it, too.
    pub has_log: bool,
}

impl RegionInfo {
    pub(crate) fn of(region: &FileRegion, has_log: bool) -> RegionInfo {
        RegionInfo {
            has_log,
            path: region.path().display().to_string(),
            offset: region.part().start,
            size: region.size(),
            way: match region.write_back_by() {
                FlushBy::Lines(_) => "lines",
                FlushBy::Pages => "pages",
                FlushBy::Stores => "stores",
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
/// As [`FileRegion::open`]; `Unsuitable` if there is no file.
pub(crate) fn open(at: &RegionFile) -> Result<Arc<FileRegion>> {
    let path = &at.path;
    if !path.exists() {
        let reason =
            "there is no such file for file records; make one, such as with truncate -s 64M";
        let reason = reason.to_owned();
        return Err(FsError::from(BlockError::Unsuitable {
            path: path.clone(),
            reason,
        }));
    }
    let region = match at.size {
        None => FileRegion::open_from(path, at.offset)?,
        Some(len) => {
            let start = at.offset;
            FileRegion::open(path, Span { start, len })?
        }
    };
    Ok(Arc::new(region))
}

/// A copy of the region in memory, for a trial recovery. The file is not changed.
///
/// # Errors
/// As [`open`].
pub(crate) fn copy(at: &RegionFile) -> Result<RegionSource> {
    let region = open(at)?;
    let mut bytes = vec![0; region.size().min(MOST_BYTES) as usize];
    region.read(0, &mut bytes)?;
    Ok(RegionSource::Open(Arc::new(MemRegion::from_bytes(&bytes))))
}

/// Checks that a journal uses a region.
///
/// # Errors
/// The missing requirement, as a sentence.
pub fn check_region(journal: &Composition) -> Result<(), String> {
    match journal.has_records() || journal.is_in_region() {
        true => Ok(()),
        false => Err(
            "nvm names the place of file records, which this journal does not write: add sync=file \
             (journal=ijournal has it)"
                .into(),
        ),
    }
}
