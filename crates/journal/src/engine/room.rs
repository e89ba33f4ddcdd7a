//! Room in the log: what a transaction takes, and that waits for it end.
//!
//! * **room.W1** Nobody waits for log space that cannot come. A ring that does not hold the
//!   smallest transaction starts no journal; a handle that no transaction can hold is refused; and
//!   a transaction that commits waits for one checkpoint, which frees the ring. Revokes, which no
//!   credits bound, are needed only of images in the live log: after that checkpoint there are
//!   none but those of the group that commits.

use super::Inner;
use crate::error::{JournalError, Result};
use crate::ids::BlockNr;
use crate::stats::bump;
use crate::tx::Snapshot;

impl Inner {
    /// Waits until a transaction that commits has room in its lane. Gives the log blocks that it
    /// takes at most.
    ///
    /// # Errors
    /// A failed checkpoint. The ring does not hold the transaction (room.W1): a state that cannot
    /// be.
    pub(super) fn make_room(&self, tx: &mut Snapshot) -> Result<u64> {
        let lane = self.lane(tx.id.lane)?;
        let bound = |revokes: &[BlockNr]| {
            let (images, revokes) = (tx.images.len() as u64, revokes.len() as u64);
            self.codec.bound(images, revokes)
        };
        let mut need = bound(&tx.revokes);
        if lane.room() < need {
            bump(&self.counters.forced_checkpoints, 1);
            // Only older, valid transactions hold space.
            self.checkpoint_all()?;
            let mut revokes = std::mem::take(&mut tx.revokes);
            if !self.config.canary.revoke_all {
                let log = self.log.lock();
                revokes.retain(|nr| log.is_live(*nr));
            }
            need = bound(&revokes);
            tx.revokes = revokes;
        }
        match lane.room() < need {
            false => Ok(need),
            true => Err(JournalError::Aborted(format!(
                "room.W1: transaction {} of lane {} takes up to {need} log blocks, and {} of {} are free",
                tx.id.seq,
                tx.id.lane.0,
                lane.room(),
                lane.medium.capacity()
            ))),
        }
    }
}
