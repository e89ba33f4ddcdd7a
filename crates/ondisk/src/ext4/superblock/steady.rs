//! Checksums that stay as they are, so that a change of the superblock is a change of one sector.
//!
//! All that changes while a volume is in use lies in the first 512 bytes, but `s_checksum` ends the
//! second. A power cut between the two would leave a superblock that nobody accepts. So a word that
//! nothing uses, `s_algorithm_usage_bitmap`, takes the value with which the old checksum is right.

use zerocopy::IntoBytes;

use super::{CHECKSUM_OFFSET, Superblock};
use crate::ext4::features::RoCompat;

/// The unit that a device writes as a whole, bytes.
const SECTOR: usize = 512;

impl Superblock {
    /// Like [`update_checksum`](Self::update_checksum), but the checksum of `before` stays if only
    /// the first sector differs from it: then either sector may reach the device without the other.
    pub fn update_checksum_after(&mut self, before: &Superblock) {
        if !self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            return;
        }
        let second = SECTOR..CHECKSUM_OFFSET;
        let stays = self.as_bytes().get(second.clone()) == before.as_bytes().get(second);
        match stays
            .then(|| self.word_for(before.checksum.get()))
            .flatten()
        {
            Some(word) => {
                self.algorithm_usage_bitmap.set(word);
                self.checksum = before.checksum;
            }
            None => self.checksum.set(self.compute_checksum()),
        }
    }

    /// The value of the unused word with which the superblock has a checksum. A CRC is linear: each
    /// bit of the word flips a set of bits of the checksum, and the 32 sets are a basis.
    fn word_for(&self, checksum: u32) -> Option<u32> {
        let mut sb = self.clone();
        let mut with = |word: u32| {
            sb.algorithm_usage_bitmap.set(word);
            sb.compute_checksum()
        };
        let zero = with(0);
        // By their highest bit: a set, and the word that flips it.
        let mut basis = [(0u32, 0u32); 32];
        for bit in 0..32 {
            let (flips, word) = reduce(&basis, with(1 << bit) ^ zero, 1 << bit);
            if flips != 0
                && let Some(place) = basis.get_mut(flips.ilog2() as usize)
            {
                *place = (flips, word);
            }
        }
        let (rest, word) = reduce(&basis, checksum ^ zero, 0);
        (rest == 0).then_some(word)
    }
}

/// Takes the members of a basis that are in `flips` out of it.
fn reduce(basis: &[(u32, u32); 32], mut flips: u32, mut word: u32) -> (u32, u32) {
    for bit in (0..32).rev() {
        if let Some((set, by)) = basis.get(bit)
            && *set != 0
            && flips >> bit & 1 == 1
        {
            flips ^= set;
            word ^= by;
        }
    }
    (flips, word)
}
