//! Block maps of ext2 and ext3 ("Direct/Indirect Block Addressing" in the ext4 documentation).
//!
//! `i_block` holds 15 block numbers: those of the file's first 12 blocks, then one each of an
//! indirect block (which holds block numbers), of a double indirect block (which holds numbers of
//! indirect blocks), and of a triple indirect block. Zero is a hole, of the size of everything
//! below it.

use crate::bytes::{le32, put};
use crate::num::{count32, to_usize};

/// Number of block numbers in `i_block` that refer to data.
pub const DIRECT: usize = 12;
/// Levels of indirect blocks below the last number in `i_block`.
pub const MAX_LEVELS: u32 = 3;
/// Bytes of a block number.
const WIDTH: usize = 4;

/// Block number `index` of `i_block` or of an indirect block; 0, like a hole, past the end.
#[must_use]
pub fn pointer(bytes: &[u8], index: usize) -> u32 {
    le32(bytes, index.saturating_mul(WIDTH)).unwrap_or(0)
}

/// The number of consecutive zeros among the block numbers `from..to`, from the first on.
#[must_use]
pub fn leading_holes(bytes: &[u8], from: usize, to: usize) -> usize {
    const ROW: usize = 64;
    let end = to.saturating_mul(WIDTH).min(bytes.len());
    let rest = bytes
        .get(from.saturating_mul(WIDTH)..end)
        .unwrap_or_default();
    let (rows, _) = rest.as_chunks::<ROW>();
    let rows = rows.iter().take_while(|row| **row == [0; ROW]).count();
    let (numbers, _) = rest
        .get(rows * ROW..)
        .unwrap_or_default()
        .as_chunks::<WIDTH>();
    let behind = numbers.iter().take_while(|nr| **nr == [0; WIDTH]).count();
    rows * ROW / WIDTH + behind
}

/// Stores [`pointer()`]; `None` past the end.
pub fn set_pointer(bytes: &mut [u8], index: usize, nr: u32) -> Option<()> {
    put(bytes, index.checked_mul(WIDTH)?, &nr.to_le_bytes())
}

/// Whether an indirect block holds no block number.
#[must_use]
pub fn is_empty(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

/// The file blocks below one number of `i_block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Index of the number in `i_block`.
    pub index: usize,
    /// Levels of indirect blocks below it: 0 for the first 12.
    pub levels: u32,
    /// First file block below it.
    pub first: u64,
}

/// Sizes that follow from the block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    bits: u32,
}

impl Shape {
    /// The shape for blocks of `block_size` bytes, a power of two of at least 1024.
    #[must_use]
    pub fn new(block_size: u32) -> Shape {
        Shape {
            bits: (block_size / count32(WIDTH)).trailing_zeros(),
        }
    }

    /// Block numbers in an indirect block.
    #[must_use]
    pub fn per_block(&self) -> u64 {
        1 << self.bits
    }

    /// File blocks below a block number with `levels` of indirect blocks.
    #[must_use]
    pub fn span(&self, levels: u32) -> u64 {
        1 << (self.bits * levels.min(MAX_LEVELS))
    }

    /// The first file block that no map can hold.
    #[must_use]
    pub fn end(&self) -> u64 {
        DIRECT as u64 + (1..=MAX_LEVELS).map(|l| self.span(l)).sum::<u64>()
    }

    /// The branch of a file block; `None` past the end.
    #[must_use]
    pub fn branch(&self, block: u64) -> Option<Branch> {
        if block < DIRECT as u64 {
            return Some(Branch {
                index: to_usize(block),
                levels: 0,
                first: block,
            });
        }
        let mut first = DIRECT as u64;
        for levels in 1..=MAX_LEVELS {
            if block - first < self.span(levels) {
                return Some(Branch {
                    index: DIRECT + levels as usize - 1,
                    levels,
                    first,
                });
            }
            first += self.span(levels);
        }
        None
    }

    /// The file blocks whose numbers are stored beside that of `block`: those of its indirect
    /// block, or the direct ones. Empty past the end.
    #[must_use]
    pub fn leaf(&self, block: u64) -> core::ops::Range<u64> {
        match self.branch(block) {
            None => block..block,
            Some(Branch { levels: 0, .. }) => 0..DIRECT as u64,
            Some(branch) => {
                let start = block - (block - branch.first) % self.per_block();
                start..start + self.per_block()
            }
        }
    }

    /// Maximum size of a block-mapped file in bytes. The map limits it, and so does `i_blocks` (32
    /// bits of sectors, or with `huge_file` 48 bits of blocks), which also counts all indirect
    /// blocks.
    #[must_use]
    pub fn max_file_size(&self, huge_file: bool) -> u64 {
        let block_size = (WIDTH as u64) << self.bits;
        let countable = if huge_file {
            (1 << 48) - 1
        } else {
            u64::from(u32::MAX) / (block_size / 512)
        };
        let blocks = match self.end() + self.maps_of(self.end()) <= countable {
            true => self.end(),
            // As Linux since 5.16: as many maps are taken off as that many blocks need.
            false => countable - self.maps_of(countable).min(countable),
        };
        blocks * block_size
    }

    /// The number of indirect blocks that map this many blocks from the start of a file.
    fn maps_of(&self, blocks: u64) -> u64 {
        let (mut left, mut maps) = (blocks.saturating_sub(DIRECT as u64), 0);
        for depth in 1..=3 {
            let here = left.min(self.span(depth));
            left -= here;
            // Each level of the branch, down to the blocks that name data.
            maps += (1..=depth)
                .map(|level| here.div_ceil(self.span(level)))
                .sum::<u64>();
        }
        maps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn holes_are_counted_as_one_by_one(
            holes in 0usize..200, more in 0usize..70, from in 0usize..250, to in 0usize..300,
        ) {
            let numbers = [vec![0u32; holes], vec![7; more.min(1)], vec![0; more]].concat();
            let bytes: Vec<u8> = numbers.iter().flat_map(|nr| nr.to_le_bytes()).collect();
            let end = to.min(numbers.len());
            let counted = (from..end).take_while(|i| pointer(&bytes, *i) == 0).count();
            prop_assert_eq!(leading_holes(&bytes, from, to), counted);
        }
    }

    #[test]
    fn branches_follow_each_other() {
        for block_size in [1024, 2048, 4096] {
            let shape = Shape::new(block_size);
            let per = shape.per_block();
            assert_eq!(per, u64::from(block_size) / 4);
            let starts = [0, 12, 12 + per, 12 + per + per * per];
            for (levels, first) in starts.into_iter().enumerate() {
                let b = shape.branch(first);
                assert_eq!(
                    b.map(|b| (b.levels as usize, b.first)),
                    Some((levels, first))
                );
                if let Some(before) = first.checked_sub(1) {
                    assert_eq!(
                        shape.branch(before).map(|b| b.levels as usize),
                        Some(levels - 1)
                    );
                }
            }
            assert_eq!(shape.end(), starts[3] + per * per * per);
            assert_eq!(shape.branch(shape.end()), None);
            assert_eq!(shape.branch(shape.end() - 1).map(|b| b.index), Some(14));
            assert_eq!(shape.leaf(5), 0..12);
            assert_eq!(shape.leaf(12), 12..12 + per);
            assert_eq!(shape.leaf(12 + per - 1), 12..12 + per);
            assert_eq!(shape.leaf(12 + per), 12 + per..12 + 2 * per);
            assert!(shape.leaf(shape.end()).is_empty());
        }
    }

    #[test]
    fn sizes_are_those_of_linux() {
        // 16 GiB and a little with 1 KiB blocks; with 4 KiB blocks 2 TiB less the maps, or 4 TiB
        // and a little. The sizes are those that the kernel's ftruncate(2) takes.
        assert_eq!(Shape::new(1024).max_file_size(true), 17_247_252_480);
        assert_eq!(Shape::new(1024).max_file_size(false), 17_247_252_480);
        assert_eq!(Shape::new(4096).max_file_size(true), 4_402_345_721_856);
        assert_eq!(Shape::new(4096).max_file_size(false), 2_196_873_666_560);
        // Fewer blocks than the whole triple branch would have maps.
        assert!(Shape::new(32 << 10).max_file_size(false) > 1 << 40);
        assert!(Shape::new(64 << 10).max_file_size(false) > 1 << 40);
    }

    #[test]
    fn pointers_stay_inside() {
        let mut bytes = [0; 60];
        assert!(is_empty(&bytes));
        assert_eq!(set_pointer(&mut bytes, 14, 7), Some(()));
        assert_eq!(set_pointer(&mut bytes, 15, 7), None);
        assert_eq!(
            (
                pointer(&bytes, 14),
                pointer(&bytes, 15),
                pointer(&bytes, 13)
            ),
            (7, 0, 0)
        );
        assert!(!is_empty(&bytes));
    }
}
