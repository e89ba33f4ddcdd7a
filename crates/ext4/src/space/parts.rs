//! Where searches begin, and in which order they go over the groups: in the lane's part of them
//! first, if the journal's lanes keep apart (Z-Journal §3.5, "core-aware block group allocation").
//!
//! A search goes on in the parts of others, so that every block and inode can be had. What
//! continues a file where it ends, or in its window, is no search.

use std::ops::Range;

use stetfs_journal::Handle;

/// Groups around one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Around {
    /// Where a search begins; in `part`.
    pub(super) first: u32,
    /// Those that are looked at before all others; not empty.
    part: Range<u32>,
    /// Groups of the volume.
    count: u32,
}

use super::allocator::Allocator;
use stetfs_ondisk::num::bounded32;
impl Around {
    /// Around `near`; or, where that is not in the part, around one in its place there, the same
    /// for all that is near to it.
    fn new(near: u32, part: Range<u32>, count: u32) -> Around {
        let first = match part.contains(&near) {
            true => near,
            false => part.start + near % (part.end - part.start).max(1),
        };
        Around { first, part, count }
    }

    /// The same part, from another group of it on.
    pub(super) fn at(&self, first: u32) -> Around {
        Around::new(first, self.part.clone(), self.count)
    }

    /// Groups in the part.
    pub(super) fn part_len(&self) -> u32 {
        self.part.end - self.part.start
    }

    /// The group `by` groups behind the first, round the part.
    pub(super) fn behind(&self, by: u32) -> u32 {
        let at = u64::from(self.first - self.part.start) + u64::from(by);
        self.part.start + bounded32(at % u64::from(self.part_len().max(1)))
    }

    /// All groups of the volume, as ranges in the order of a search: the part from the first on,
    /// the part before it, what is behind the part, what is before.
    pub(super) fn ranges(&self) -> [Range<u32>; 4] {
        let Range { start, end } = self.part;
        [
            self.first..end,
            start..self.first,
            end..self.count,
            0..start,
        ]
    }

    /// Groups for an inode near the first: its flex group's, then farther and farther away in the
    /// part, then one after the other.
    pub(super) fn for_inode(&self, flex: u32) -> impl Iterator<Item = u32> {
        let base = self.first - self.first % flex.max(1);
        let Range { start, end } = self.part;
        let near = self.first..base.saturating_add(flex).min(end);
        let near = near.chain(base.max(start)..self.first);
        let hashed = (0..31).map(|i| self.behind(1 << i));
        let hashed = hashed.take_while(|group| *group != self.first);
        near.chain(hashed)
            .chain(self.ranges().into_iter().flatten())
    }

    /// The groups of the part, from the one `by` behind the first on.
    pub(super) fn round(&self, by: u32) -> impl Iterator<Item = u32> {
        let from = self.behind(by);
        (from..self.part.end).chain(self.part.start..from)
    }
}

impl Allocator {
    /// Where a change looks for space near a group.
    pub(super) fn around(&self, h: &Handle<'_>, near: u32) -> Around {
        let count = self.groups.count();
        // Which lane it is may be up to the processor.
        let of_lane = || h.part_of(count).filter(|_| self.vol.opts.epoch.is_none());
        let part = of_lane().unwrap_or(0..count);
        Around::new(near, part, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(around: &Around) -> Vec<u32> {
        around.ranges().into_iter().flatten().collect()
    }

    #[test]
    fn a_search_sees_every_group_once_and_its_part_first() {
        let around = Around::new(6, 4..8, 10);
        assert_eq!(all(&around), [6, 7, 4, 5, 8, 9, 0, 1, 2, 3]);
        assert_eq!(all(&Around::new(2, 0..4, 4)), [2, 3, 0, 1], "one part");
        assert_eq!(all(&Around::new(0, 0..1, 1)), [0]);
        // What is near in another's part is near in this one.
        assert_eq!(
            Around::new(1, 4..8, 10).first,
            Around::new(9, 4..8, 10).first
        );
    }

    #[test]
    fn an_inode_stays_in_the_part_while_there_is_room() {
        let around = Around::new(5, 4..8, 10);
        let order: Vec<u32> = around.for_inode(16).collect();
        assert_eq!(order[..4], [5, 6, 7, 4]);
        assert!(around.for_inode(1 << 31).eq(order.iter().copied()));
        let in_part = order.iter().take_while(|group| (4..8).contains(*group));
        assert_eq!(order.len() - in_part.count(), 6, "then each other one");
        assert_eq!(around.round(6).collect::<Vec<_>>(), [7, 4, 5, 6]);
    }
}
