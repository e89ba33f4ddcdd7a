//! Search for free runs in a bitmap, a word at a time.

use std::cell::Cell;
use stetfs_ondisk::num::{count32, to_usize};

/// Blocks or inodes of one group that are free in the bitmap but must not be allocated yet
/// (space.S2).
#[derive(Debug)]
pub(crate) struct Overlay {
    words: Box<[u64]>,
    count: u32,
}

impl Overlay {
    pub(super) fn new(bits: u32) -> Overlay {
        Overlay {
            words: vec![0; (bits as usize).div_ceil(64)].into_boxed_slice(),
            count: 0,
        }
    }

    /// The overlay in `slot`; an empty one of `bits` bits is put there if there is none.
    pub(super) fn of(slot: &mut Option<Box<Overlay>>, bits: u32) -> &mut Overlay {
        slot.get_or_insert_with(|| Box::new(Overlay::new(bits)))
    }

    /// Bits set.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Sets these bits of word `i`.
    pub(super) fn insert_in(&mut self, i: usize, bits: u64) {
        if let Some(word) = self.words.get_mut(i) {
            let new = bits & !*word;
            // Most often there are no new bits.
            if new != 0 {
                self.count += new.count_ones();
                *word |= new;
            }
        }
    }

    /// Clears these bits of word `i`.
    pub(super) fn remove_in(&mut self, i: usize, bits: u64) {
        if let Some(word) = self.words.get_mut(i) {
            let gone = bits & *word;
            if gone != 0 {
                self.count -= gone.count_ones();
                *word ^= gone;
            }
        }
    }

    /// Sets a run of bits.
    pub(super) fn insert(&mut self, start: u32, len: u32) {
        words(start, len).for_each(|(i, bits)| self.insert_in(i, bits));
    }

    /// Clears a run of bits.
    pub(super) fn remove(&mut self, start: u32, len: u32) {
        words(start, len).for_each(|(i, bits)| self.remove_in(i, bits));
    }

    /// Word `i`.
    pub(super) fn word(&self, i: usize) -> u64 {
        self.words.get(i).copied().unwrap_or(0)
    }
}

/// The 64-bit words that a run of bits touches: the index of each, with a mask of the bits in the
/// run.
pub(super) fn words(start: u32, len: u32) -> impl Iterator<Item = (usize, u64)> {
    let (start, end) = (u64::from(start), u64::from(start) + u64::from(len));
    (start / 64..end.div_ceil(64)).map(move |i| {
        let from = start.saturating_sub(i * 64);
        let behind = (i * 64 + 64).saturating_sub(end);
        (to_usize(i), (u64::MAX << from) & (u64::MAX >> behind))
    })
}

/// Word `i` of a bitmap; bits behind the end count as in use.
pub(super) fn bitmap_word(map: &[u8], i: usize) -> u64 {
    let bytes = map.get(i * 8..).and_then(<[u8]>::first_chunk);
    bytes.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

/// Sets word `i` of a bitmap.
pub(super) fn set_bitmap_word(map: &mut [u8], i: usize, word: u64) {
    if let Some(bytes) = map.get_mut(i * 8..).and_then(<[u8]>::first_chunk_mut) {
        *bytes = word.to_le_bytes();
    }
}

/// The bits of a group that can be allocated: clear in the bitmap, not pending, inside the group.
pub(crate) struct FreeMap<'a> {
    bitmap: &'a [u8],
    pending: Option<&'a Overlay>,
    bits: u32,
    /// Words examined so far.
    looked: Cell<u64>,
}

impl<'a> FreeMap<'a> {
    /// A view of a bitmap; `bits` is the number of its valid bits.
    pub(super) fn new(bitmap: &'a [u8], pending: Option<&'a Overlay>, bits: u32) -> FreeMap<'a> {
        FreeMap {
            bitmap,
            pending,
            bits,
            looked: Cell::new(0),
        }
    }

    /// Words of the bitmap that were examined.
    pub(super) fn looked(&self) -> u64 {
        self.looked.get()
    }

    /// Word `i`, with a bit set for every free one.
    fn free_word(&self, i: usize) -> u64 {
        self.looked.set(self.looked.get() + 1);
        let used = bitmap_word(self.bitmap, i);
        let mut free = !(used | self.pending.map_or(0, |p| p.word(i)));
        let end = self.bits.saturating_sub(count32(i).saturating_mul(64));
        if end < 64 {
            free &= (1u64 << end) - 1;
        }
        free
    }

    /// The first free bit in `from..to`.
    pub(super) fn next_free(&self, from: u32, to: u32) -> Option<u32> {
        let to = to.min(self.bits);
        let mut at = from;
        while at < to {
            let w = self.free_word((at / 64) as usize) >> (at % 64);
            if w != 0 {
                let found = at + w.trailing_zeros();
                return (found < to).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// The end of the free run that begins at `from`, at most `to`.
    pub(super) fn run_end(&self, from: u32, to: u32) -> u32 {
        let to = to.min(self.bits);
        let mut at = from;
        while at < to {
            let used = !self.free_word((at / 64) as usize) >> (at % 64);
            // The shift brings in zeroes at the top; they say nothing about the next word.
            let n = used.trailing_zeros().min(64 - at % 64);
            if n < 64 - at % 64 {
                return (at + n).min(to);
            }
            at += n;
        }
        to
    }

    /// The start of the free run that ends before `end`.
    fn run_begin(&self, end: u32) -> u32 {
        let mut at = end.min(self.bits);
        while at > 0 {
            let word = (at - 1) / 64;
            let n = at - word * 64;
            // The lowest `n` bits of the word, shifted to its top.
            let free = self.free_word(word as usize) << (64 - n);
            let ones = free.leading_ones().min(n);
            at -= ones;
            if ones < n {
                break;
            }
        }
        at
    }

    /// Length of the free run around `start..end`, which is free.
    pub(super) fn run_around(&self, start: u32, end: u32) -> u32 {
        self.run_end(end, self.bits).max(end) - self.run_begin(start).min(start)
    }

    /// Length of the longest free run.
    pub(super) fn longest(&self) -> u32 {
        let (mut at, mut longest) = (0, 0);
        while let Some(start) = self.next_free(at, self.bits) {
            at = self.run_end(start, self.bits);
            longest = longest.max(at - start);
        }
        longest
    }
}

/// Searches for a run of `need` bits from `from` on, then from `first` (no bit before it is free).
/// Returns the start and end of the run, or of the longest run if there is none. Ends early at
/// `need` or `want` bits, whichever is more. `avoid` are sorted runs that must not be touched.
pub(crate) fn find_run(
    map: &FreeMap<'_>,
    avoid: &[(u32, u32)],
    (first, from): (u32, u32),
    need: u32,
    want: u32,
) -> Option<(u32, u32)> {
    let enough = need.max(want);
    let mut best: Option<(u32, u32)> = None;
    for (lo, hi) in [(from.max(first), map.bits), (first, from.min(map.bits))] {
        let mut at = lo;
        let mut blockers = avoid.iter().copied().peekable();
        while let Some(start) = map.next_free(at, hi) {
            // Free space before and behind a run to avoid counts as separate pieces.
            while blockers.next_if(|(_, end)| *end <= start).is_some() {}
            let blocker = blockers.peek().copied();
            if let Some((_, end)) = blocker.filter(|(begin, _)| *begin <= start) {
                at = end;
                continue;
            }
            // A run that begins before `from` may extend past it.
            let limit = blocker.map_or(map.bits, |(begin, _)| begin);
            let end = map.run_end(start, limit.min(start.saturating_add(enough)));
            if best.is_none_or(|(x, y)| end - start > y - x) {
                best = Some((start, end));
            }
            if end - start >= need {
                return best;
            }
            at = end;
        }
    }
    best
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all_runs(map: &FreeMap<'_>) -> Vec<(u32, u32)> {
        let mut runs = Vec::new();
        let mut at = 0;
        while let Some(start) = map.next_free(at, map.bits) {
            at = map.run_end(start, map.bits);
            runs.push((start, at));
        }
        runs
    }

    fn model_runs(free: &[bool], avoid: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let ok = |i: usize| free[i] && !avoid.iter().any(|(a, b)| (*a..*b).contains(&(i as u32)));
        let mut out = Vec::new();
        let mut i = 0;
        while i < free.len() {
            if !ok(i) {
                i += 1;
                continue;
            }
            let start = i;
            while i < free.len() && ok(i) {
                i += 1;
            }
            out.push((start as u32, i as u32));
        }
        out
    }

    proptest! {
        #[test]
        fn runs_are_those_of_a_vector_of_bools(
            bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(255u8), any::<u8>()], 32),
            bits in 1u32..256, pend in 0u32..256, pend_len in 0u32..64, from in 0u32..256,
        ) {
            let bits = bits.min(256);
            let mut overlay = Overlay::new(256);
            overlay.insert(pend, pend_len.min(256 - pend));
            let free: Vec<bool> = (0..bits)
                .map(|i| bytes[(i / 8) as usize] >> (i % 8) & 1 == 0 && !(pend..pend + pend_len).contains(&i))
                .collect();
            let map = FreeMap::new(&bytes, Some(&overlay), bits);
            let runs = all_runs(&map);
            prop_assert_eq!(&runs, &model_runs(&free, &[]));
            let from = from.min(bits);
            let found = find_run(&map, &[], (0, from), u32::MAX, 1);
            let longest = runs.iter().map(|(a, b)| b - a).max().unwrap_or(0);
            prop_assert_eq!(found.map_or(0, |(a, b)| b - a), longest);
            prop_assert_eq!(map.longest(), longest);
            for (a, b) in runs {
                prop_assert_eq!(map.run_around(a, b), b - a);
                prop_assert_eq!(map.run_around((a + b) / 2, (a + b).div_ceil(2)), b - a);
            }
        }

        #[test]
        fn a_found_run_is_free_and_avoids(
            bytes in proptest::collection::vec(any::<u8>(), 32), from in 0u32..256, need in 1u32..20,
            a in 0u32..256, len in 1u32..64,
        ) {
            let avoid = [(a, (a + len).min(256))];
            let map = FreeMap::new(&bytes, None, 256);
            let free: Vec<bool> = (0..256usize).map(|i| bytes[i / 8] >> (i % 8) & 1 == 0).collect();
            let model = model_runs(&free, &avoid);
            match find_run(&map, &avoid, (0, from), need, 1) {
                None => prop_assert!(model.is_empty()),
                Some((x, y)) => {
                    prop_assert!(y > x && model.iter().any(|(p, q)| *p <= x && y <= *q));
                    let from_zero = find_run(&map, &avoid, (0, 0), need, 1).unwrap();
                    let max = model.iter().map(|(p, q)| q - p).max().unwrap();
                    prop_assert!(from_zero.1 - from_zero.0 >= need.min(max));
                }
            }
        }
    }

    #[test]
    fn an_overlay_counts_its_bits() {
        let mut o = Overlay::new(200);
        o.insert(60, 70);
        o.insert(100, 50);
        assert_eq!(o.count(), 90);
        o.remove(0, 128);
        assert_eq!(o.count(), 22);
        o.remove(0, 200);
        assert_eq!(o.count(), 0);
    }
}
