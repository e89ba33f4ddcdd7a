//! `home=share`: a checkpoint that writes nothing. Images that stand verbatim in the log are shared to their homes by the device
//! (AFS: Kang's dissertation, ch. 3, SDJ); all others are written there, block by block.
//!
//! Invariants:
//! * **share.S1** Only what has a `Place` is shared.
//! * **share.S2** No place of what goes home together is the home of another: each share finds the image that was committed.
//! * **share.S3** To share is to write to the home: it is durable after a flush, and the tail passes the log block only then
//!   (checkpoint.K2). From then on the device keeps what is shared, whether the log block is written or trimmed.
//! * **share.S4** The same images can be shared any number of times: of a batch that a crash left in part recovery shares all again.

mod parts;
mod plan;

use stetfs_block::{BlockDevice, BlockError, Share};

use crate::error::Result;
use crate::policy::{CopyHome, Home, HomeImage, Sent, copy};
use plan::{Plan, pairs};

/// Shares each image to its home, if it has a place and the device can; else writes it there.
#[derive(Debug, Default)]
pub struct ShareHome;

impl Home for ShareHome {
    fn send(&self, device: &dyn BlockDevice, images: &[HomeImage]) -> Result<Sent> {
        let Some(share) = device.share() else {
            return CopyHome.send(device, images);
        };
        let Plan {
            shares,
            mut copies,
            batch,
        } = Plan::new(images, &share.limits());
        for batch in shares.chunks(batch.max(1)) {
            share_or_list(share, batch, &mut copies)?;
        }
        let copied = copy(device, copies)?;
        let shared = images.len() as u64 - copied;
        Ok(Sent { shared, copied })
    }
}

/// Shares a batch. What the device refuses is listed to be copied; where a part of the batch may be at fault, that alone.
///
/// # Errors
/// The device's, but for refusals: then nothing was done.
fn share_or_list<'i>(
    share: &dyn Share,
    batch: &[&'i HomeImage],
    refused: &mut Vec<&'i HomeImage>,
) -> Result<()> {
    match share.share_batch(&pairs(batch)) {
        Err(BlockError::ShareBatch { .. } | BlockError::ShareReferences { .. })
            if batch.len() > 1 =>
        {
            let (first, second) = batch.split_at(batch.len() / 2);
            share_or_list(share, first, refused)?;
            share_or_list(share, second, refused)
        }
        Err(
            why @ (BlockError::ShareBatch { .. }
            | BlockError::ShareReferences { .. }
            | BlockError::ShareUnit { .. }
            | BlockError::ShareOverlap { .. }
            | BlockError::ShareAcross { .. }),
        ) => {
            tracing::debug!("{} blocks are copied home: {why}", batch.len());
            refused.extend(batch);
            Ok(())
        }
        done => Ok(done?),
    }
}
