//! `home=share`: a checkpoint that writes nothing. Images that stand verbatim in the log are shared
//! to their homes by the device (AFS: Kang's dissertation, ch. 3, SDJ); all others are written
//! there, block by block.
//!
//! Invariants:
//! * **share.S1** Only what has a `Place` is shared.
//! * **share.S2** No place of what goes home together is the home of another: each share finds the
//!   image that was committed.
//! * **share.S3** To share is to write to the home: it is durable after a flush, and the tail
//!   passes the log block only then (checkpoint.K2). From then on the device keeps what is shared,
//!   whether the log block is written or trimmed.
//! * **share.S4** The same images can be shared any number of times: of a batch that a crash left
//!   in part recovery shares all again.
//! * **share.S5** What a recovery shares without having it in memory was read and proven before the
//!   first image went home.

mod parts;
mod plan;

use std::collections::HashSet;

use stetfs_block::{BlockDevice, BlockError, Share};

use crate::error::Result;
use crate::ids::BlockNr;
use crate::policy::{CopyHome, Home, HomeImage, Sent, Standing, copy};
use plan::{Plan, pairs};

/// Shares each image to its home, if it has a place and the device can; else writes it there.
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

/// Shares a batch. Where the device refuses it, and a part of it may be at fault, that alone is
/// left out. `home` gets the others.
///
/// # Errors
/// The device's, but for refusals: then nothing was done.
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
            tracing::debug!("{} blocks are copied home: {why}", batch.len());
            Ok(())
        }
        done => {
            done?;
            home.extend(batch.iter().map(|image| image.nr));
            Ok(())
        }
    }
}
