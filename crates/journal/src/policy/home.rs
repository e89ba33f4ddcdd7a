//! How committed images reach their home blocks.

use std::collections::HashSet;

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

/// A committed image on its way home by where it stands in the log: its content is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where it belongs.
    pub nr: BlockNr,
    /// Where it stands verbatim in the log, if it does.
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
    /// Brings the images home, sorted by block number, one for each block. On return the device has
    /// them all, but they are durable only after a flush.
    ///
    /// # Errors
    /// The device's; the caller stops the journal.
    fn send(&self, device: &dyn BlockDevice, images: &[HomeImage]) -> Result<Sent>;

    /// Brings home those of the images that need not be read for that, and says which these are;
    /// the others are to be [`send`](Self::send). All were proven, in blocks of `block` bytes;
    /// they are sorted by block number, one for each block.
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

/// Writes each image to its home.
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
