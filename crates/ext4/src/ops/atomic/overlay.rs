//! `Overlay`: the changes of a group to one file, as whole blocks, and the file's size.

use std::collections::BTreeMap;
use std::ops::Range;

use stetfs_journal::BlockNr;

use crate::error::{FsError, Result};
use crate::space::BlockRun;
use stetfs_ondisk::num::to_usize;

/// A first file block, and the blocks of the volume that are to hold its and the following content.
pub(super) type Placed = (u32, BlockRun);

/// The place of a changed block's content until the commit.
#[derive(Debug)]
enum Page {
    /// Memory.
    Here(Box<[u8]>),
    /// This block of the volume, which is set aside.
    Early(BlockNr),
}

/// The changed blocks of a file. Other blocks show the unchanged file.
#[derive(Debug)]
pub(super) struct Overlay {
    block_size: u64,
    /// The full content of each changed block, by file block.
    pages: BTreeMap<u32, Page>,
    /// Size of the file with the changes, bytes.
    size: u64,
    /// From this byte on the unchanged file is not visible: its size when the group began, or the
    /// smallest size that the group has set.
    shown: u64,
    /// Size of the unchanged file, bytes.
    old_size: u64,
}

impl Overlay {
    /// An overlay without changes, over a file of `size` bytes.
    pub(super) fn new(block_size: u32, size: u64) -> Overlay {
        Overlay {
            block_size: u64::from(block_size),
            pages: BTreeMap::new(),
            size,
            shown: size,
            old_size: size,
        }
    }

    /// Size of the file with the changes, bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Size of the unchanged file, bytes.
    pub(super) fn old_size(&self) -> u64 {
        self.old_size
    }

    /// End of the visible part of the unchanged file, bytes.
    pub(super) fn shown(&self) -> u64 {
        self.shown
    }

    /// Whether it changes nothing.
    pub(super) fn is_clean(&self) -> bool {
        self.pages.is_empty() && self.size == self.old_size && !self.is_cut()
    }

    /// Whether a part of the unchanged file was cut off.
    pub(super) fn is_cut(&self) -> bool {
        self.shown < self.old_size
    }

    /// The bytes of the unchanged file that were cut off.
    pub(super) fn cut(&self) -> Range<u64> {
        self.shown..self.old_size
    }

    /// The number of changed blocks in memory.
    pub(super) fn blocks(&self) -> usize {
        let is_here = |page: &&Page| matches!(page, Page::Here(_));
        self.pages.values().filter(is_here).count()
    }

    /// The number of changed blocks.
    pub(super) fn changed(&self) -> usize {
        self.pages.len()
    }

    /// Whether the block is changed.
    pub(super) fn has(&self, lblk: u64) -> bool {
        u32::try_from(lblk).is_ok_and(|lblk| self.pages.contains_key(&lblk))
    }

    /// The next changed block behind this one.
    pub(super) fn next(&self, lblk: u64) -> Option<u64> {
        let behind = u32::try_from(lblk).ok()?.checked_add(1)?;
        let (next, _) = self.pages.range(behind..).next()?;
        Some(u64::from(*next))
    }

    /// The changed block, if it is in memory.
    pub(super) fn page(&self, lblk: u32) -> Option<&[u8]> {
        match self.pages.get(&lblk)? {
            Page::Here(page) => Some(page),
            Page::Early(_) => None,
        }
    }

    /// The place of the changed block, if it was written early.
    pub(super) fn early(&self, lblk: u32) -> Option<BlockNr> {
        match self.pages.get(&lblk)? {
            Page::Here(_) => None,
            Page::Early(nr) => Some(*nr),
        }
    }

    /// Inserts a block with its content, to be changed from now on. Does nothing if the block is in
    /// memory. Returns the place where it was written early, which the group gives up.
    pub(super) fn insert(&mut self, lblk: u32, page: Box<[u8]>) -> Option<BlockNr> {
        let before = self.early(lblk);
        if self.page(lblk).is_none() {
            self.pages.insert(lblk, Page::Here(page));
        }
        before
    }

    /// Notes that the content of blocks from `lblk` on was written to the blocks of this run.
    pub(super) fn written_early(&mut self, lblk: u32, place: BlockRun) {
        for (lblk, nr) in (lblk..).zip(place.start..place.end()) {
            self.pages.insert(lblk, Page::Early(nr));
        }
    }

    /// Removes the early blocks, which now belong to the file or are free. Returns them.
    pub(super) fn forget_early(&mut self) -> Vec<(u32, BlockRun)> {
        let early = self.early_runs();
        self.pages.retain(|_, page| matches!(page, Page::Here(_)));
        early
    }

    /// The early blocks as runs: consecutive file blocks in consecutive blocks of the volume.
    pub(super) fn early_runs(&self) -> Vec<(u32, BlockRun)> {
        let mut runs: Vec<(u32, BlockRun)> = Vec::new();
        for (lblk, page) in &self.pages {
            let Page::Early(nr) = page else { continue };
            match runs.last_mut() {
                Some((first, run)) if *first + run.len == *lblk && run.end() == *nr => run.len += 1,
                _ => runs.push((*lblk, BlockRun { start: *nr, len: 1 })),
            }
        }
        runs
    }

    /// The changed blocks and `more`, as runs of consecutive blocks.
    pub(super) fn runs(&self, more: &[u32]) -> Vec<Range<u64>> {
        sorted_runs(self.pages.keys().chain(more).copied().collect())
    }

    /// The changed blocks in memory and `more`, as runs of consecutive blocks.
    pub(super) fn kept_runs(&self, more: &[u32]) -> Vec<Range<u64>> {
        let kept = self.pages.iter();
        let kept = kept.filter(|(_, page)| matches!(page, Page::Here(_)));
        sorted_runs(kept.map(|(lblk, _)| lblk).chain(more).copied().collect())
    }

    /// The changed blocks in a range of blocks.
    pub(super) fn within(&self, blocks: Range<u64>) -> Vec<u32> {
        let first = u32::try_from(blocks.start).unwrap_or(u32::MAX);
        let range = self.pages.range(first..);
        let keys = range.map(|(lblk, _)| *lblk);
        keys.take_while(|lblk| u64::from(*lblk) < blocks.end)
            .collect()
    }

    /// Copies the changed blocks in memory into `buf`, which holds the file from `offset` on.
    pub(super) fn lay_over(&self, offset: u64, buf: &mut [u8]) {
        let range = offset..offset.saturating_add(buf.len() as u64);
        for lblk in self.within(self.blocks_of(&range)) {
            let Some((part, at)) = self.part(lblk, &range) else {
                continue;
            };
            let from = self.page(lblk).and_then(|page| page.get(part));
            if let Some(from) = from
                && let Some(to) = buf.get_mut(at..at + from.len())
            {
                to.copy_from_slice(from);
            }
        }
    }

    /// The blocks that a range of bytes touches.
    fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        match range.is_empty() {
            true => 0..0,
            false => range.start / self.block_size..range.end.div_ceil(self.block_size),
        }
    }

    /// The bytes of a block inside a range of the file, and their position in the range.
    pub(super) fn part(&self, lblk: u32, range: &Range<u64>) -> Option<(Range<usize>, usize)> {
        let base = u64::from(lblk) * self.block_size;
        let from = base.max(range.start);
        let to = (base + self.block_size).min(range.end);
        let part = to_usize(from.checked_sub(base)?)..to_usize(to.checked_sub(base)?);
        (part.start < part.end).then_some((part, to_usize(from - range.start)))
    }

    /// Writes into changed blocks that are in memory.
    ///
    /// # Errors
    /// EIO if one of them is not in memory; nothing is changed then.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        let mut blocks = self.blocks_of(&(offset..end));
        let is_here = |lblk: u64| u32::try_from(lblk).is_ok_and(|nr| self.page(nr).is_some());
        if let Some(lblk) = blocks.find(|lblk| !is_here(*lblk)) {
            return Err(not_in_memory(lblk));
        }
        self.change(offset..end, |to, at| {
            if let Some(from) = data.get(at..at + to.len()) {
                to.copy_from_slice(from);
            }
        })?;
        self.grow(end);
        Ok(())
    }

    /// Sets a size that is not smaller.
    pub(super) fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Zeroes the changed blocks of a range.
    ///
    /// # Errors
    /// EIO if one of them is not in memory; nothing is changed then.
    pub(super) fn zero(&mut self, range: Range<u64>) -> Result<()> {
        self.change(range, |to, _| to.fill(0))
    }

    fn change(&mut self, range: Range<u64>, change: impl Fn(&mut [u8], usize)) -> Result<()> {
        let blocks = self.within(self.blocks_of(&range));
        if let Some(lblk) = blocks.iter().find(|lblk| self.page(**lblk).is_none()) {
            return Err(not_in_memory(u64::from(*lblk)));
        }
        for lblk in blocks {
            if let Some((part, at)) = self.part(lblk, &range)
                && let Some(Page::Here(page)) = self.pages.get_mut(&lblk)
                && let Some(to) = page.get_mut(part)
            {
                change(to, at);
            }
        }
        Ok(())
    }

    /// Sets the size. Content behind it is gone, even if the file grows again. Returns the blocks
    /// to which such content was written early.
    ///
    /// # Errors
    /// EIO if a block that is cut in its middle is not in memory; nothing is changed then.
    pub(super) fn set_size(&mut self, size: u64) -> Result<Vec<BlockNr>> {
        let mut gone = BTreeMap::new();
        if size < self.size {
            self.zero(size..size.next_multiple_of(self.block_size))?;
            let first = u32::try_from(size.div_ceil(self.block_size)).unwrap_or(u32::MAX);
            gone = self.pages.split_off(&first);
            self.shown = self.shown.min(size);
        }
        self.size = size;
        let early = gone.into_values().filter_map(|page| match page {
            Page::Here(_) => None,
            Page::Early(nr) => Some(nr),
        });
        Ok(early.collect())
    }
}

/// A state that must not occur: every change first loads its blocks into memory.
fn not_in_memory(lblk: u64) -> FsError {
    tracing::error!("block {lblk} of a file in an atomic group is not in memory");
    FsError::Errno(libc::EIO)
}

fn sorted_runs(mut blocks: Vec<u32>) -> Vec<Range<u64>> {
    blocks.sort_unstable();
    runs_of(blocks)
}

/// Ascending numbers as runs of consecutive numbers.
pub(super) fn runs_of(blocks: impl IntoIterator<Item = u32>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for lblk in blocks.into_iter().map(u64::from) {
        match runs.last_mut() {
            Some(last) if last.end == lblk => last.end += 1,
            Some(last) if last.contains(&lblk) => {}
            _ => runs.push(lblk..lblk + 1),
        }
    }
    runs
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_zeroes_when_the_file_grows_again() {
        let mut overlay = Overlay::new(1024, 3000);
        overlay.insert(1, vec![1; 1024].into());
        overlay.insert(2, vec![2; 1024].into());
        overlay.set_size(1500).unwrap();
        overlay.set_size(4000).unwrap();
        assert_eq!((overlay.shown(), overlay.cut()), (1500, 1500..3000));
        let mut seen = [9; 3000];
        overlay.lay_over(1000, &mut seen);
        assert_eq!((seen[23], seen[24], seen[499]), (9, 1, 1));
        assert!(seen[500..1048].iter().all(|b| *b == 0));
        assert_eq!(seen[1048], 9, "not changed any more");
        assert!(!overlay.is_clean() && overlay.has(1) && !overlay.has(2));
    }

    /// A block that was written early must be loaded before it is changed; otherwise nothing
    /// changes.
    #[test]
    fn what_is_not_in_memory_is_not_changed() {
        let mut overlay = Overlay::new(1024, 3000);
        overlay.insert(0, vec![1; 1024].into());
        overlay.insert(1, vec![2; 1024].into());
        overlay.written_early(1, BlockRun { start: 77, len: 1 });
        let errno = |done: Result<()>| done.unwrap_err().errno();
        assert_eq!(errno(overlay.write(1000, &[9; 100])), libc::EIO);
        assert_eq!(errno(overlay.write(0, &[9; 3000])), libc::EIO, "nor 2");
        assert_eq!(errno(overlay.zero(0..2000)), libc::EIO);
        assert_eq!(errno(overlay.set_size(1500).map(drop)), libc::EIO);
        assert!(overlay.page(0).unwrap() == [1; 1024]);
        assert_eq!((overlay.size(), overlay.early(1)), (3000, Some(77)));
        overlay.zero(1500..1500).unwrap();
        // At a block border, no block is cut in its middle.
        assert_eq!(overlay.set_size(1024).unwrap(), [77]);
    }

    #[test]
    fn runs_are_as_long_as_they_can_be() {
        let mut overlay = Overlay::new(1024, 0);
        for lblk in [1, 2, 5] {
            overlay.insert(lblk, vec![0; 1024].into());
        }
        assert_eq!(overlay.runs(&[]), [1..3, 5..6]);
        assert_eq!(overlay.runs(&[2, 3, 4]).first(), Some(&(1..6)));
    }
}
