//! What was freed and is not handed out yet, so that where things are put does not depend on when a
//! commit ended (`epoch=`).

use super::allocator::Allocator;
use super::group::HeldBack;
use crate::error::Result;

impl Allocator {
    /// Keeps what was freed back, if the options ask for that.
    pub(super) fn hold_back(&self, what: HeldBack) -> bool {
        let hold = self.vol.opts.epoch.is_some();
        if hold {
            self.groups.held.lock().push(what);
        }
        hold
    }

    /// There is no room without what was kept back: it can be handed out from here on. To be called
    /// after a commit of everything, so that it is all that was freed until now.
    ///
    /// # Errors
    /// Damage.
    pub(super) fn hand_back_held(&self) -> Result<()> {
        let mut held = std::mem::take(&mut *self.groups.held.lock()).into_iter();
        let handed = held.try_for_each(|held| match held {
            HeldBack::Blocks { group, bit, len } => self.hand_back_blocks(group, bit, len),
            HeldBack::Inode { group, index } => self.hand_back_inode(group, index),
        });
        // The rest is kept where one is damaged.
        self.groups.held.lock().extend(held);
        handed
    }
}
