//! Freed space that is held back (`epoch=`), so that placement does not depend on when a commit
//! ended.

use super::allocator::Allocator;
use super::group::HeldBack;
use crate::error::Result;

impl Allocator {
    /// Holds freed space back if the options ask for it. Returns whether they do.
    pub(super) fn hold_back(&self, what: HeldBack) -> bool {
        let hold = self.vol.opts.epoch.is_some();
        if hold {
            self.groups.held.lock().push(what);
        }
        hold
    }

    /// Makes all space available that was held back, when there is no other room. Called after a
    /// commit of everything, so that it covers all that was freed until now.
    ///
    /// # Errors
    /// Damage of a group.
    pub(super) fn hand_back_held(&self) -> Result<()> {
        let mut held = std::mem::take(&mut *self.groups.held.lock()).into_iter();
        let handed = held.try_for_each(|held| match held {
            HeldBack::Blocks { group, bit, len } => self.hand_back_blocks(group, bit, len),
            HeldBack::Inode { group, index } => self.hand_back_inode(group, index),
        });
        // If a group is damaged, the rest stays held back.
        self.groups.held.lock().extend(held);
        handed
    }
}
