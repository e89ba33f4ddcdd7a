//! The changed bytes of the blocks of a transaction, for formats that log only those.
//!
//! * **changes.C1** The logged changes of a block are all its changes since its home location was
//!   last durably up to date. So the newest image of a block is enough, as with whole images, and
//!   older ones may be forgotten. It also repairs a write home that a crash left torn.

use super::Engine;
use crate::policy::Touched;
use crate::tx::Snapshot;

impl Engine {
    /// Notes in each image what changed since its block was home (changes.C1).
    pub(super) fn note_changes(&self, snapshot: &mut Snapshot) {
        let Some(unit) = self.base.change_unit else {
            return;
        };
        for image in &mut snapshot.images {
            let base = image.base.take();
            image.touched = base.map(|base| Touched::between(&base, &image.page, unit));
        }
        if !self.base.config.canary.changes_of_tx {
            self.space.add_changes(&mut snapshot.images);
        }
    }
}
