//! Changes of an extent tree's mappings: insert, remove, convert. Each changes one leaf.

use std::ops::Range;

use smallvec::SmallVec;
use stetfs_journal::BlockNr;
use stetfs_ondisk::ext4::extent::{Extent, MAX_UNWRITTEN_LEN};

use super::extent::{cut, joined};
use super::tree::{NodesMut, Place, Tree, find};
use crate::data::maps::mapping::{EditMap, Removed, first_from};
use crate::error::Result;

/// The replacement of a few extents of one leaf.
pub(crate) type Pieces = SmallVec<[Extent; 4]>;

/// The most splits and growths that make room in one leaf: each level once, and a new root.
const MOST_SPLITS: u32 = 16;

impl<N: NodesMut> EditMap for Tree<'_, N> {
    /// Maps the new extent, joined with adjacent extents.
    fn insert(&mut self, new: Extent) -> Result<()> {
        for _ in 0..MOST_SPLITS {
            let place = self.place(new.block)?;
            let [_, before] = place.before;
            if before.is_some_and(|b| b.logical_end() > u64::from(new.block))
                || place
                    .after
                    .is_some_and(|a| u64::from(a.block) < new.logical_end())
            {
                return Err(self.damaged(0, format_args!("{new:?} overlaps a mapped extent")));
            }
            let at = place.at();
            let (range, pieces) = join(at..at, Pieces::from_slice(&[new]), before, place.after);
            if self.try_replace(&place, range, &pieces, new.start)? {
                return Ok(());
            }
        }
        Err(self.damaged(0, "no room after splitting nodes"))
    }

    fn remove_last(&mut self, range: &Range<u64>, most: u32) -> Result<Removed> {
        if range.is_empty() {
            return Ok(Removed::Nothing);
        }
        let last = u32::try_from(range.end - 1).unwrap_or(u32::MAX);
        for _ in 0..MOST_SPLITS {
            let place = self.place(last)?;
            let [_, before] = place.before;
            let Some((whole, gone)) = before.and_then(|b| Some((b, cut(&b, range)?.last(most))))
            else {
                return Ok(Removed::Nothing);
            };
            let at = place.at();
            if self.try_replace(
                &place,
                at - 1..at,
                &around(&whole, &gone, None),
                whole.start,
            )? {
                return Ok(Removed::Extent(gone));
            }
        }
        Err(self.damaged(0, "no room after splitting nodes"))
    }

    fn convert_first(&mut self, range: &Range<u64>, unwritten: bool) -> Result<u64> {
        let Ok(block) = u32::try_from(range.start) else {
            return Ok(range.end);
        };
        for _ in 0..MOST_SPLITS {
            let place = self.place(block)?;
            let [left, before] = place.before;
            let Some((whole, mut part)) = before.and_then(|b| Some((b, cut(&b, range)?))) else {
                // A hole: done up to the next mapped block.
                let next = first_from(|at| find(self.nodes, self.root, at), range.start)?;
                return Ok(next.map_or(range.end, |e| u64::from(e.block).min(range.end)));
            };
            if whole.unwritten == unwritten {
                return Ok(part.logical_end());
            }
            if unwritten {
                part.len = part.len.min(MAX_UNWRITTEN_LEN);
            }
            let pieces = around(&whole, &part, Some(Extent { unwritten, ..part }));
            let left = left.filter(|_| part.block == whole.block);
            let right = place
                .after
                .filter(|_| part.logical_end() == whole.logical_end());
            let at = place.at();
            let (gone, pieces) = join(at - 1..at, pieces, left, right);
            if self.try_replace(&place, gone, &pieces, whole.start)? {
                return Ok(part.logical_end());
            }
        }
        Err(self.damaged(0, "no room after splitting nodes"))
    }
}

impl<N: NodesMut> Tree<'_, N> {
    /// Replaces extents if the leaf has room. Otherwise makes some room and returns `false`.
    fn try_replace(
        &mut self,
        place: &Place,
        gone: Range<usize>,
        new: &[Extent],
        near: BlockNr,
    ) -> Result<bool> {
        let fits = place.fits(gone.len(), new.len());
        if fits {
            self.replace(&place.path, gone, new)?;
        } else {
            self.make_room(&place.path, near)?;
        }
        Ok(fits)
    }
}

/// The rest of `whole` around `part`, with `middle` in the place of `part`.
fn around(whole: &Extent, part: &Extent, middle: Option<Extent>) -> Pieces {
    let head = cut(whole, &(u64::from(whole.block)..u64::from(part.block)));
    let tail = cut(whole, &(part.logical_end()..whole.logical_end()));
    head.into_iter().chain(middle).chain(tail).collect()
}

/// Joins the outer pieces with adjacent extents of the leaf, and extends the range over these.
fn join(
    mut range: Range<usize>,
    mut pieces: Pieces,
    before: Option<Extent>,
    after: Option<Extent>,
) -> (Range<usize>, Pieces) {
    if let Some(last) = pieces.last_mut()
        && let Some(whole) = after.and_then(|a| joined(last, &a))
    {
        *last = whole;
        range.end += 1;
    }
    if let Some(first) = pieces.first_mut()
        && let Some(whole) = before.and_then(|b| joined(&b, first))
    {
        *first = whole;
        range.start -= 1;
    }
    (range, pieces)
}
