//! The log of transactions in a region: a ring of lines behind the region's header.

use std::ops::Range;
use std::sync::Arc;

use stetfs_nvm::Region;
use stetfs_ondisk::stet::changes::{CHANGES_HEAD, CHANGES_MAGIC, ChangesHead};
use stetfs_ondisk::stet::checksum;
use stetfs_ondisk::stet::region::{LINE, RegionHeader, SEAL_AT};

use super::round::Round;
use crate::canary::Canary;
use crate::error::{JournalError, Result};

/// The bytes of a log block in a region: one line.
pub(crate) const UNIT: u64 = LINE as u64;

/// The state of the next transaction in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The transaction is sealed.
    Sealed(ChangesHead),
    /// The transaction was begun, and is not sealed.
    Torn,
    /// There is no such transaction.
    None,
}

/// The log of transactions in a region.
#[derive(Clone)]
pub(crate) struct ChangesLog {
    region: Arc<dyn Region>,
    /// The bytes of the region that are the log's.
    room: Range<u64>,
    epoch: u64,
    pub(super) canary: Canary,
}

impl ChangesLog {
    /// The log that the region's header describes; none if there is none.
    pub(super) fn of(
        region: Arc<dyn Region>,
        header: &RegionHeader,
        canary: Canary,
    ) -> Option<ChangesLog> {
        let room = header.log_room();
        (!room.is_empty()).then_some(ChangesLog {
            region,
            room,
            epoch: header.epoch,
            canary,
        })
    }

    /// The lines of the log, by their numbers in the region.
    pub(crate) fn lines(&self) -> Range<u64> {
        self.room.start / UNIT..self.room.end / UNIT
    }

    /// The epoch of the volume's log.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The ring of the log.
    fn round(&self) -> Round<'_> {
        Round {
            region: &*self.region,
            room: self.room.clone(),
        }
    }

    /// Reads lines from `line` on, wrapping.
    pub(super) fn read(&self, line: u64, count: u64) -> Result<Vec<u8>> {
        self.round().read(line * UNIT, count * UNIT)
    }

    /// Stores a transaction at line `line`, durably, its seal last (region.R1).
    ///
    /// # Errors
    /// The region's; `Aborted` for a transaction without a head.
    pub(super) fn put(&self, line: u64, tx: &[u8]) -> Result<()> {
        let at = line * UNIT;
        let (head, rest) = tx
            .split_first_chunk::<CHANGES_HEAD>()
            .ok_or_else(|| JournalError::Aborted("a transaction without a head".into()))?;
        let mut head = *head;
        let seal = ChangesHead::place(&mut head, at);
        let round = self.round();
        round.store(at, &head)?;
        if self.canary.region_seal_early {
            self.region.store_u64(at + SEAL_AT as u64, seal)?;
        }
        round.store(round.advance(at, CHANGES_HEAD as u64), rest)?;
        round.flush(at, tx.len() as u64)?;
        if !self.canary.region_unfenced {
            self.region.fence()?;
        }
        self.region.store_u64(at + SEAL_AT as u64, seal)?;
        self.region.flush(at..at + UNIT)?;
        if !self.canary.no_barrier {
            self.region.fence()?;
        }
        Ok(())
    }

    /// The head at this byte, and whether it is sealed; none if it fails its check.
    fn head(&self, at: u64) -> Result<Option<(ChangesHead, bool)>> {
        let bytes = self.round().read(at, CHANGES_HEAD as u64)?;
        let head = <&[u8; CHANGES_HEAD]>::try_from(&bytes[..]).ok();
        Ok(head.and_then(|head| ChangesHead::decode(head).ok()))
    }

    /// The state of transaction `seq` at `line`.
    pub(super) fn next(&self, line: u64, seq: u64) -> Result<Next> {
        let at = line * UNIT;
        let Some((head, sealed)) = self.head(at)? else {
            let bytes = self.round().read(at, CHANGES_MAGIC.len() as u64)?;
            return Ok(match bytes.starts_with(&CHANGES_MAGIC) {
                true => Next::Torn,
                false => Next::None,
            });
        };
        let is_ours = head.epoch == self.epoch || self.canary.region_any_epoch;
        let fits = head
            .lines()
            .is_some_and(|n| n <= self.lines().end - self.lines().start);
        if !is_ours || (head.seq, head.at) != (seq, at) {
            return Ok(Next::None);
        }
        Ok(match sealed && fits {
            true => Next::Sealed(head),
            false => Next::Torn,
        })
    }

    /// The bytes that follow a head; none if they do not match their checksum, because the memory
    /// lost some of them (region.R3).
    pub(super) fn rest(&self, head: &ChangesHead) -> Result<Option<Vec<u8>>> {
        let round = self.round();
        if head.rest_bytes > round.len() {
            return Ok(None);
        }
        let at = round.advance(head.at, CHANGES_HEAD as u64);
        let rest = round.read(at, head.rest_bytes)?;
        Ok((checksum(&rest) == head.rest_sum).then_some(rest))
    }

    /// The sequence of any sealed transaction of this log that is `seq` or later.
    pub(super) fn find(&self, seq: u64) -> Result<Option<u64>> {
        let mut found = None;
        self.round().search(&CHANGES_MAGIC, &mut |at| {
            if let Some((head, true)) = self.head(at)?
                && (head.epoch, head.at) == (self.epoch, at)
                && head.seq >= seq
            {
                found = Some(head.seq);
            }
            Ok(found.is_some())
        })?;
        Ok(found)
    }
}
