//! Checksums that stay constant, so that a change of the superblock is a change of one sector.
//!
//! All fields that change while a volume is in use lie in the first 512 bytes, but `s_checksum` is
//! at the end of the second sector. A power failure between the two writes would leave an invalid
//! superblock. So an unused word, `s_algorithm_usage_bitmap`, takes the value for which the old
//! checksum is valid. If the second sector changes too (it holds the codes of the first and the
//! last error), its new checksum must be valid beside the new first sector and beside the old one.
//! It is: with the word, both first sectors leave the CRC in the same state. So any of the first
//! sectors is valid beside any of the second ones.

use std::sync::LazyLock;

use zerocopy::{FromZeros, IntoBytes};

use super::Superblock;
use crate::ext4::checksum::SpareWord;
use crate::ext4::features::RoCompat;

/// The unit that a device writes atomically, in bytes.
const SECTOR: usize = 512;

/// The spare word `s_algorithm_usage_bitmap`. It is computed from any superblock, as the other
/// bytes do not matter.
static SPARE: LazyLock<SpareWord> = LazyLock::new(|| {
    let mut any = Superblock::new_zeroed();
    SpareWord::new(|word| any.compute_with(word))
});

impl Superblock {
    /// Like [`update_checksum`](Self::update_checksum), but either sector may reach the device
    /// without the other: each is valid beside the other sector of `before`, and of every
    /// superblock made from `before` by such changes.
    pub fn update_checksum_after(&mut self, before: &Superblock) {
        if !self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            return;
        }
        let mut first = self.clone();
        if let (Some(to), Some(from)) = (
            first.as_mut_bytes().get_mut(SECTOR..),
            before.as_bytes().get(SECTOR..),
        ) {
            to.copy_from_slice(from);
        }
        let zero = first.compute_with(0);
        if let Some(word) = SPARE.keeping(before.checksum.get(), zero) {
            self.algorithm_usage_bitmap.set(word);
        }
        self.update_checksum();
    }

    /// The checksum with `word` in the spare word.
    fn compute_with(&mut self, word: u32) -> u32 {
        self.algorithm_usage_bitmap.set(word);
        self.compute_checksum()
    }
}
