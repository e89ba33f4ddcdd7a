//! Reports of usage and limits, and changes of limits.

use stetfs_ondisk::ext4::quota::{Entry, Limits, QuotaKind};

use crate::error::{FsError, Result};
use crate::fs::Fs;

/// Usage and limits of one kind of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Users, groups or projects.
    pub kind: QuotaKind,
    /// Grace time of soft limits of space, seconds.
    pub space_grace: u32,
    /// Grace time of soft limits of inodes, seconds.
    pub inode_grace: u32,
    /// Usage and limits of each id, in order of the ids.
    pub entries: Vec<Entry>,
}

impl Fs {
    /// Whether limits apply: the volume counts usage, and is open for writing.
    pub fn has_quota(&self) -> bool {
        self.inodes.quotas().is_some()
    }

    /// Usage and limits of every id that the volume has an entry for; empty on volumes without
    /// quota.
    ///
    /// # Errors
    /// Damage; errors of the device.
    pub fn quota(&self) -> Result<Vec<QuotaUsage>> {
        let read;
        let quotas = match self.inodes.quotas() {
            Some(quotas) => quotas,
            None => {
                read = self.read_quotas(self.quota_files(&self.vol.sb.current()?)?)?;
                &read
            }
        };
        let all = quotas.accounts.lock();
        let mut usage = Vec::new();
        for file in &quotas.files {
            let accounts = &all[file.index()];
            let mut entries: Vec<Entry> = accounts.by_id.values().map(|a| a.entry).collect();
            entries.sort_unstable_by_key(|e| e.id);
            usage.extend(accounts.info.map(|info| QuotaUsage {
                kind: file.kind,
                space_grace: info.space_grace,
                inode_grace: info.inode_grace,
                entries,
            }));
        }
        Ok(usage)
    }

    /// Sets the limits of an id.
    ///
    /// # Errors
    /// ESRCH when the volume does not count this kind; ENOSPC; EROFS.
    pub fn set_limits(&self, kind: QuotaKind, id: u32, limits: Limits) -> Result<()> {
        self.vol.writable()?;
        self.throttle()?;
        let quotas = self.inodes.quotas();
        let quotas = quotas.filter(|q| q.files.iter().any(|f| f.kind == kind));
        let Some(quotas) = quotas else {
            return Err(FsError::Errno(libc::ESRCH));
        };
        let mut ids = [None; crate::quota::KINDS];
        ids[kind as usize] = Some(id);
        self.open_accounts(quotas, &ids)?;
        let h = self.vol.journal.begin(1)?;
        let now = self.vol.seconds();
        let mut all = quotas.accounts.lock();
        let accounts = &mut all[kind as usize];
        let (Some(info), Some(account)) = (accounts.info, accounts.by_id.get_mut(&id)) else {
            return Err(FsError::Errno(libc::ESRCH));
        };
        account.entry.limits = limits;
        // Grace times begin and end with the new limits.
        account.change(0, 0, &info, now);
        self.vol.whole(|| account.store(&self.vol, &h))
    }
}
