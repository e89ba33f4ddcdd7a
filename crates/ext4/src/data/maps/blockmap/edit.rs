//! Changes of a block map: insertion and removal of runs.

use std::ops::Range;

use smallvec::SmallVec;
use stetfs_journal::BlockNr;
use stetfs_ondisk::ext4::blockmap::{DIRECT, MAX_LEVELS, is_empty, pointer, set_pointer};
use stetfs_ondisk::ext4::extent::Extent;

use super::lookup::{Indirect, Path, Step, check_loop, damaged};
use crate::data::maps::mapping::{EditMap, Removed};
use crate::error::{FsError, Result};
use stetfs_ondisk::num::{bounded32, count32, to_usize};

/// Changes the blocks of a map.
pub(crate) trait IndirectMut: Indirect {
    /// Changes an indirect block that [`Indirect::read`] has read before.
    fn change<R>(&self, nr: BlockNr, f: impl FnOnce(&mut [u8]) -> R) -> Result<R>;

    /// Allocates a block near `near`.
    fn allocate(&self, near: BlockNr) -> Result<BlockNr>;

    /// Makes an allocated block an indirect block of zeroes; `f` fills it.
    fn create(&self, nr: BlockNr, f: impl FnOnce(&mut [u8])) -> Result<()>;

    /// Frees a block.
    fn free(&self, nr: BlockNr) -> Result<()>;
}

/// A block map open for changing.
pub(crate) struct BlockMap<'a, N: IndirectMut> {
    nodes: &'a N,
    /// `i_block`.
    root: &'a mut [u8],
}

/// The result of a search for the last mapped block.
pub(super) enum Last {
    /// A run of mapped blocks; `.1` are its positions in the last step's block, or in the inode.
    Run(Extent, Range<usize>),
    /// The block of the last step is an indirect block that names nothing.
    EmptyNode,
}

/// Stores the numbers of a run.
fn fill(bytes: &mut [u8], at: usize, run: &Extent) {
    for (i, nr) in (at..at + run.len as usize).zip(run.start..) {
        // Both were checked to fit.
        let _ = set_pointer(bytes, i, bounded32(nr));
    }
}

impl<'a, N: IndirectMut> BlockMap<'a, N> {
    /// Opens the map whose root is `root`.
    pub(crate) fn open(nodes: &'a N, root: &'a mut [u8]) -> BlockMap<'a, N> {
        BlockMap { nodes, root }
    }

    fn taken(&self, new: &Extent) -> FsError {
        damaged(
            self.nodes,
            0,
            format_args!("{new:?} overlaps a mapped extent"),
        )
    }

    /// The indirect blocks towards file block `block`, as far as they exist; each step's `at` is
    /// the position on the way to the block. Also the index in the inode, and the number of missing
    /// indirect blocks.
    fn path(&self, block: u64) -> Result<(usize, Path, u32)> {
        let shape = self.nodes.shape();
        let branch = shape.branch(block).ok_or(FsError::Errno(libc::EFBIG))?;
        let mut path = Path::new();
        let mut nr = u64::from(pointer(self.root, branch.index));
        let mut first = branch.first;
        for levels in (1..=branch.levels).rev() {
            if nr == 0 {
                return Ok((branch.index, path, levels));
            }
            check_loop(self.nodes, &path, nr, 1)?;
            let below = shape.span(levels - 1);
            let at = to_usize((block - first) / below);
            first += at as u64 * below;
            path.push(Step { nr, at });
            nr = self.nodes.read(nr, |bytes| u64::from(pointer(bytes, at)))?;
        }
        Ok((branch.index, path, 0))
    }

    /// Position of file block `block` in the indirect block that is `levels` above the data.
    fn position(&self, first: u64, block: u64, levels: u32) -> usize {
        let shape = self.nodes.shape();
        to_usize((block - first) / shape.span(levels - 1) % shape.per_block())
    }

    fn set(&mut self, place: Option<&Step>, index: usize, nr: BlockNr) -> Result<()> {
        let number = u32::try_from(nr)
            .map_err(|_| damaged(self.nodes, nr, "a block map cannot name this block"))?;
        let stored = match place {
            None => set_pointer(self.root, index, number),
            Some(step) => self
                .nodes
                .change(step.nr, |bytes| set_pointer(bytes, step.at, number))?,
        };
        stored.ok_or_else(|| damaged(self.nodes, nr, "an indirect block is too short"))
    }

    /// Builds the missing indirect blocks above `new`, lowest first, and links them.
    fn build(&mut self, index: usize, path: &Path, lacking: u32, new: &Extent) -> Result<()> {
        let block = u64::from(new.block);
        let first = self.nodes.shape().branch(block).map_or(block, |b| b.first);
        // Allocated first, so that nothing has changed if there is no space.
        let mut blocks: SmallVec<[BlockNr; 3]> = SmallVec::new();
        for _ in 0..lacking.min(MAX_LEVELS) {
            match self.nodes.allocate(new.start) {
                Ok(nr) => blocks.push(nr),
                Err(e) => {
                    for nr in blocks {
                        self.nodes.free(nr)?;
                    }
                    return Err(e);
                }
            }
        }
        let mut below = None;
        for (levels, nr) in (1u32..).zip(blocks) {
            let at = self.position(first, block, levels);
            self.nodes.create(nr, |bytes| match below {
                None => fill(bytes, at, new),
                Some(child) => fill(
                    bytes,
                    at,
                    &Extent {
                        start: child,
                        len: 1,
                        ..*new
                    },
                ),
            })?;
            below = Some(nr);
        }
        match below {
            Some(top) => self.set(path.last(), index, top),
            None => Ok(()),
        }
    }

    /// The last run of numbers that name blocks of `range`, below the indirect block `nr`, which is
    /// `levels` above the data and begins with file block `first`. The path leads there from the
    /// inode.
    fn last_below(
        &self,
        nr: BlockNr,
        levels: u32,
        first: u64,
        range: &Range<u64>,
        path: &mut Path,
    ) -> Result<Option<Last>> {
        let shape = self.nodes.shape();
        check_loop(self.nodes, path, nr, 1)?;
        let below = shape.span(levels.saturating_sub(1));
        let low = to_usize(range.start.saturating_sub(first) / below);
        let high =
            to_usize((range.end.saturating_sub(first).div_ceil(below)).min(shape.per_block()));
        path.push(Step { nr, at: 0 });
        let mut end = high;
        loop {
            // The last number before `end`, the run that ends with it, and whether the block is
            // empty.
            let (found, empty) = self.nodes.read(nr, |bytes| {
                let last = (low..end).rev().find(|i| pointer(bytes, *i) != 0);
                let run = last.map(|last| {
                    let mut start = last;
                    while levels == 1
                        && start > low
                        && pointer(bytes, start - 1) != 0
                        && pointer(bytes, start - 1).checked_add(1) == Some(pointer(bytes, start))
                    {
                        start -= 1;
                    }
                    (start..last + 1, u64::from(pointer(bytes, start)))
                });
                (run, last.is_none() && is_empty(bytes))
            })?;
            let Some((numbers, start)) = found else {
                if empty {
                    return Ok(Some(Last::EmptyNode));
                }
                path.pop();
                return Ok(None);
            };
            if let Some(step) = path.last_mut() {
                step.at = numbers.start;
            }
            let at = first + numbers.start as u64 * below;
            if levels <= 1 {
                let e = Extent {
                    block: u32::try_from(at).map_err(|_| FsError::Errno(libc::EFBIG))?,
                    len: count32(numbers.len()),
                    start,
                    unwritten: false,
                };
                check_loop(self.nodes, path, e.start, e.len)?;
                return Ok(Some(Last::Run(e, numbers)));
            }
            if let Some(last) = self.last_below(start, levels - 1, at, range, path)? {
                return Ok(Some(last));
            }
            end = numbers.start;
        }
    }

    /// The last run of numbers that name blocks of `range`, with the path to it.
    pub(super) fn last(&self, range: &Range<u64>) -> Result<Option<(usize, Path, Last)>> {
        let shape = self.nodes.shape();
        let end = range.end.min(shape.end());
        if range.start >= end {
            return Ok(None);
        }
        let range = range.start..end;
        for levels in (1..=MAX_LEVELS).rev() {
            let index = DIRECT + levels as usize - 1;
            let first = DIRECT as u64 + (1..levels).map(|l| shape.span(l)).sum::<u64>();
            let nr = u64::from(pointer(self.root, index));
            if nr == 0 || first >= range.end || first + shape.span(levels) <= range.start {
                continue;
            }
            let mut path = Path::new();
            if let Some(last) = self.last_below(nr, levels, first, &range, &mut path)? {
                return Ok(Some((index, path, last)));
            }
        }
        let direct = range.start.min(DIRECT as u64)..range.end.min(DIRECT as u64);
        let Some(last) = direct
            .clone()
            .rev()
            .find(|i| pointer(self.root, to_usize(*i)) != 0)
        else {
            return Ok(None);
        };
        let number = |i: u64| pointer(self.root, to_usize(i));
        let mut start = last;
        while start > direct.start
            && number(start - 1) != 0
            && number(start - 1).checked_add(1) == Some(number(start))
        {
            start -= 1;
        }
        let e = Extent {
            block: bounded32(start),
            len: bounded32(last + 1 - start),
            start: u64::from(number(start)),
            unwritten: false,
        };
        let numbers = to_usize(start)..to_usize(last) + 1;
        Ok(Some((numbers.start, Path::new(), Last::Run(e, numbers))))
    }

    /// Removes `numbers` from the last block of the path, or from the inode, and frees the indirect
    /// blocks that then name nothing (blockmap.B2).
    fn take_out(&mut self, index: usize, path: &Path, numbers: Range<usize>) -> Result<()> {
        let mut numbers = numbers;
        let mut rest = &path[..];
        while let Some((step, above)) = rest.split_last() {
            let others = self.nodes.read(step.nr, |bytes| {
                (0..bytes.len() / 4).any(|i| !numbers.contains(&i) && pointer(bytes, i) != 0)
            })?;
            if others {
                return self.nodes.change(step.nr, |bytes| {
                    for i in numbers {
                        let _ = set_pointer(bytes, i, 0);
                    }
                });
            }
            self.nodes.free(step.nr)?;
            numbers = above.last().map_or(index..index + 1, |s| s.at..s.at + 1);
            rest = above;
        }
        for i in numbers {
            let _ = set_pointer(self.root, i, 0);
        }
        Ok(())
    }
}

impl<N: IndirectMut> EditMap for BlockMap<'_, N> {
    fn insert(&mut self, new: Extent) -> Result<()> {
        let leaf = self.nodes.shape().leaf(u64::from(new.block));
        if leaf.is_empty() || new.start + u64::from(new.len) > 1 << 32 {
            return Err(FsError::Errno(libc::EFBIG));
        }
        if new.unwritten {
            return Err(FsError::Errno(libc::EOPNOTSUPP));
        }
        if new.logical_end() > leaf.end {
            return Err(damaged(
                self.nodes,
                0,
                format_args!("{new:?} crosses the end of a leaf"),
            ));
        }
        let (index, path, lacking) = self.path(u64::from(new.block))?;
        if lacking > 0 {
            return self.build(index, &path, lacking, &new);
        }
        let free =
            |bytes: &[u8], at: usize| (at..at + new.len as usize).all(|i| pointer(bytes, i) == 0);
        match path.last() {
            None if free(self.root, index) => fill(self.root, index, &new),
            Some(step) if self.nodes.read(step.nr, |b| free(b, step.at))? => {
                self.nodes
                    .change(step.nr, |bytes| fill(bytes, step.at, &new))?;
            }
            _ => return Err(self.taken(&new)),
        }
        Ok(())
    }

    fn remove_last(&mut self, range: &Range<u64>, most: u32) -> Result<Removed> {
        match self.last(range)? {
            None => Ok(Removed::Nothing),
            Some((index, path, Last::Run(e, numbers))) => {
                let gone = e.last(most);
                let kept = to_usize(u64::from(e.len - gone.len));
                self.take_out(index, &path, numbers.start + kept..numbers.end)?;
                Ok(Removed::Extent(gone))
            }
            Some((index, path, Last::EmptyNode)) => {
                self.take_out(index, &path, 0..0)?;
                Ok(Removed::Node)
            }
        }
    }

    fn convert_first(&mut self, range: &Range<u64>, unwritten: bool) -> Result<u64> {
        if unwritten {
            return Err(FsError::Errno(libc::EOPNOTSUPP));
        }
        // A block map has only written blocks.
        Ok(range.end)
    }
}
