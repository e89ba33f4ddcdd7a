//! Checksums that stay as they are, so that a change of the superblock is a change of one sector.
//!
//! All that changes while a volume is in use lies in the first 512 bytes, but `s_checksum` ends the
//! second. A power cut between the two would leave a superblock that nobody accepts. So a word that
//! nothing uses, `s_algorithm_usage_bitmap`, takes the value with which the old checksum is right.
//! Where the second sector changes too (the codes of the first and the last error are there), it is
//! written after the first, with a checksum that is right beside it.

use zerocopy::IntoBytes;

use super::{CHECKSUM_OFFSET, Superblock};
use crate::ext4::checksum::word_keeping;
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
            .then(|| {
                let mut sb = self.clone();
                word_keeping(before.checksum.get(), |word| {
                    sb.algorithm_usage_bitmap.set(word);
                    sb.compute_checksum()
                })
            })
            .flatten()
        {
            Some(word) => {
                self.algorithm_usage_bitmap.set(word);
                self.checksum = before.checksum;
            }
            None => self.checksum.set(self.compute_checksum()),
        }
    }
    /// What is to be written, one after the other and each durable before the next, to make this of
    /// `before`: each differs from the one before it in one sector only, and its checksum is right.
    pub fn steps_after(&self, before: &Superblock) -> Vec<Superblock> {
        let mut all = self.clone();
        if !all.ro_compat().contains(RoCompat::METADATA_CSUM) {
            return vec![all];
        }
        let mut first = self.clone();
        if let (Some(to), Some(from)) = (
            first.as_mut_bytes().get_mut(SECTOR..),
            before.as_bytes().get(SECTOR..),
        ) {
            to.copy_from_slice(from);
        }
        first.update_checksum_after(before);
        all.algorithm_usage_bitmap = first.algorithm_usage_bitmap;
        all.update_checksum();
        let mut steps = vec![first, all];
        steps.dedup();
        steps
    }
}
