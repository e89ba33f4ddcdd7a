//! Migration of maps to the other kind (`chattr +e`).

use crate::data::maps::migrate::Migration;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::types::Ctx;
use stetfs_ondisk::ext4::inode::InodeFlags;

impl Fs {
    /// Plans the migration of a file's or directory's map to the other kind.
    ///
    /// # Errors
    /// EBUSY in an atomic group; errors of the store's plan.
    pub(crate) fn plan_migration(&self, inode: &Inode, body: &InodeBody) -> Result<Migration> {
        inode.check_alone()?;
        self.vol.noted(self.data.plan_migration(inode, body))
    }

    /// Sets these flags, migrates the map to the kind that they name, and sets the time of the
    /// change.
    ///
    /// # Errors
    /// EDQUOT, ENOSPC: nothing has changed then.
    pub(crate) fn migrate(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        body: &mut InodeBody,
        new: InodeFlags,
        migration: &Migration,
    ) -> Result<()> {
        let quota = self.promise(ctx, body.owner(), migration.growth(), 0)?;
        quota.give(body);
        let is_privileged = self.space.privileged(ctx);
        let _room = self.space.reserve(migration.nodes, is_privileged)?;
        let h = self.vol.begin(inode.ino, migration.credits)?;
        body.set_flags(new);
        body.touch(self.vol.now());
        self.vol
            .whole(|| self.data.migrate(&h, inode, body, migration))
    }
}
