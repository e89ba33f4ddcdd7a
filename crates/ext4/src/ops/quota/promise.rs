//! Promises of space and inodes to the accounts that an operation charges.

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::InodeBody;
use crate::quota::Accounts;
use crate::quota::promise::Promise;
use crate::state::tally::{Held, KINDS, Owner};
use crate::types::Ctx;
use std::sync::Arc;

/// The least room of these accounts.
fn least_room(all: &[Accounts; KINDS], ids: &[Option<u32>; KINDS], now: u64) -> (u64, u64) {
    let accounts = all
        .iter()
        .zip(ids)
        .filter_map(|(accounts, id)| accounts.by_id.get(id.as_ref()?));
    accounts.fold((u64::MAX, u64::MAX), |least, account| {
        let room = account.room(now);
        (least.0.min(room.0), least.1.min(room.1))
    })
}

impl Fs {
    /// Promises `blocks` blocks and `inodes` inodes to the owner of an inode, and opens the
    /// accounts that it needs (quota.Q3). Root may exceed the limits. No handle may be open; inode
    /// locks may be held.
    ///
    /// # Errors
    /// EDQUOT; ENOSPC when there is no room for a new account.
    pub(crate) fn promise(
        &self,
        ctx: &Ctx,
        owner: Owner,
        blocks: u64,
        inodes: u64,
    ) -> Result<Promise<'_>> {
        self.promise_some(ctx, owner.map(Some), blocks..=blocks, inodes)
            .map(|(_, promise)| promise)
    }

    /// [`promise`](Self::promise) for as many blocks as there is room for, but at least the start
    /// of the range. Returns their number. Ids that are `None` are skipped.
    pub(crate) fn promise_some(
        &self,
        ctx: &Ctx,
        ids: [Option<u32>; KINDS],
        blocks: std::ops::RangeInclusive<u64>,
        inodes: u64,
    ) -> Result<(u64, Promise<'_>)> {
        let (least, most) = blocks.into_inner();
        let Some(quotas) = self.inodes.quotas() else {
            return Ok((most, Promise { held: None }));
        };
        self.open_accounts(quotas, &ids)?;
        let size = u64::from(self.vol.geo.block_size);
        let mut all = quotas.accounts.lock();
        let mut blocks = most;
        if ctx.uid != 0 {
            let room = least_room(&all, &ids, self.vol.seconds());
            blocks = most.min(room.0 / size);
            // An operation that needs nothing is never refused.
            if blocks < least || inodes > room.1 {
                return Err(FsError::Errno(libc::EDQUOT));
            }
        }
        let space = blocks.saturating_mul(size);
        for (accounts, id) in all.iter_mut().zip(ids) {
            if let Some(account) = id.and_then(|id| accounts.by_id.get_mut(&id)) {
                account.promised_space = account.promised_space.saturating_add(space);
                account.promised_inodes = account.promised_inodes.saturating_add(inodes);
            }
        }
        let held = Arc::new(Held {
            ids,
            space: space.into(),
            inodes: inodes.into(),
        });
        let held = Some((quotas, held));
        Ok((blocks, Promise { held }))
    }

    /// Promises the owner of a file up to `most` clusters, but at least one. Blocks of the map are
    /// not included.
    ///
    /// # Errors
    /// EDQUOT.
    pub(crate) fn promise_clusters(
        &self,
        ctx: &Ctx,
        body: &mut InodeBody,
        most: u64,
    ) -> Result<(u64, Promise<'_>)> {
        let ratio = u64::from(self.vol.geo.ratio());
        let blocks = ratio..=most.saturating_mul(ratio);
        let (blocks, promise) = self.promise_some(ctx, body.owner().map(Some), blocks, 0)?;
        promise.give(body);
        Ok((blocks / ratio, promise))
    }

    /// Promises the owner of a file the space to which its inline content moves when the file
    /// grows.
    ///
    /// # Errors
    /// EDQUOT.
    pub(crate) fn promise_move_out(&self, ctx: &Ctx, body: &mut InodeBody) -> Result<Promise<'_>> {
        if !body.is_inline() || body.size() == 0 {
            return Ok(Promise { held: None });
        }
        self.promise_clusters(ctx, body, 1)
            .map(|(_, promise)| promise)
    }

    /// Promises the owner of a directory `clusters` clusters for names.
    ///
    /// # Errors
    /// EDQUOT.
    pub(crate) fn promise_dir(
        &self,
        ctx: &Ctx,
        dir: &mut InodeBody,
        clusters: u32,
    ) -> Result<Option<Promise<'_>>> {
        if clusters == 0 {
            return Ok(None);
        }
        let blocks = u64::from(clusters) * u64::from(self.vol.geo.ratio());
        let promise = self.promise(ctx, dir.owner(), blocks, 0)?;
        promise.give(dir);
        Ok(Some(promise))
    }

    /// Promises the new owner of an inode all that it uses; this counts its values
    /// (`Usage::inodes`). The caller holds its lock, and changes owner and inode in one handle.
    ///
    /// # Errors
    /// EDQUOT; ENOSPC when there is no room for a new account.
    pub(crate) fn promise_owner(
        &self,
        ctx: &Ctx,
        inode: &crate::inode::Inode,
        body: &mut InodeBody,
        new: Owner,
    ) -> Result<Promise<'_>> {
        if self.inodes.quotas().is_none() {
            return Ok(Promise { held: None });
        }
        let values = self.inodes.count_values(inode, body)?;
        let tally = &mut body.tally;
        tally.counted.inodes += values - tally.values;
        tally.values = values;
        let used = body.usage();
        let old = used.owner;
        let mut ids = new.map(Some);
        for (id, old) in ids.iter_mut().zip(old) {
            *id = id.filter(|id| *id != old);
        }
        let below_nothing = |_| {
            let detail = format!("inode {}: its usage would become negative", inode.ino);
            FsError::corrupt("quota", 0, detail)
        };
        let space = u64::try_from(used.space).map_err(below_nothing)?;
        let inodes = u64::try_from(used.inodes).map_err(below_nothing)?;
        let blocks = space / u64::from(self.vol.geo.block_size);
        let (_, promise) = self.promise_some(ctx, ids, blocks..=blocks, inodes)?;
        promise.give(body);
        Ok(promise)
    }
}
