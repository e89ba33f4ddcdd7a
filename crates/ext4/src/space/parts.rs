//! The start and order of a search over the groups. If the journal keeps lanes apart, a search
//! begins in the lane's part of the groups (Z-Journal §3.5, "core-aware block group allocation").
//!
//! A search continues in the parts of other lanes, so that it can reach every block and inode. An
//! allocation that continues a file at its end, or in its window, needs no search.

use std::ops::Range;

use stetfs_journal::Handle;

/// The search order around a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Around {
    /// The group where a search begins; in `part`.
    pub(super) first: u32,
    /// The groups that are searched first; not empty.
    part: Range<u32>,
    /// Groups of the volume.
    count: u32,
}

use super::allocator::Allocator;
use stetfs_ondisk::num::bounded32;
impl Around {
    /// The search order around `near`. If `near` is outside the part, the search begins at a group
    /// of the part that depends only on `near`, so that neighbours stay together.
    fn new(near: u32, part: Range<u32>, count: u32) -> Around {
        let first = match part.contains(&near) {
            true => near,
            false => part.start + near % (part.end - part.start).max(1),
        };
        Around { first, part, count }
    }

    /// The same part, beginning at another group.
    pub(super) fn at(&self, first: u32) -> Around {
        Around::new(first, self.part.clone(), self.count)
    }

    /// Groups in the part.
    pub(super) fn part_len(&self) -> u32 {
        self.part.end - self.part.start
    }

    /// The group `by` groups behind the first, wrapping around in the part.
    pub(super) fn behind(&self, by: u32) -> u32 {
        let at = u64::from(self.first - self.part.start) + u64::from(by);
        self.part.start + bounded32(at % u64::from(self.part_len().max(1)))
    }

    /// All groups of the volume, as ranges in search order: the part from the first group on, the
    /// part before it, the groups behind the part, the groups before it.
    pub(super) fn ranges(&self) -> [Range<u32>; 4] {
        let Range { start, end } = self.part;
        [
            self.first..end,
            start..self.first,
            end..self.count,
            0..start,
        ]
    }

    /// Groups for an inode near the first: its flex group, then at growing distance in the part,
    /// then one after the other.
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

    /// The groups of the part, beginning `by` behind the first and wrapping around.
    pub(super) fn round(&self, by: u32) -> impl Iterator<Item = u32> {
        let from = self.behind(by);
        (from..self.part.end).chain(self.part.start..from)
    }
}

impl Allocator {
    /// The search order near a group, for a change in handle `h`.
    pub(super) fn around(&self, h: &Handle<'_>, near: u32) -> Around {
        let count = self.groups.count();
        // The lane may depend on the processor, so `epoch=` does not use it.
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
        // Neighbours in another lane's part stay neighbours in this one.
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
