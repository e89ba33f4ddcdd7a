//! Discard of blocks as they become free (`discard`).

use super::allocator::Allocator;
impl Allocator {
    /// Discards `len` clusters of a group that a valid transaction freed and that cannot be
    /// allocated yet. A failed discard loses nothing, so it is only logged.
    pub(super) fn discard_freed(&self, group: u32, bit: u32, len: u32) {
        if !self.vol.opts.discard && self.vol.opts.epoch.is_none() {
            return;
        }
        let layout = &self.vol.geo.layout;
        let ratio = u64::from(self.vol.geo.ratio());
        let start = layout.group_first_block(group) + u64::from(bit) * ratio;
        // The volume's last cluster may be short.
        let end = (start + u64::from(len) * ratio).min(layout.valid_blocks().end);
        let size = u64::from(self.vol.geo.block_size);
        if let Err(e) = self.vol.cache.device().discard(start * size..end * size) {
            tracing::warn!("free blocks could not be discarded: {e}");
        }
    }
}
