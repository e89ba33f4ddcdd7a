//! The options of a recovery, and its report.

use stetfs_block::BlockDevice;
use stetfs_cache::PageRef;

use crate::canary::Canary;
use crate::damage::Damage;
use crate::edges::Dropped;
use crate::error::{Result, lost};
use crate::ids::{BlockNr, Lane};
use crate::policy::EndReason;

/// A check of an image: the reason why these bytes cannot be an image of this block.
pub type CannotBe = fn(BlockNr, &[u8]) -> Option<&'static str>;

/// A replacement for an image that goes home, for blocks that a crash must not tear, because the
/// volume could not be opened again to repeat its recovery. The function gets the device with the
/// old content at home.
pub type Adapt = fn(&dyn BlockDevice, BlockNr, &[u8]) -> stetfs_block::Result<Option<PageRef>>;

/// The options of a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryOptions {
    /// Read and check everything, and write nothing.
    pub dry_run: bool,
    /// From a damaged log, write the intact images home: a part of the volume is better than
    /// nothing.
    pub salvage: bool,
    /// The check for an image that cannot be one of its block. It finds damage that no checksum
    /// shows.
    pub cannot_be: Option<CannotBe>,
    /// The replacement of some images. Images that the device shares without reading them do not
    /// pass it: such a block is entirely old or new.
    pub adapt: Option<Adapt>,
    /// Deliberate faults.
    pub canary: Canary,
}

/// The report of a recovery: what it found and did (or, in a dry run, would do).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Valid transactions.
    pub transactions: u64,
    /// Durable transactions that were left out because something they depend on is missing.
    pub invalid: u64,
    /// The transactions left out, and what each lacks.
    pub dropped: Vec<Dropped>,
    /// Blocks written home or shared.
    pub blocks: u64,
    /// The blocks that the device shared; the others were written.
    pub shared: u64,
    /// Images passed over because a newer one of the block follows.
    pub superseded: u64,
    /// Images passed over because a later transaction freed the block.
    pub revoked: u64,
    /// Records of files that no valid transaction supersedes: the file system applies them.
    pub records: u64,
    /// Records of files that a valid transaction supersedes.
    pub records_superseded: u64,
    /// Fast commits of Linux that follow the transactions: the file system applies them.
    pub fast_commits: u64,
    /// First and last sequence of the valid transactions, per lane.
    pub range: Vec<(Lane, u64, u64)>,
    /// The reason why each lane ended.
    pub ends: Vec<EndReason>,
    /// The damage that was left out ([`RecoveryOptions::salvage`]): blocks of the volume may be
    /// older than others that refer to them.
    pub damage: Damage,
}

impl RecoveryReport {
    /// Reports damage: as an error, or, when salvaging, as an entry of the report.
    pub(super) fn damaged(&mut self, how: RecoveryOptions, why: String) -> Result<()> {
        if !how.salvage {
            return Err(lost(why).into());
        }
        self.damage.push(why);
        Ok(())
    }
}
