//! The home policy: how committed images reach their home locations.

use std::collections::HashSet;

use stetfs_block::{BlockDevice, WriteList};
use stetfs_cache::PageRef;

use crate::error::Result;
use crate::ids::BlockNr;
use crate::policy::Place;

/// A committed image that is to be written home.
pub struct HomeImage {
    /// The home block.
    pub nr: BlockNr,
    /// The content.
    pub page: PageRef,
    /// The place where the image is verbatim in the log, if there is one.
    pub place: Option<Place>,
}

/// A committed image that is to go home from its place in the log: its content is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The home block.
    pub nr: BlockNr,
    /// The place where the image is verbatim in the log, if there is one.
    pub place: Option<Place>,
}

impl From<&HomeImage> for Standing {
    fn from(image: &HomeImage) -> Standing {
        Standing {
            nr: image.nr,
            place: image.place,
        }
    }
}

/// The number of images that went home, in blocks, by the way they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Images that the device shared.
    pub shared: u64,
    /// Images that were written.
    pub copied: u64,
}

/// The home policy.
pub trait Home: Send + Sync {
    /// Brings the images to their home locations. They are sorted by block number, one for each
    /// block. On return the device has them all, but they are durable only after a flush.
    ///
    /// # Errors
    /// The device's; the caller stops the journal.
    fn send(&self, device: &dyn BlockDevice, images: &[HomeImage]) -> Result<Sent>;

    /// Brings home those images that need not be read for it, and returns their blocks; the others
    /// are to be [`send`](Self::send). The caller has checked all of them. They have `block` bytes
    /// each, and are sorted by block number, one for each block.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn send_standing(
        &self,
        device: &dyn BlockDevice,
        block: u64,
        images: &[Standing],
    ) -> Result<HashSet<BlockNr>>;
}

/// The home policy that writes each image to its home location.
#[derive(Debug, Default)]
pub struct CopyHome;

impl Home for CopyHome {
    fn send(&self, device: &dyn BlockDevice, images: &[HomeImage]) -> Result<Sent> {
        let copied = copy(device, images)?;
        Ok(Sent { shared: 0, copied })
    }

    fn send_standing(
        &self,
        _: &dyn BlockDevice,
        _: u64,
        _: &[Standing],
    ) -> Result<HashSet<BlockNr>> {
        Ok(HashSet::new())
    }
}

/// Writes images to their home locations. Returns how many.
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
