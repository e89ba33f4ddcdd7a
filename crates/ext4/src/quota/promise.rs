//! Limits: an operation is promised its usage before it begins, or gets EDQUOT.

use std::sync::Arc;

use stetfs_ondisk::ext4::quota::Entry;

use super::{Account, Quotas};
use crate::inode::InodeBody;
use crate::state::tally::{Held, UNIT};

/// A promise of usage. The unused rest ends when it is dropped.
#[must_use]
pub(crate) struct Promise<'a> {
    /// `None`: the volume has no quota.
    pub(crate) held: Option<(&'a Quotas, Arc<Held>)>,
}

impl Promise<'_> {
    /// A promise of nothing, for no id.
    #[cfg(test)]
    pub(crate) fn nothing() -> Promise<'static> {
        Promise { held: None }
    }

    /// Lets the usage counted for this inode be taken from the promise.
    pub(crate) fn give(&self, body: &mut InodeBody) {
        body.tally.promise = self.held.as_ref().map(|(_, held)| held.clone());
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let Some((quotas, held)) = &self.held else {
            return;
        };
        let mut all = quotas.accounts.lock();
        let left = held.part(i64::MAX, i64::MAX);
        for (accounts, id) in all.iter_mut().zip(held.ids) {
            if let Some(account) = id.and_then(|id| accounts.by_id.get_mut(&id)) {
                account.promised_space = account.promised_space.saturating_sub(left.0);
                account.promised_inodes = account.promised_inodes.saturating_sub(left.1);
            }
        }
        held.took(left);
    }
}

/// The usage that is left below a hard limit, and below a soft limit whose grace time is over.
pub(crate) fn room(used: u64, hard: u64, soft: u64, time: u64, now: u64) -> u64 {
    let below = |limit: u64| match limit {
        0 => u64::MAX,
        limit => limit.saturating_sub(used),
    };
    let soft = if time != 0 && now >= time { soft } else { 0 };
    below(hard).min(below(soft))
}

impl Account {
    /// Bytes and inodes that the id may still use.
    pub(crate) fn room(&self, now: u64) -> (u64, u64) {
        let Entry {
            limits: l,
            space_time,
            inode_time,
            ..
        } = self.entry;
        let space = self.entry.space.saturating_add(self.promised_space);
        let inodes = self.entry.inodes.saturating_add(self.promised_inodes);
        let bytes = |limit: u64| limit.saturating_mul(UNIT);
        (
            room(
                space,
                bytes(l.space_hard),
                bytes(l.space_soft),
                space_time,
                now,
            ),
            room(inodes, l.inodes_hard, l.inodes_soft, inode_time, now),
        )
    }
}
