//! The choice of images that a device can share, and their batches.

use std::collections::HashSet;

use stetfs_block::{ShareLimits, SharePair};

use crate::policy::Standing;

/// The references to one content after a share: the log block and its home.
const REFERENCES: u64 = 2;

/// The plan of a checkpoint: images that cannot be shared are copied.
pub(super) struct Plan<'i> {
    /// The images to share, in the order of their home blocks.
    pub shares: Vec<&'i Standing>,
    /// The number of images in a batch.
    pub batch: usize,
}

impl<'i> Plan<'i> {
    /// The plan for images of `block` bytes.
    pub(super) fn new(images: &'i [Standing], block: u64, limits: &ShareLimits) -> Plan<'i> {
        let unit = u64::from(limits.unit.max(1));
        let batch = limits.pairs.checked_div(block / unit).unwrap_or(0);
        let can_share = batch > 0 && limits.references >= REFERENCES && are_apart(images, block);
        let fits = |image: &&Standing| {
            let bytes = [block, image.nr * block];
            let place = image.place.map(|place| place.offset());
            can_share && place.is_some_and(|p| [p].iter().chain(&bytes).all(|n| n % unit == 0))
        };
        Plan {
            shares: images.iter().filter(fits).collect(),
            batch: usize::try_from(batch).unwrap_or(usize::MAX),
        }
    }
}

/// Whether no place is a home location (share.S2). It may be one in a log that was tampered with.
fn are_apart(images: &[Standing], block: u64) -> bool {
    let places = images.iter().filter_map(|image| image.place);
    let places: HashSet<u64> = places.map(|place| place.offset()).collect();
    !images.iter().any(|i| places.contains(&(i.nr * block)))
}

/// The pairs of a batch of images of `block` bytes; neighbours are joined.
pub(super) fn pairs(images: &[&Standing], block: u64) -> Vec<SharePair> {
    let mut pairs: Vec<SharePair> = Vec::new();
    for image in images {
        let Some(place) = image.place else {
            continue;
        };
        let (dst, src) = (image.nr * block, place.offset());
        match pairs.last_mut() {
            Some(last) if (last.dst + last.len, last.src + last.len) == (dst, src) => {
                last.len += block;
            }
            _ => pairs.push(SharePair {
                dst,
                src,
                len: block,
            }),
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Lane;
    use crate::policy::Place;

    const LIMITS: ShareLimits = ShareLimits {
        unit: 4096,
        pairs: 8,
        references: 8,
        atomic: true,
    };

    /// Images from pairs of a home block and a byte offset in the log.
    fn images(of: &[(u64, Option<u64>)]) -> Vec<Standing> {
        let image = |&(nr, at): &(u64, Option<u64>)| Standing {
            nr,
            place: at.map(|at| Place::new(Lane(0), at)),
        };
        of.iter().map(image).collect()
    }

    fn shared(block: u64, of: &[(u64, Option<u64>)], limits: ShareLimits) -> Vec<u64> {
        let images = images(of);
        let plan = Plan::new(&images, block, &limits);
        plan.shares.iter().map(|image| image.nr).collect()
    }

    #[test]
    fn what_has_no_place_of_whole_units_is_copied() {
        let of = [(5, Some(0)), (6, None), (7, Some(4096)), (8, Some(9216))];
        assert_eq!(shared(4096, &of, LIMITS), [5, 7]);
        assert!(shared(1024, &of, LIMITS).is_empty(), "smaller than a unit");
        let unit = |unit| ShareLimits { unit, ..LIMITS };
        assert_eq!(shared(4096, &of, unit(512)), [5, 7, 8]);
        assert!(shared(4096, &of, unit(8192)).is_empty());
        let pairs = |pairs| ShareLimits { pairs, ..LIMITS };
        assert_eq!(shared(8192, &[(3, Some(0))], pairs(2)), [3]);
        assert!(shared(8192, &[(3, Some(0))], pairs(1)).is_empty());
        assert!(shared(4096, &of, pairs(0)).is_empty());
        let references = 1;
        assert!(
            shared(
                4096,
                &of,
                ShareLimits {
                    references,
                    ..LIMITS
                }
            )
            .is_empty()
        );
    }

    /// share.S2
    #[test]
    fn nothing_is_shared_from_where_something_goes_home() {
        let of = [(2, Some(4096)), (5, Some(8192))];
        assert!(shared(4096, &of, LIMITS).is_empty());
    }

    #[test]
    fn neighbours_are_one_pair() {
        let page = |n: u64| n * 4096;
        let of = [(5, 0), (6, 1), (8, 2), (9, 4), (10, 5)];
        let of: Vec<_> = of.iter().map(|&(nr, at)| (nr, Some(page(at)))).collect();
        let images = images(&of);
        let images: Vec<&Standing> = images.iter().collect();
        let pair = |dst, src, len| SharePair {
            dst: page(dst),
            src: page(src),
            len: page(len),
        };
        let expected = [pair(5, 0, 2), pair(8, 2, 1), pair(9, 4, 2)];
        assert_eq!(pairs(&images, 4096), expected);
    }
}
