//! SHARE: the capability of a device to give two places one content without copying it (Oh et al.,
//! SIGMOD 2016).

use crate::range::check_range;
use crate::{BlockError, Op, Result};

/// A pair to share: `dst` gets the content of `src`. All fields are bytes, and multiples of the
/// device's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharePair {
    /// First byte of the destination.
    pub dst: u64,
    /// First byte of the source.
    pub src: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The limits of a device's SHARE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareLimits {
    /// Bytes of a unit.
    pub unit: u32,
    /// Maximum number of units in a batch.
    pub pairs: u64,
    /// Maximum number of places with one content; [`u64::MAX`] for no limit.
    pub references: u64,
    /// Whether batches are atomic in a crash. If not, each unit of a batch may have arrived or not.
    pub atomic: bool,
}

/// The capability of a [`BlockDevice`](crate::BlockDevice) to share
/// ([`BlockDevice::share`](crate::BlockDevice::share)).
pub trait Share: Send + Sync {
    /// The limits of the capability.
    fn limits(&self) -> ShareLimits;

    /// Makes each `dst` read as its `src` did before the batch. A later write to one of the two
    /// leaves the other as it was. Durable like a write: after a flush.
    ///
    /// # Errors
    /// The batch is too long ([`BlockError::ShareBatch`]), a content would be in too many places
    /// ([`BlockError::ShareReferences`]), a pair is not made of whole units, or a destination
    /// occurs twice; then nothing was changed. Otherwise the device's error.
    fn share_batch(&self, pairs: &[SharePair]) -> Result<()>;

    /// Shares a batch of one pair.
    ///
    /// # Errors
    /// As [`share_batch`](Self::share_batch).
    fn share_range(&self, dst: u64, src: u64, len: u64) -> Result<()> {
        self.share_batch(&[SharePair { dst, src, len }])
    }
}

impl SharePair {
    /// Destination and source of each unit.
    pub fn units(&self, unit: u32) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (dst, src) = (self.dst, self.src);
        let offsets = (0..self.len).step_by(unit.max(1) as usize);
        offsets.map(move |at| (dst + at, src + at))
    }
}

/// Checks that a device of `size` bytes with these limits can share a batch. It does not check the
/// number of references.
///
/// # Errors
/// The fault of the batch.
pub fn check_share(pairs: &[SharePair], limits: &ShareLimits, size: u64) -> Result<()> {
    let unit = u64::from(limits.unit.max(1));
    let mut units = 0u64;
    for pair in pairs {
        check_range(Op::Share, pair.dst, pair.len, size)?;
        check_range(Op::Share, pair.src, pair.len, size)?;
        for offset in [pair.dst, pair.src, pair.len] {
            if !offset.is_multiple_of(unit) {
                return Err(BlockError::ShareUnit {
                    offset,
                    unit: limits.unit,
                });
            }
        }
        units += pair.len / unit;
    }
    if units > limits.pairs {
        return Err(BlockError::ShareBatch {
            units,
            limit: limits.pairs,
        });
    }
    let mut changed: Vec<_> = pairs
        .iter()
        .filter(|p| p.len > 0)
        .map(|p| p.dst..p.dst + p.len)
        .collect();
    changed.sort_unstable_by_key(|range| range.start);
    let twice = changed.windows(2).find_map(|two| match two {
        [a, b] if a.end > b.start => Some(b.start),
        _ => None,
    });
    let source = pairs.iter().filter(|p| p.len > 0).find_map(|pair| {
        let next = changed.partition_point(|range| range.end <= pair.src);
        let next = changed.get(next)?;
        (next.start < pair.src + pair.len).then(|| next.start.max(pair.src))
    });
    match twice.or(source) {
        Some(offset) => Err(BlockError::ShareOverlap { offset }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(pairs: &[(u64, u64, u64)]) -> std::result::Result<(), String> {
        let limits = ShareLimits {
            unit: 4096,
            pairs: 4,
            references: 2,
            atomic: true,
        };
        let page = |n| n * 4096;
        let pair = |&(dst, src, len)| SharePair {
            dst: page(dst),
            src: page(src),
            len: page(len),
        };
        let pairs: Vec<_> = pairs.iter().map(pair).collect();
        check_share(&pairs, &limits, page(100)).map_err(|e| e.to_string())
    }

    #[test]
    fn each_limit_has_its_own_error() {
        assert_eq!(checked(&[]), Ok(()));
        assert_eq!(checked(&[(0, 10, 2), (2, 10, 2)]), Ok(()));
        assert_eq!(checked(&[(5, 0, 2), (3, 7, 2)]), Ok(()));
        let wrong = |pairs: &[(u64, u64, u64)], word: &str| {
            let said = checked(pairs).expect_err(word);
            assert!(said.contains(word), "{said}");
        };
        wrong(&[(0, 10, 3), (3, 10, 2)], "cannot share 5 units at once");
        wrong(&[(99, 0, 2)], "beyond the end");
        wrong(&[(0, 99, 2)], "beyond the end");
        wrong(&[(0, 10, 2), (1, 20, 1)], "at byte 4096");
        wrong(&[(0, 10, 2), (20, 1, 1)], "at byte 4096");
        wrong(&[(0, 1, 2)], "at byte 4096");
        let limits = ShareLimits {
            unit: 4096,
            pairs: 4,
            references: 2,
            atomic: true,
        };
        let odd = SharePair {
            dst: 0,
            src: 8192 + 512,
            len: 4096,
        };
        assert!(matches!(
            check_share(&[odd], &limits, 1 << 20),
            Err(BlockError::ShareUnit { offset: 8704, .. })
        ));
    }
}
