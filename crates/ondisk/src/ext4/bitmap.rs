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

/// Sets bit `i`; answers whether it was clear before.
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

/// Clears bit `i`; answers whether it was set before.
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

/// Applies `f(byte, mask)` to every byte that `bits` touches.
fn for_masks(map: &mut [u8], bits: Range<usize>, mut f: impl FnMut(&mut u8, u8)) {
    if bits.is_empty() {
        return;
    }
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    for (i, b) in map.iter_mut().enumerate().take(last + 1).skip(first) {
        let lo = if i == first { bits.start % 8 } else { 0 };
        let hi = if i == last { (bits.end - 1) % 8 } else { 7 };
        f(b, (0xffu8 << lo) & (0xffu8 >> (7 - hi)));
    }
}

/// Sets all bits of `bits`; answers how many were clear.
pub fn set_range(map: &mut [u8], bits: Range<usize>) -> usize {
    let mut changed = 0;
    for_masks(map, bits, |b, mask| {
        changed += (!*b & mask).count_ones() as usize;
        *b |= mask;
    });
    changed
}

/// Clears all bits of `bits`; answers how many were set.
pub fn clear_range(map: &mut [u8], bits: Range<usize>) -> usize {
    let mut changed = 0;
    for_masks(map, bits, |b, mask| {
        changed += (*b & mask).count_ones() as usize;
        *b &= !mask;
    });
    changed
}

/// Index of the first bit in `bits` with value `set`.
fn find(map: &[u8], bits: Range<usize>, set: bool) -> Option<usize> {
    let end = bits.end.min(map.len().saturating_mul(8));
    let mut i = bits.start;
    while i < end {
        let byte = *map.get(i / 8)?;
        let wanted = if set { byte } else { !byte } >> (i % 8);
        if wanted != 0 {
            let at = i + wanted.trailing_zeros() as usize;
            return (at < end).then_some(at);
        }
        i = (i / 8 + 1) * 8;
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

    proptest! {
        #[test]
        fn agrees_with_a_vector_of_bools(
            bytes in proptest::collection::vec(any::<u8>(), 0..20), a in 0usize..170, b in 0usize..170, op in 0u8..2,
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
