//! What changed of the blocks of a transaction, where only that is logged.
//!
//! * **changes.C1** What is logged of a block is all that changed since the block was home,
//!   durably. So the newest image of a block is enough, as with whole images, and the ones before
//!   it may be forgotten; and it puts right what a crash left of a home write, of which some
//!   sectors arrived.

use std::sync::Arc;

use super::{Inner, Journal};
use crate::head::Block;
use crate::policy::Touched;
use crate::tx::Snapshot;

impl Journal {
    /// A block could not be written home past the journal: what changes of it from here on is not
    /// all that its home lacks (changes.C1).
    pub fn is_unlike_home(&self, block: &Arc<Block>) {
        block.write().head().unlike_home = true;
    }
}

impl Inner {
    /// Says of each image what changed since its block was home (changes.C1).
    pub(super) fn note_changes(&self, snapshot: &mut Snapshot) {
        let Some(unit) = self.codec.change_unit() else {
            return;
        };
        for image in &mut snapshot.images {
            let base = image.base.take();
            image.touched = base.map(|base| Touched::between(&base, &image.page, unit));
        }
        if self.config.canary.changes_of_tx {
            return;
        }
        // What goes home meanwhile is listed until it is durable there.
        let log = self.log.lock();
        for image in &mut snapshot.images {
            let Some(before) = log.pending.get(&image.nr) else {
                continue;
            };
            match (&mut image.touched, &before.touched) {
                (Some(now), Some(before)) => now.merge(before),
                (now, _) => *now = None,
            }
        }
    }
}
