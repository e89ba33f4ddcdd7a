//! Blocks of the orphan file ("Orphan File" in the ext4 documentation): the inode numbers of files
//! to be deleted or truncated on the next mount, in no order, with zero for a free slot. Each block
//! ends in a magic number and a checksum.

use super::checksum::ext4_crc32c;
use crate::bytes::{assert_layout, le32, put, too_short};
use crate::error::{Result, corrupt};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `ob_magic`.
pub const MAGIC: u32 = 0x0b10_ca04;
/// Maximum number of blocks of an orphan file that Linux accepts.
pub const MAX_BLOCKS: u32 = 512;
const WHAT: &str = "orphan file block";

/// `struct ext4_orphan_block_tail`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Tail {
    magic: U32,
    checksum: U32,
}
assert_layout!(Tail, 8, { magic: 0, checksum: 4 });
const TAIL_LEN: usize = size_of::<Tail>();

/// Inode numbers that fit in a block of `block_size` bytes.
#[must_use]
pub fn slots_per_block(block_size: usize) -> usize {
    block_size.saturating_sub(TAIL_LEN) / 4
}

/// Checks a block's length and magic number. The caller checks the inode numbers.
pub fn check(block: &[u8]) -> Result<()> {
    let (_, tail) =
        Tail::ref_from_suffix(block).map_err(|_| too_short(WHAT, block.len(), TAIL_LEN))?;
    if tail.magic.get() != MAGIC {
        return Err(corrupt!(WHAT, "magic {:#010x}", tail.magic.get()));
    }
    Ok(())
}

/// Makes a block empty: free slots and the magic number. The caller updates the checksum.
pub fn init(block: &mut [u8]) -> Result<()> {
    let have = block.len();
    block.fill(0);
    let tail = Tail {
        magic: MAGIC.into(),
        checksum: 0.into(),
    };
    have.checked_sub(TAIL_LEN)
        .and_then(|at| put(block, at, tail.as_bytes()))
        .ok_or_else(|| too_short(WHAT, have, TAIL_LEN))
}

/// Inode number in slot `i`, 0 if it is free; `None` past the last slot.
#[must_use]
pub fn get(block: &[u8], i: usize) -> Option<u32> {
    if i < slots_per_block(block.len()) {
        le32(block, i * 4)
    } else {
        None
    }
}

/// Stores `ino` (0 to free it) in slot `i`.
pub fn set(block: &mut [u8], i: usize, ino: u32) -> Result<()> {
    let slots = slots_per_block(block.len());
    let stored = (i < slots)
        .then(|| put(block, i * 4, &ino.to_le_bytes()))
        .flatten();
    stored.ok_or_else(|| corrupt!(WHAT, "slot {i} of {slots}"))
}

/// All used slots: position and inode number.
pub fn used(block: &[u8]) -> impl Iterator<Item = (usize, u32)> + '_ {
    (0..slots_per_block(block.len()))
        .map_while(|i| Some((i, get(block, i)?)))
        .filter(|(_, ino)| *ino != 0)
}

/// First free slot at or after `from`.
#[must_use]
pub fn find_free(block: &[u8], from: usize) -> Option<usize> {
    (from..slots_per_block(block.len())).find(|i| get(block, *i) == Some(0))
}

/// The checksum of the block at `block_nr` on the volume. `seed` is that of the orphan file's
/// inode.
#[must_use]
pub fn checksum(seed: u32, block_nr: u64, block: &[u8]) -> u32 {
    let slots = block
        .get(..slots_per_block(block.len()) * 4)
        .unwrap_or_default();
    ext4_crc32c(ext4_crc32c(seed, &block_nr.to_le_bytes()), slots)
}

/// Whether a block's checksum is valid; always if `seed` is `None` (no `metadata_csum`).
#[must_use]
pub fn verify_checksum(seed: Option<u32>, block_nr: u64, block: &[u8]) -> bool {
    let Some(seed) = seed else { return true };
    block.len().checked_sub(4).and_then(|at| le32(block, at))
        == Some(checksum(seed, block_nr, block))
}

/// Stores the checksum, if the volume has checksums.
pub fn update_checksum(seed: Option<u32>, block_nr: u64, block: &mut [u8]) -> Result<()> {
    let Some(seed) = seed else { return Ok(()) };
    let (have, csum) = (block.len(), checksum(seed, block_nr, block));
    have.checked_sub(4)
        .and_then(|at| put(block, at, &csum.to_le_bytes()))
        .ok_or_else(|| too_short(WHAT, have, TAIL_LEN))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn slots_fill_and_free() {
        let mut b = vec![0xFFu8; 1024];
        init(&mut b).unwrap();
        check(&b).unwrap();
        assert_eq!(slots_per_block(1024), 254);
        for i in 0..254 {
            assert_eq!(find_free(&b, 0), Some(i));
            set(&mut b, i, 1000 + i as u32).unwrap();
        }
        assert_eq!(find_free(&b, 0), None);
        assert!(set(&mut b, 254, 1).is_err(), "the tail is no slot");
        check(&b).unwrap();
        set(&mut b, 17, 0).unwrap();
        assert_eq!(find_free(&b, 3), Some(17));
        assert_eq!(find_free(&b, 18), None);
        assert_eq!(used(&b).count(), 253);
        assert_eq!(used(&b).next(), Some((0, 1000)));
        b[1016] ^= 1;
        assert!(check(&b).is_err());
    }

    proptest! {
        #[test]
        fn a_flipped_bit_or_another_place_is_noticed(slots in vec(any::<u32>(), 254), nr: u64, bit in 0usize..254 * 32) {
            let mut b = vec![0u8; 1024];
            init(&mut b).unwrap();
            for (i, ino) in slots.iter().enumerate() {
                set(&mut b, i, *ino).unwrap();
            }
            update_checksum(Some(5), nr, &mut b).unwrap();
            prop_assert!(verify_checksum(Some(5), nr, &b));
            prop_assert!(!verify_checksum(Some(5), nr ^ 1, &b));
            prop_assert_eq!((0..254).map(|i| get(&b, i).unwrap()).collect::<Vec<_>>(), slots);
            b[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!verify_checksum(Some(5), nr, &b));
        }

        #[test]
        fn no_bytes_make_it_panic(mut b in vec(any::<u8>(), 0..40), i in 0usize..20) {
            let _ = (check(&b), get(&b, i), used(&b).count(), find_free(&b, i), verify_checksum(Some(1), 2, &b));
            let _ = (set(&mut b, i, 3), update_checksum(Some(1), 2, &mut b), init(&mut b));
        }
    }
}
