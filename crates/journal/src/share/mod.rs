//! `home=share`: a checkpoint that copies no verbatim images.
//!
//! The device shares images that are verbatim in the log to their home locations (AFS: Kang's
//! dissertation, ch. 3, SDJ). All others are written there.
//!
//! Invariants:
//! * **share.S1** Only an image with a `Place` is shared.
//! * **share.S2** Among images that go home together, no place of one is the home location of
//!   another: each share finds the image that was committed.
//! * **share.S3** A share is a write to the home location: it is durable after a flush, and the
//!   tail passes the log block only then (checkpoint.K2). From then on the device keeps the shared
//!   content, whether the log block is written or trimmed.
//! * **share.S4** The same images can be shared any number of times: recovery shares a batch again
//!   as a whole if a crash left a part of it.
//! * **share.S5** An image that a recovery shares without having it in memory was read and checked
//!   before the first image went home.

mod parts;
mod plan;

use std::collections::HashSet;

use stetfs_block::{BlockDevice, BlockError, Share};

use crate::error::Result;
use crate::ids::BlockNr;
use crate::policy::{CopyHome, Home, HomeImage, Sent, Standing, copy};
use plan::{Plan, pairs};

/// The home policy that shares each image that has a place, if the device can; all others it
/// writes.
#[derive(Debug, Default)]
pub struct ShareHome;

impl Home for ShareHome {
    fn send(&self, device: &dyn BlockDevice, images: &[HomeImage]) -> Result<Sent> {
        let Some(first) = images.first().filter(|_| device.share().is_some()) else {
            return CopyHome.send(device, images);
        };
        let standing: Vec<Standing> = images.iter().map(Standing::from).collect();
        let home = self.send_standing(device, first.page.len() as u64, &standing)?;
        let rest = images.iter().filter(|image| !home.contains(&image.nr));
        let copied = copy(device, rest)?;
        let shared = home.len() as u64;
        Ok(Sent { shared, copied })
    }

    fn send_standing(
        &self,
        device: &dyn BlockDevice,
        block: u64,
        images: &[Standing],
    ) -> Result<HashSet<BlockNr>> {
        let Some(share) = device.share() else {
            return Ok(HashSet::new());
        };
        let Plan { shares, batch } = Plan::new(images, block, &share.limits());
        let mut home = HashSet::with_capacity(shares.len());
        for batch in shares.chunks(batch.max(1)) {
            share_what_is_taken(share, block, batch, &mut home)?;
        }
        Ok(home)
    }
}

/// Shares a batch. If the device refuses it for reasons that may lie in a part of it, the batch is
/// halved, so that only that part is left out. `home` gets the blocks that were shared.
///
/// # Errors
/// The device's; not its refusals, which change nothing.
fn share_what_is_taken(
    share: &dyn Share,
    block: u64,
    batch: &[&Standing],
    home: &mut HashSet<BlockNr>,
) -> Result<()> {
    match share.share_batch(&pairs(batch, block)) {
        Err(BlockError::ShareBatch { .. } | BlockError::ShareReferences { .. })
            if batch.len() > 1 =>
        {
            let (first, second) = batch.split_at(batch.len() / 2);
            share_what_is_taken(share, block, first, home)?;
            share_what_is_taken(share, block, second, home)
        }
        Err(
            why @ (BlockError::ShareBatch { .. }
            | BlockError::ShareReferences { .. }
            | BlockError::ShareUnit { .. }
            | BlockError::ShareOverlap { .. }
            | BlockError::ShareAcross { .. }),
        ) => {
            tracing::debug!(
                "{} blocks are written home instead of shared: {why}",
                batch.len()
            );
            Ok(())
        }
        done => {
            done?;
            home.extend(batch.iter().map(|image| image.nr));
            Ok(())
        }
    }
}
