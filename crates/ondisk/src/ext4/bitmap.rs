//! Block and inode bitmaps: bit `i` is bit `i % 8` of byte `i / 8`, set when in use.
//!
//! All functions treat bits past the slice as in use, so a short slice can never be handed out.

use super::checksum::ext4_crc32c;
use core::ops::Range;

/// Whether bit `i` is set.
#[must_use]
pub fn is_set(map: &[u8], i: usize) -> bool {
    map.get(i / 8).is_none_or(|b| b & (1 << (i % 8)) != 0)
}

/// Sets bit `i`; returns whether it was clear before.
pub fn set(map: &mut [u8], i: usize) -> bool {
    match map.get_mut(i / 8) {
        Some(b) => {
            let was_clear = *b & (1 << (i % 8)) == 0;
            *b |= 1 << (i % 8);
            was_clear
        }
        None => false,
    }
}

/// Clears bit `i`; returns whether it was set before.
pub fn clear(map: &mut [u8], i: usize) -> bool {
    match map.get_mut(i / 8) {
        Some(b) => {
            let was_set = *b & (1 << (i % 8)) != 0;
            *b &= !(1 << (i % 8));
            was_set
        }
        None => false,
    }
}

/// Calls `f` with the bytes that `bits` touches as numbers, one or eight bytes at a time, each with
/// a mask of the bits in range, and stores the result in their place.
fn for_masks(map: &mut [u8], bits: Range<usize>, mut f: impl FnMut(u64, u64) -> u64) {
    if bits.is_empty() {
        return;
    }
    let mut one = |byte: Option<&mut u8>, mask: u8| {
        if let Some(byte) = byte {
            let [changed, ..] = f(u64::from(*byte), u64::from(mask)).to_le_bytes();
            *byte = changed;
        }
    };
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    let (from, to) = (0xff << (bits.start % 8), 0xff >> (7 - (bits.end - 1) % 8));
    if first == last {
        return one(map.get_mut(first), from & to);
    }
    one(map.get_mut(first), from);
    one(map.get_mut(last), to);
    let end = last.min(map.len());
    let (words, bytes) = map
        .get_mut(first + 1..end)
        .unwrap_or_default()
        .as_chunks_mut();
    bytes.iter_mut().for_each(|byte| one(Some(byte), 0xff));
    for word in words {
        *word = f(u64::from_ne_bytes(*word), u64::MAX).to_ne_bytes();
    }
}

/// Sets all bits of `bits`; returns how many were clear.
pub fn set_range(map: &mut [u8], bits: Range<usize>) -> usize {
    let mut changed = 0;
    for_masks(map, bits, |word, mask| {
        changed += (!word & mask).count_ones() as usize;
        word | mask
    });
    changed
}

/// Clears all bits of `bits`; returns how many were set.
pub fn clear_range(map: &mut [u8], bits: Range<usize>) -> usize {
    let mut changed = 0;
    for_masks(map, bits, |word, mask| {
        changed += (word & mask).count_ones() as usize;
        word & !mask
    });
    changed
}

/// Index of the first bit in `bits` with value `set`.
fn find(map: &[u8], bits: Range<usize>, set: bool) -> Option<usize> {
    let end = bits.end.min(map.len().saturating_mul(8));
    let others = if set { 0 } else { 0xff };
    let mut i = bits.start;
    while i < end {
        let wanted = (*map.get(i / 8)? ^ others) >> (i % 8);
        if wanted != 0 {
            let at = i + wanted.trailing_zeros() as usize;
            return (at < end).then_some(at);
        }
        i = (i / 8 + 1) * 8;
        let (words, _) = map.get(i / 8..).unwrap_or_default().as_chunks::<8>();
        i += words
            .iter()
            .take_while(|word| **word == [others; 8])
            .count()
            * 64;
    }
    None
}

/// First clear bit in `bits`.
#[must_use]
pub fn find_clear(map: &[u8], bits: Range<usize>) -> Option<usize> {
    find(map, bits, false)
}

/// First set bit in `bits`.
#[must_use]
pub fn find_set(map: &[u8], bits: Range<usize>) -> Option<usize> {
    find(map, bits, true)
}

/// First run of clear bits in `bits`, at most `max` long.
#[must_use]
pub fn find_clear_run(map: &[u8], bits: Range<usize>, max: usize) -> Option<Range<usize>> {
    let start = find_clear(map, bits.clone())?;
    let limit = bits
        .end
        .min(map.len().saturating_mul(8))
        .min(start.saturating_add(max));
    let end = find_set(map, start..limit).unwrap_or(limit);
    Some(start..end)
}

/// Number of clear bits among the first `len`.
#[must_use]
pub fn count_clear(map: &[u8], len: usize) -> usize {
    let len = len.min(map.len().saturating_mul(8));
    let (whole, rest) = map.split_at(len / 8);
    let (words, bytes) = whole.as_chunks();
    let in_words: u32 = words
        .iter()
        .map(|word| u64::from_ne_bytes(*word).count_zeros())
        .sum();
    let clear = in_words as usize
        + bytes
            .iter()
            .map(|b| b.count_zeros() as usize)
            .sum::<usize>();
    let tail = rest
        .first()
        .map_or(0, |b| (!b & !(0xffu8 << (len % 8))).count_ones() as usize);
    clear + tail
}

/// Sets every bit from `len` to the end of the slice: the padding of a bitmap block.
pub fn set_padding(map: &mut [u8], len: usize) {
    let end = map.len().saturating_mul(8);
    if len < end {
        set_range(map, len..end);
    }
}

/// Checksum of a bitmap of `bits` bits (clusters or inodes per group, also in a short last group).
/// A 32-byte group descriptor stores its low 16 bits.
#[must_use]
pub fn checksum(csum_seed: u32, map: &[u8], bits: u32) -> u32 {
    let len = (bits as usize).div_ceil(8);
    ext4_crc32c(csum_seed, map.get(..len).unwrap_or(map))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes with runs of equal values, as in bitmaps.
    fn runs() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0), Just(0xff), any::<u8>()];
        let run = (byte, 1usize..30).prop_map(|(byte, len)| vec![byte; len]);
        proptest::collection::vec(run, 0..8).prop_map(|runs| runs.concat())
    }

    proptest! {
        #[test]
        fn agrees_with_a_vector_of_bools(
            bytes in runs(), a in 0usize..2000, b in 0usize..2000, op in 0u8..2,
        ) {
            let (a, b) = (a.min(b), a.max(b));
            let mut map = bytes.clone();
            let mut model: Vec<bool> = (0..bytes.len() * 8).map(|i| bytes[i / 8] >> (i % 8) & 1 == 1).collect();
            let range = a.min(model.len())..b.min(model.len());
            prop_assert_eq!(find_clear(&map, a..b), range.clone().find(|&i| !model[i]));
            prop_assert_eq!(find_set(&map, a..b), range.clone().find(|&i| model[i]));
            prop_assert_eq!(count_clear(&map, a), model.iter().take(a).filter(|x| !**x).count());
            let before = model.clone();
            model[range].fill(op == 0);
            let changed = if op == 0 { set_range(&mut map, a..b) } else { clear_range(&mut map, a..b) };
            prop_assert_eq!(changed, before.iter().zip(&model).filter(|(x, y)| x != y).count());
            for (i, bit) in model.iter().enumerate() {
                prop_assert_eq!(is_set(&map, i), *bit);
            }
            prop_assert!(is_set(&map, model.len()));
        }
    }
}
