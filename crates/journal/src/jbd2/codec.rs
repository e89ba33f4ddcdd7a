//! jbd2's codec: descriptor blocks with their images, revoke blocks, and a commit block.

use std::sync::Arc;

use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::jbd2::descriptor::{FLAG_ESCAPE, image_checksum, tags_per_block};
use stetfs_ondisk::jbd2::{Config, MAGIC};
use stetfs_ondisk::num::low32;

use crate::canary::Canary;
use crate::error::Result;
use crate::ids::{BlockNr, TxId};
use crate::policy::ImageRef;

/// The jbd2 format with a given configuration.
#[derive(Clone, Copy, Debug)]
pub struct Jbd2Codec {
    /// Widths and checksums.
    pub config: Config,
    /// UUID for the first tag of each descriptor.
    pub uuid: [u8; 16],
    /// Whether image checksums decide if the last transaction is complete (`async_commit`).
    pub async_commit: bool,
    /// Deliberate faults.
    pub canary: Canary,
}

impl Jbd2Codec {
    pub(super) fn tags_per_block(&self) -> u64 {
        (tags_per_block(&self.config) as u64).max(1)
    }

    /// The image as jbd2 stores it, and whether it is escaped: the first word of a block that
    /// begins with jbd2's magic is zeroed.
    pub(super) fn stored(image: &PageRef) -> (PageRef, bool) {
        if !image.starts_with(&MAGIC.to_be_bytes()) {
            return (Arc::clone(image), false);
        }
        let mut copy = Page::copy_of(image);
        copy.iter_mut().take(4).for_each(|b| *b = 0);
        (Arc::new(copy), true)
    }
}

impl Jbd2Codec {
    /// Whether a stored image matches its tag.
    pub(super) fn image_matches(&self, tid: u32, check: u32, stored: &[u8]) -> bool {
        self.canary.skip_checksums
            || !self.config.csum.in_blocks()
            || image_checksum(&self.config, tid, stored) == check
    }

    /// Checks that tags and revoke entries have room for all these block numbers.
    pub(super) fn check_width(&self, mut blocks: impl Iterator<Item = BlockNr>) -> Result<()> {
        let is_wide = |nr: &BlockNr| !self.config.wide && *nr > u64::from(u32::MAX);
        match blocks.find(is_wide) {
            Some(nr) => Err(OnDiskError::Unsupported {
                feature: format!("block {nr} is beyond the 32-bit block numbers of the journal"),
            }
            .into()),
            None => Ok(()),
        }
    }

    pub(super) fn restore(&self, tx: TxId, image: &ImageRef, stored: PageRef) -> Result<PageRef> {
        if !self.image_matches(low32(tx.seq), image.check, &stored) {
            return Err(OnDiskError::Corrupt {
                what: "journal image",
                detail: format!(
                    "checksum of log block {} in transaction {} does not match",
                    image.at, tx.seq
                ),
            }
            .into());
        }
        if image.flags & FLAG_ESCAPE == 0 || self.canary.keep_escaped {
            return Ok(stored);
        }
        let mut copy = Page::copy_of(&stored);
        copy.iter_mut()
            .zip(MAGIC.to_be_bytes())
            .for_each(|(to, from)| *to = from);
        Ok(Arc::new(copy))
    }
}
