//! Telling the device of blocks as they become free (`discard`).

use crate::fs::Fs;
use crate::types::BlockNr;

impl Fs {
    /// Discards `len` blocks that a valid transaction freed and that cannot be allocated yet. A device
    /// that fails at this has lost nothing: it is told, and that is all.
    pub(super) fn discard_freed(&self, start: BlockNr, len: u64) {
        if !self.opts.discard {
            return;
        }
        let size = u64::from(self.geo.block_size);
        let device = self.cache.device();
        if let Err(e) = device.discard(start * size..(start + len) * size) {
            tracing::warn!("free blocks could not be discarded: {e}");
        }
    }
}
