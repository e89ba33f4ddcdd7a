//! Checksums that stay as they are, so that a change of the superblock is a change of one sector.
//!
//! All that changes while a volume is in use lies in the first 512 bytes, but `s_checksum` ends the
//! second. A power cut between the two would leave a superblock that nobody accepts. So a word that
//! nothing uses, `s_algorithm_usage_bitmap`, takes the value with which the old checksum is right.
//! Where the second sector changes too (the codes of the first and the last error are there), its
//! new checksum is that of the first sector as it is, and as it was: with the word both leave the
//! CRC in one state. So any of the first sectors is right beside any of the second ones.

use std::sync::LazyLock;

use zerocopy::{FromZeros, IntoBytes};

use super::Superblock;
use crate::ext4::checksum::SpareWord;
use crate::ext4::features::RoCompat;

/// The unit that a device writes as a whole, bytes.
const SECTOR: usize = 512;

/// `s_algorithm_usage_bitmap`: of any superblock, for the other bytes do not matter.
static SPARE: LazyLock<SpareWord> = LazyLock::new(|| {
    let mut any = Superblock::new_zeroed();
    SpareWord::new(|word| any.compute_with(word))
});

impl Superblock {
    /// Like [`update_checksum`](Self::update_checksum), and so that either sector may reach the
    /// device without the other where `before` is: each is right beside the other one of that, and
    /// of whatever came of it by changes like this one.
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

    /// The checksum with this value of the spare word.
    fn compute_with(&mut self, word: u32) -> u32 {
        self.algorithm_usage_bitmap.set(word);
        self.compute_checksum()
    }
}
