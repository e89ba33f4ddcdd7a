//! Blocks that two lanes change: their transactions are chained, or one depends on the other.

use std::sync::Arc;

use super::Engine;
use crate::error::Result;
use crate::head::{Block, BlockWrite};
use crate::ids::TxId;
use crate::tx::{Image, Phase, Tx};

/// The relation between two transactions that touch one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    /// None: the other transaction is valid.
    Nothing,
    /// Each depends on the other: both count, or neither.
    Chained,
    /// A one-directional edge: ours depends on the other, which has its image of the block.
    Depends,
}

impl Engine {
    /// Makes `mine` depend on `other`, a transaction of another lane, because `mine` changes a
    /// block that `other` lists (tx.T4). A handle of `mine` is open, and the caller holds the
    /// block.
    ///
    /// # Errors
    /// `Aborted` if there is no lane of `other`.
    pub(crate) fn share(
        &self,
        mine: &Tx,
        other: TxId,
        block: &Arc<Block>,
        content: &BlockWrite<'_>,
    ) -> Result<Shared> {
        if self.validity.has(other)? {
            return Ok(Shared::Nothing);
        }
        let theirs = {
            let run = self.lanes.lane(other.lane)?.run();
            (run.tx().id == other).then(|| Arc::clone(run.tx()))
        };
        let canary = &self.base.config.canary;
        let mut shared = Shared::Depends;
        if let Some(theirs) = theirs {
            let mut state = theirs.state.lock();
            match theirs.phase() {
                Phase::Running | Phase::Locked => {
                    if !canary.one_directional_edge {
                        state.edges.add(mine.id);
                    }
                    shared = Shared::Chained;
                }
                Phase::Snapshot if canary.skip_capture => {}
                Phase::Snapshot => state.captured.extend(content.page().map(|page| Image {
                    nr: block.nr(),
                    page: Arc::clone(page),
                    base: None,
                    touched: None,
                    block: Some(Arc::clone(block)),
                })),
                // The other transaction has its image.
                _ => {}
            }
        }
        if shared == Shared::Depends && !canary.index_late {
            // The image will be in the log, so a transaction that frees the block must revoke it
            // (tx.T5).
            self.space.list_image(other, block.nr(), &self.validity)?;
        }
        mine.state.lock().edges.add(other);
        Ok(shared)
    }
}
