//! Usage of inodes: it is counted where an inode is put into the journal.

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::quota::{Entry, Info};

use super::{Account, Quotas};
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody, is_ordinary};
use crate::state::tally::{Owner, UNIT, Usage};
use crate::types::Ino;
use crate::volume::Volume;

impl Account {
    /// Counts a change, and begins or ends grace times.
    pub(crate) fn change(&mut self, space: i64, inodes: i64, info: &Info, now: u64) {
        let Entry { limits, .. } = self.entry;
        let e = &mut self.entry;
        e.space = e.space.saturating_add_signed(space);
        e.inodes = e.inodes.saturating_add_signed(inodes);
        let timer = |time: &mut u64, over: bool, grace: u32| match (over, *time) {
            (false, _) => *time = 0,
            (true, 0) => *time = now.saturating_add(u64::from(grace)),
            (true, _) => {}
        };
        let over = |soft: u64, used: u64| soft != 0 && used > soft;
        let soft = limits.space_soft.saturating_mul(UNIT);
        timer(&mut e.space_time, over(soft, e.space), info.space_grace);
        let over = over(limits.inodes_soft, e.inodes);
        timer(&mut e.inode_time, over, info.inode_grace);
    }
}

impl Quotas {
    /// Whether the usage of this inode counts. The volume's own inodes do not.
    fn counts(&self, vol: &Volume, ino: Ino) -> bool {
        is_ordinary(&vol.geo, ino) && !self.files.iter().any(|f| f.inode.ino == ino)
    }

    /// Counts the change of the inode's usage since it was last put into the journal, within `h`.
    /// The credits are in the margin of every handle.
    ///
    /// # Errors
    /// Errors of the device: the transaction must not commit then.
    pub(crate) fn count_usage(
        &self,
        vol: &Volume,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        let (old, new) = (body.tally.counted, body.usage());
        if old == new || inode.value || !self.counts(vol, inode.ino) {
            return Ok(());
        }
        let promise = body.tally.promise.clone();
        let mut taken = (0, 0);
        let now = vol.seconds();
        let mut all = self.accounts.lock();
        for file in &self.files {
            let kind = file.index();
            let accounts = &mut all[kind];
            let info = accounts.info.ok_or(FsError::Errno(libc::EIO))?;
            let (id, before) = (new.owner[kind], old.owner[kind]);
            let mut changes = [(id, new.space - old.space, new.inodes - old.inodes, true); 2];
            if id != before {
                changes = [
                    (before, -old.space, -old.inodes, false),
                    (id, new.space, new.inodes, true),
                ];
            }
            let first = usize::from(id == before);
            for (id, space, inodes, gets) in changes.into_iter().skip(first) {
                let Some(account) = accounts.by_id.get_mut(&id) else {
                    // quota.Q3: an existing inode has an account, or its maker did not count it.
                    tracing::warn!(ino = inode.ino, id, "no quota entry; run e2fsck");
                    continue;
                };
                if let Some(promise) = promise.as_ref().filter(|p| gets && p.covers(kind, id)) {
                    let part = promise.part(space, inodes);
                    account.promised_space = account.promised_space.saturating_sub(part.0);
                    account.promised_inodes = account.promised_inodes.saturating_sub(part.1);
                    taken = part;
                }
                account.change(space, inodes, &info, now);
                account.store(vol, h)?;
            }
        }
        if let Some(promise) = promise {
            promise.took(taken);
        }
        body.tally.counted = new;
        Ok(())
    }
}

impl InodeBody {
    /// User, group and project; project 0 if the inode has no room for one.
    pub(crate) fn owner(&self) -> Owner {
        [self.uid(), self.gid(), self.project().unwrap_or(0)]
    }

    /// The present usage of the inode.
    pub(crate) fn usage(&self) -> Usage {
        let space = self.blocks().saturating_mul(512);
        Usage {
            owner: self.owner(),
            space: i64::try_from(space).unwrap_or(i64::MAX),
            inodes: self.tally.values + i64::from(!self.tally.gone),
        }
    }
}
