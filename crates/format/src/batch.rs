//! Writes that are gathered, so that many small ones go to the device together.

use stetfs_block::{BlockDevice, Write};

use crate::error::Result;

/// Bytes that are gathered at most.
const MOST: usize = 8 << 20;

/// Gathered writes of whole blocks. Those of one batch have no order.
pub(crate) struct Batch<'d> {
    device: &'d dyn BlockDevice,
    /// Bytes.
    block_size: u64,
    pending: Vec<(u64, Vec<u8>)>,
    bytes: usize,
}

impl<'d> Batch<'d> {
    pub(crate) fn new(device: &'d dyn BlockDevice, block_size: u32) -> Batch<'d> {
        Batch {
            device,
            block_size: u64::from(block_size),
            pending: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a write that begins with block `nr`.
    pub(crate) fn push(&mut self, nr: u64, data: Vec<u8>) -> Result<()> {
        self.bytes += data.len();
        self.pending.push((nr * self.block_size, data));
        if self.bytes >= MOST {
            self.send()?;
        }
        Ok(())
    }

    /// Sends what is pending.
    pub(crate) fn send(&mut self) -> Result<()> {
        let all = self.pending.iter();
        let writes: Vec<_> = all.map(|(at, data)| Write::new(*at, data)).collect();
        self.device.write_batch(&writes)?;
        self.pending.clear();
        self.bytes = 0;
        Ok(())
    }
}
