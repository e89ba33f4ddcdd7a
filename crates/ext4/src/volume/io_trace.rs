//! Recording of the requests above the cache, for a tap (trace).

use stetfs_block::Layer;
use stetfs_journal::BlockNr;

use super::shared::Volume;

impl Volume {
    /// Notes a read or write of a run of blocks of a file.
    pub(crate) fn note_io(&self, write: bool, start: BlockNr, blocks: u64) {
        if let Some(tap) = self.sb.tap.get() {
            let bits = self.geo.block_bits;
            tap.note(
                Layer::Above,
                write,
                start << bits..start.saturating_add(blocks) << bits,
            );
        }
    }
}
