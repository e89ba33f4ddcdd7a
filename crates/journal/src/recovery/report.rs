//! How a recovery is to be done, and what it tells of itself.

use stetfs_block::BlockDevice;
use stetfs_cache::PageRef;

use crate::damage::Damage;
use crate::edges::Dropped;
use crate::engine::Canary;
use crate::error::{Result, lost};
use crate::ids::{BlockNr, Lane};
use crate::policy::EndReason;

/// Why these bytes cannot be an image of this block.
pub type CannotBe = fn(BlockNr, &[u8]) -> Option<&'static str>;

/// What goes home in place of an image, if it is of a block that a crash must not tear: nothing
/// could open the volume again to repeat its recovery. It gets the device with the home as it is.
pub type Adapt = fn(&dyn BlockDevice, BlockNr, &[u8]) -> stetfs_block::Result<Option<PageRef>>;

/// How to recover.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryOptions {
    /// Read and check everything, write nothing.
    pub dry_run: bool,
    /// Of a damaged log, bring home what is whole: the rest of a volume is worth more than none.
    pub salvage: bool,
    /// Why an image cannot be one of this block, if that can be told: damage, where no checksum
    /// tells of it.
    pub cannot_be: Option<CannotBe>,
    /// What goes home in place of some images. What the device shares without its being read does
    /// not come by here: a block of that is old or new.
    pub adapt: Option<Adapt>,
    /// Deliberate faults.
    pub canary: Canary,
}

/// What a recovery found and did (or, in a dry run, would do).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Valid transactions.
    pub transactions: u64,
    /// Durable transactions that were left out because something they depend on is missing.
    pub invalid: u64,
    /// Which these are, and what each lacks.
    pub dropped: Vec<Dropped>,
    /// Blocks brought home.
    pub blocks: u64,
    /// Those of them that the device shared; the others were written.
    pub shared: u64,
    /// Images passed over because a newer one of the block follows.
    pub superseded: u64,
    /// Images passed over because a later transaction freed the block.
    pub revoked: u64,
    /// File-level records that no valid transaction holds: the file system applies them.
    pub records: u64,
    /// File-level records that a valid transaction holds.
    pub records_superseded: u64,
    /// Fast commits of Linux that follow the transactions: the file system applies them.
    pub fast_commits: u64,
    /// First and last sequence of the valid transactions, per lane.
    pub range: Vec<(Lane, u64, u64)>,
    /// Why each lane ended.
    pub ends: Vec<EndReason>,
    /// What was damaged and left out ([`RecoveryOptions::salvage`]): blocks of the volume may be
    /// older than what refers to them.
    pub damage: Damage,
}

impl RecoveryReport {
    /// Damage: an error, or something to leave out.
    pub(super) fn damaged(&mut self, how: RecoveryOptions, why: String) -> Result<()> {
        if !how.salvage {
            return Err(lost(why).into());
        }
        self.damage.push(why);
        Ok(())
    }
}
