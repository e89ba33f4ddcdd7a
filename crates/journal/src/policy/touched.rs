//! The set of words of a block that changed.

use std::ops::Range;

pub use stetfs_ondisk::stet::changes::WORD;

/// The number of words in one element of the set.
const PIECE: usize = u64::BITS as usize;

/// The words of a block that changed since it was home: a set of 8-byte words, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched(Vec<u64>);

impl Touched {
    /// The words that differ between two contents of a block, rounded to units of `unit` bytes (at
    /// least a word).
    #[must_use]
    pub fn between(before: &[u8], after: &[u8], unit: usize) -> Touched {
        let bytes = PIECE * WORD;
        let pieces = after.chunks(bytes).enumerate().map(|(i, new)| {
            let old = before.get(i * bytes..).unwrap_or_default();
            let old = old.get(..new.len()).unwrap_or(old);
            if old == new {
                return 0;
            }
            let mut bits = 0;
            for (word, new) in new.chunks(WORD).enumerate() {
                let old = old.get(word * WORD..).unwrap_or_default();
                if !old.starts_with(new) {
                    bits |= 1 << word;
                }
            }
            bits
        });
        let mut touched = Touched(pieces.collect());
        touched.round(unit / WORD, after.len().div_ceil(WORD));
        touched
    }

    /// Rounds the set to units of `unit` words; the block has `words` words.
    fn round(&mut self, unit: usize, words: usize) {
        if unit <= 1 {
            return;
        }
        for start in (0..words).step_by(unit) {
            let unit = start..(start + unit).min(words);
            if unit.clone().any(|word| self.has(word)) {
                unit.for_each(|word| self.add(word));
            }
        }
    }

    fn has(&self, word: usize) -> bool {
        let piece = self.0.get(word / PIECE);
        piece.is_some_and(|bits| bits >> (word % PIECE) & 1 != 0)
    }

    fn add(&mut self, word: usize) {
        if let Some(bits) = self.0.get_mut(word / PIECE) {
            *bits |= 1 << (word % PIECE);
        }
    }

    /// Adds the words of another set of the same block.
    pub fn merge(&mut self, other: &Touched) {
        for (bits, more) in self.0.iter_mut().zip(&other.0) {
            *bits |= more;
        }
    }

    /// The runs of words in the set, ascending. Runs at most `gap` words apart become one.
    #[must_use]
    pub fn runs(&self, gap: usize) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (piece, bits) in self.0.iter().enumerate() {
            let mut left = *bits;
            while left != 0 {
                let from = left.trailing_zeros();
                let len = (left >> from).trailing_ones();
                left &= u64::MAX.checked_shl(from + len).unwrap_or(0);
                let start = piece * PIECE + from as usize;
                let end = start + len as usize;
                match runs.last_mut() {
                    Some(last) if start <= last.end + gap => last.end = end,
                    _ => runs.push(start..end),
                }
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Words that differ are in a run, and no run is longer than it must be.
        #[test]
        fn it_says_what_differs(
            changes in proptest::collection::vec((0usize..4096, 1u8..), 0..40),
            unit in prop_oneof![Just(8usize), Just(64), Just(256), Just(4096)],
            gap in 0usize..3,
        ) {
            let before: Vec<u8> = (0..4096u32).map(|i| (i * 7) as u8).collect();
            let mut after = before.clone();
            changes.iter().for_each(|(at, by)| after[*at] ^= by);
            let touched = Touched::between(&before, &after, unit);
            let runs = touched.runs(gap);
            let mut rebuilt = before.clone();
            for run in &runs {
                let bytes = run.start * WORD..run.end * WORD;
                rebuilt[bytes.clone()].copy_from_slice(&after[bytes.clone()]);
                prop_assert!(unit > 8 || gap > 0 || bytes.into_iter().any(|i| before[i] != after[i]));
            }
            prop_assert_eq!(rebuilt, after);
            prop_assert!(runs.is_sorted_by_key(|run| run.start));
            prop_assert!(runs.windows(2).all(|w| w[0].end + gap < w[1].start));
        }
    }

    #[test]
    fn sets_merge() {
        let zero = vec![0; 1024];
        let with = |at: usize| {
            let mut page = zero.clone();
            page[at] = 1;
            Touched::between(&zero, &page, WORD)
        };
        let mut both = with(0);
        both.merge(&with(1023));
        assert_eq!(both.runs(0), [0..1, 127..128]);
        assert_eq!(both.runs(126), vec![Range { start: 0, end: 128 }]);
        assert_eq!(Touched::between(&zero, &zero, WORD).runs(0), []);
    }
}
