//! The tap for the volume's requests.

use crate::fs::Fs;
use std::sync::Arc;
use stetfs_block::Tap;

impl Fs {
    /// The tap that sees the volume's requests: reads and writes of file blocks, and the requests
    /// that reach the device. It does not see a journal on another device.
    pub fn tap(&self) -> Option<&Arc<Tap>> {
        self.vol.sb.tap.get()
    }
}
