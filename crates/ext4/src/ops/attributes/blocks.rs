//! Quota promises for changes of attributes.

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::InodeBody;
use crate::quota::Promise;
use crate::types::Ctx;
use crate::xattr::layout::Layout;

impl Fs {
    /// Promises from the owner's quota what [`xattr_apply`](Self::xattr_apply) needs.
    ///
    /// # Errors
    /// EDQUOT.
    pub(crate) fn promise_attributes(
        &self,
        ctx: &Ctx,
        body: &mut InodeBody,
        layout: &Layout,
    ) -> Result<Promise<'_>> {
        let block = match body.file_acl() {
            0 => layout.blocks() * u64::from(self.vol.geo.ratio()),
            _ => 0,
        };
        let new: i64 = layout
            .added
            .iter()
            .map(|v| self.inodes.value_charge(v.size()))
            .sum();
        let blocks = block + u64::try_from(new).unwrap_or(0);
        let promise = self.promise(ctx, body.owner(), blocks, layout.values())?;
        promise.give(body);
        Ok(promise)
    }
}
