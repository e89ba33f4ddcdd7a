//! Which images a device can share, and in what batches.

use std::collections::HashSet;

use stetfs_block::{ShareLimits, SharePair};

use crate::policy::HomeImage;

/// A log block and its home are two places of one content.
const REFERENCES: u64 = 2;

/// How images go home.
pub(super) struct Plan<'i> {
    /// What is to be shared, in the order of the homes.
    pub shares: Vec<&'i HomeImage>,
    /// What can only be copied.
    pub copies: Vec<&'i HomeImage>,
    /// Images of a batch.
    pub batch: usize,
}

impl<'i> Plan<'i> {
    /// For images of blocks of one size.
    pub(super) fn new(images: &'i [HomeImage], limits: &ShareLimits) -> Plan<'i> {
        let unit = u64::from(limits.unit.max(1));
        let block = images.first().map_or(0, len);
        let batch = limits.pairs.checked_div(block / unit).unwrap_or(0);
        let can_share = batch > 0 && limits.references >= REFERENCES && are_apart(images);
        let fits = |image: &HomeImage| {
            let bytes = [len(image), home(image)];
            let place = image.place.map(|place| place.offset());
            can_share && place.is_some_and(|p| [p].iter().chain(&bytes).all(|n| n % unit == 0))
        };
        let (shares, copies) = images.iter().partition(|image| fits(image));
        Plan {
            shares,
            copies,
            batch: usize::try_from(batch).unwrap_or(usize::MAX),
        }
    }
}

fn len(image: &HomeImage) -> u64 {
    image.page.len() as u64
}

/// First byte of its home on the device.
fn home(image: &HomeImage) -> u64 {
    image.nr * len(image)
}

/// Whether no place is a home (share.S2). A log that was tampered with may say otherwise.
fn are_apart(images: &[HomeImage]) -> bool {
    let places = images.iter().filter_map(|image| image.place);
    let places: HashSet<u64> = places.map(|place| place.offset()).collect();
    !images.iter().any(|image| places.contains(&home(image)))
}

/// The pairs of a batch, neighbours in one.
pub(super) fn pairs(images: &[&HomeImage]) -> Vec<SharePair> {
    let mut pairs: Vec<SharePair> = Vec::new();
    for image in images {
        let Some(place) = image.place else {
            continue;
        };
        let (dst, src, len) = (home(image), place.offset(), len(image));
        match pairs.last_mut() {
            Some(last) if (last.dst + last.len, last.src + last.len) == (dst, src) => {
                last.len += len;
            }
            _ => pairs.push(SharePair { dst, src, len }),
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stetfs_cache::Page;

    use super::*;
    use crate::ids::Lane;
    use crate::policy::Place;

    const LIMITS: ShareLimits = ShareLimits {
        unit: 4096,
        pairs: 8,
        references: 8,
        atomic: true,
    };

    /// Images of blocks of so many bytes: each home, and the byte where it stands in the log.
    fn images(size: usize, of: &[(u64, Option<u64>)]) -> Vec<HomeImage> {
        let image = |&(nr, at): &(u64, Option<u64>)| HomeImage {
            nr,
            page: Arc::new(Page::zeroed(size)),
            place: at.map(|at| Place::new(Lane(0), at)),
        };
        of.iter().map(image).collect()
    }

    fn shared(size: usize, of: &[(u64, Option<u64>)], limits: ShareLimits) -> Vec<u64> {
        let images = images(size, of);
        let plan = Plan::new(&images, &limits);
        assert_eq!(plan.shares.len() + plan.copies.len(), images.len());
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
        let images = images(4096, &of);
        let images: Vec<&HomeImage> = images.iter().collect();
        let pair = |dst, src, len| SharePair {
            dst: page(dst),
            src: page(src),
            len: page(len),
        };
        let expected = [pair(5, 0, 2), pair(8, 2, 1), pair(9, 4, 2)];
        assert_eq!(pairs(&images), expected);
    }
}
