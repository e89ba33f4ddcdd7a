//! What is asked of a volume, for whoever records it.

use std::sync::Arc;

use stetfs_block::{Layer, Tap};
use stetfs_journal::BlockNr;

use super::shared::Volume;
use crate::fs::Fs;

impl Fs {
    /// Where the volume's requests come by: blocks of files as they are read and written, and what
    /// of all that reaches the device. The journal of a volume that has it on another device is
    /// not among it.
    pub fn tap(&self) -> Option<&Arc<Tap>> {
        self.vol.sb.tap.get()
    }
}

impl Volume {
    /// A run of blocks of a file is read or written.
    pub(crate) fn note_asked(&self, write: bool, start: BlockNr, blocks: u64) {
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
