//! Quota: usage and limits of users, groups and projects.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use stetfs_block::OpenOptions;
use stetfs_ext4::{Fs, FsError, FsOptions, QuotaEntry, QuotaKind, QuotaLimits, QuotaUsage, Result};
use stetfs_journal::region::RegionSource;
use stetfs_sync::timed::mpsc::channel;

use super::external;
use super::part::Source;
use super::region;
use super::volume::Volume;

/// The usage and limits of a volume.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaInfo {
    /// The volume.
    pub volume: String,
    /// By `user`, `group` or `project`; empty on volumes without the feature `quota`.
    pub kinds: Vec<QuotaKindInfo>,
}

/// Usage of one kind of ids.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaKindInfo {
    /// `user`, `group` or `project`.
    pub kind: &'static str,
    /// Time for which soft limits of space may be exceeded, seconds.
    pub space_grace: u32,
    /// Time for which soft limits of inodes may be exceeded, seconds.
    pub inode_grace: u32,
    /// In ascending order of ids.
    pub entries: Vec<QuotaIdInfo>,
}

/// Usage and limits of one id. A limit of 0 means no limit.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaIdInfo {
    /// The id of a user, group or project.
    pub id: u32,
    /// Bytes in use.
    pub space: u64,
    /// Soft limit, bytes.
    pub space_soft: u64,
    /// Hard limit, bytes.
    pub space_hard: u64,
    /// Time at which the exceeded soft limit becomes a hard one, seconds since 1970; 0: it is not
    /// exceeded.
    pub space_until: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Soft limit, inodes.
    pub inodes_soft: u64,
    /// Hard limit, inodes.
    pub inodes_hard: u64,
    /// As `space_until`.
    pub inodes_until: u64,
}

impl From<&QuotaEntry> for QuotaIdInfo {
    fn from(e: &QuotaEntry) -> QuotaIdInfo {
        let bytes = |kib: u64| kib.saturating_mul(1024);
        QuotaIdInfo {
            id: e.id,
            space: e.space,
            space_soft: bytes(e.limits.space_soft),
            space_hard: bytes(e.limits.space_hard),
            space_until: e.space_time,
            inodes: e.inodes,
            inodes_soft: e.limits.inodes_soft,
            inodes_hard: e.limits.inodes_hard,
            inodes_until: e.inode_time,
        }
    }
}

impl From<&QuotaUsage> for QuotaKindInfo {
    fn from(usage: &QuotaUsage) -> QuotaKindInfo {
        QuotaKindInfo {
            kind: usage.kind.name(),
            space_grace: usage.space_grace,
            inode_grace: usage.inode_grace,
            entries: usage.entries.iter().map(QuotaIdInfo::from).collect(),
        }
    }
}

fn open(source: &Source, read_only: bool) -> Result<Arc<Fs>> {
    let how = OpenOptions {
        read_only,
        ..OpenOptions::default()
    };
    let (device, journal) = external::any(external::devices(source, how)?);
    let region = source.nvm.as_ref().map(region::open).transpose()?;
    let options = FsOptions {
        read_only,
        region: region.map_or(RegionSource::None, |region| RegionSource::Open(region)),
        ..FsOptions::default()
    };
    Fs::open_with(device, journal, options, &mut |_, _| {})
}

/// The usage and limits of a volume; changes nothing.
///
/// # Errors
/// The volume is in use, needs recovery, is damaged or of an unknown kind; a device failed.
pub fn quota(source: &Source) -> Result<QuotaInfo> {
    QuotaInfo::read(&source.path, &*open(source, true)?)
}

impl QuotaInfo {
    fn read(path: &Path, fs: &Fs) -> Result<QuotaInfo> {
        Ok(QuotaInfo {
            volume: path.display().to_string(),
            kinds: fs.quota()?.iter().map(QuotaKindInfo::from).collect(),
        })
    }
}

impl Volume {
    /// The current usage and limits.
    ///
    /// # Errors
    /// The volume is damaged; the device failed.
    pub fn quota(&self) -> Result<QuotaInfo> {
        QuotaInfo::read(self.path(), self.fs())
    }

    /// Sets the limits of an id. They are durable when this returns.
    ///
    /// # Errors
    /// ESRCH if the volume does not count this kind; EROFS; ENOSPC; those of a sync.
    pub fn set_quota(&self, kind: QuotaKind, id: u32, limits: QuotaLimits) -> Result<()> {
        self.fs().set_limits(kind, id, limits)?;
        let (tell, told) = channel();
        // The receiver exists until it has the answer.
        self.fs()
            .sync_all(Box::new(move |synced| drop(tell.send(synced))));
        let lost = FsError::Errno(rustix::io::Errno::IO.raw_os_error());
        told.recv().unwrap_or(Err(lost))
    }
}

/// Sets the limits of an id of a volume that is not open; recovers the volume if needed.
///
/// # Errors
/// As [`quota`]; ESRCH if the volume does not count this kind.
pub fn set_quota(source: &Source, kind: QuotaKind, id: u32, limits: QuotaLimits) -> Result<()> {
    let fs = open(source, false)?;
    let set = fs.set_limits(kind, id, limits);
    fs.unmount()?;
    set
}
