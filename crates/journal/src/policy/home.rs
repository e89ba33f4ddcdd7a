//! How committed images reach their home blocks.

use stetfs_block::{BlockDevice, WriteList};
use stetfs_cache::PageRef;

use crate::error::Result;
use crate::ids::BlockNr;

/// A committed image on its way home.
pub struct HomeImage {
    /// Where it belongs.
    pub nr: BlockNr,
    /// The content.
    pub page: PageRef,
    /// Where in the log it stands, as log block, when it stands there verbatim.
    pub in_log: Option<u64>,
}

/// The home policy.
pub trait Home: Send + Sync {
    /// Brings the images home, sorted by block number. On return the device has them all, but they
    /// are durable only after a flush.
    ///
    /// # Errors
    /// The device's; the caller stops the journal.
    fn send(&self, device: &dyn BlockDevice, images: &[HomeImage]) -> Result<()>;
}

/// Writes each image to its home.
#[derive(Debug, Default)]
pub struct CopyHome;

impl Home for CopyHome {
    fn send(&self, device: &dyn BlockDevice, images: &[HomeImage]) -> Result<()> {
        let mut list = WriteList::new();
        for image in images {
            list.push(image.nr * image.page.len() as u64, &image.page);
        }
        Ok(list.submit(device)?)
    }
}
