//! How committed images reach their home blocks.

use stetfs_block::{BlockDevice, WriteList};
use stetfs_cache::PageRef;

use crate::error::Result;
use crate::ids::BlockNr;
use crate::policy::Place;

/// A committed image on its way home.
pub struct HomeImage {
    /// Where it belongs.
    pub nr: BlockNr,
    /// The content.
    pub page: PageRef,
    /// Where it stands verbatim in the log, if it does.
    pub place: Option<Place>,
}

/// How images went home, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The device shared them.
    pub shared: u64,
    /// They were written.
    pub copied: u64,
}

/// The home policy.
pub trait Home: Send + Sync {
    /// Brings the images home, sorted by block number, one for each block. On return the device has them all, but they
    /// are durable only after a flush.
    ///
    /// # Errors
    /// The device's; the caller stops the journal.
    fn send(&self, device: &dyn BlockDevice, images: &[HomeImage]) -> Result<Sent>;
}

/// Writes each image to its home.
#[derive(Debug, Default)]
pub struct CopyHome;

impl Home for CopyHome {
    fn send(&self, device: &dyn BlockDevice, images: &[HomeImage]) -> Result<Sent> {
        let copied = copy(device, images)?;
        Ok(Sent { shared: 0, copied })
    }
}

/// Writes images to their homes; says how many.
///
/// # Errors
/// The device's.
pub(crate) fn copy<'i>(
    device: &dyn BlockDevice,
    images: impl IntoIterator<Item = &'i HomeImage>,
) -> Result<u64> {
    let (mut list, mut count) = (WriteList::new(), 0);
    for image in images {
        list.push(image.nr * image.page.len() as u64, &image.page);
        count += 1;
    }
    list.submit(device)?;
    Ok(count)
}
