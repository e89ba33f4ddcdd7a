//! Room in the log: the log space a transaction takes, and the wait for it, which always ends.
//!
//! * **room.W1** No thread waits for log space that can never become free. A journal does not start
//!   with a ring too small for the smallest transaction; a handle larger than any transaction is
//!   refused; and a committing transaction waits until older ones are valid, then for one
//!   checkpoint, which frees the ring: commits never wait for younger ones, and what becomes valid
//!   beside the checkpoint is younger than all that the ring holds (checkpoint.K3). Revokes, which
//!   no credits bound, are needed only for images in the live log: after that checkpoint there are
//!   none but those of this group and of younger ones, which have none of a block that it frees.

use super::Engine;
use crate::error::{JournalError, Result};
use crate::ids::{BlockNr, Stamp};
use crate::stats::bump;
use crate::tx::Snapshot;

impl Engine {
    /// Waits until a committing transaction has room in its lane; `oldest` is the lowest stamp of
    /// its group. Returns the most log blocks that it takes.
    ///
    /// # Errors
    /// The errors of the checkpoint; `Aborted` if the ring cannot hold the transaction (room.W1),
    /// an impossible state.
    pub(super) fn make_room(&self, tx: &mut Snapshot, oldest: Stamp) -> Result<u64> {
        let ring = self.space.ring(tx.id.lane)?;
        let (codec, images) = (&self.base.codec, tx.images.len() as u64);
        let bound = |revokes: &[BlockNr]| codec.bound(images, revokes.len() as u64);
        let mut need = bound(&tx.revokes);
        if ring.room() < need {
            bump(&self.base.counters.forced_checkpoints, 1);
            self.space.await_older(oldest)?;
            self.checkpoint_all()?;
            if !self.base.config.canary.revoke_all {
                self.space.retain_live(&mut tx.revokes);
            }
            need = bound(&tx.revokes);
        }
        match ring.room() < need {
            false => Ok(need),
            true => Err(JournalError::Aborted(format!(
                "room.W1: transaction {} of lane {} takes up to {need} log blocks, and {} of {} are free",
                tx.id.seq,
                tx.id.lane.0,
                ring.room(),
                ring.medium.capacity()
            ))),
        }
    }
}
