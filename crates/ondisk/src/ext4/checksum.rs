//! Checksums with ext4's conventions ("Checksums" in the ext4 documentation).

use crate::num::low16;

/// CRC-32C as ext4 and jbd2 use it: `seed` is the raw register and the result is not inverted,
/// so results chain: `ext4_crc32c(ext4_crc32c(s, a), b) == ext4_crc32c(s, a ++ b)`.
#[must_use]
pub fn ext4_crc32c(seed: u32, bytes: &[u8]) -> u32 {
    // The crate inverts the register on the way in and out; undo both.
    !crc32c::crc32c_append(!seed, bytes)
}

/// Reflected CRC-16 with polynomial 0x8005 ("ANSI"), as `gdt_csum` uses it; chains like
/// [`ext4_crc32c`].
#[must_use]
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, &b| {
        let low = (crc ^ u16::from(b)) & 0xff;
        (crc >> 8)
            ^ CRC16_TABLE
                .get(usize::from(low))
                .map_or(0, |word| low16(*word))
    })
}

const CRC16_TABLE: [u32; 256] = reflected_table(0xA001);

/// The table of a checksum whose polynomial is written with the least significant bit first, of 32
/// bits or fewer.
const fn reflected_table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0u32;
    while i < 256 {
        let mut crc = i;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ polynomial
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[i as usize] = crc;
        i += 1;
    }
    table
}

/// CRC-32 with the most significant bit first (polynomial 0x04c11db7), as version 1 of jbd2's
/// checksums uses it: `seed` is the raw register and the result is not inverted; chains like
/// [`ext4_crc32c`].
#[must_use]
pub fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, &b| {
        let high = (crc >> 24) ^ u32::from(b);
        (crc << 8) ^ CRC32_BE_TABLE.get(high as usize).copied().unwrap_or(0)
    })
}

const CRC32_BE_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0u32;
    while i < 256 {
        let mut crc = i << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 1 {
                (crc << 1) ^ 0x04c1_1db7
            } else {
                crc << 1
            };
            bit += 1;
        }
        table[i as usize] = crc;
        i += 1;
    }
    table
};

/// The protection of a volume's metadata, from its features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumMode {
    /// No checksums at all.
    None,
    /// `uninit_bg`: CRC-16 on group descriptors only, seeded with the volume's UUID.
    GdtCsum {
        /// `s_uuid`.
        uuid: [u8; 16],
    },
    /// `metadata_csum`: CRC-32C on all metadata.
    MetadataCsum {
        /// See [`csum_seed`](crate::ext4::superblock::Superblock::csum_seed).
        seed: u32,
    },
}

impl ChecksumMode {
    /// The volume's seed if it has `metadata_csum`.
    #[must_use]
    pub fn metadata_seed(&self) -> Option<u32> {
        match self {
            ChecksumMode::MetadataCsum { seed } => Some(*seed),
            _ => None,
        }
    }
}

/// An unused word of a structure, whose value keeps the checksum constant. A CRC is linear: each
/// bit of the word flips a fixed set of bits of the checksum, whatever else the structure holds,
/// and the 32 sets are a basis. So a change in one sector need not change a checksum in another.
pub(crate) struct SpareWord {
    /// By highest bit: a set, and the word that flips it.
    basis: [(u32, u32); 32],
}

impl SpareWord {
    /// `compute` returns the checksum of such a structure for a value of the word.
    pub(crate) fn new(mut compute: impl FnMut(u32) -> u32) -> SpareWord {
        let zero = compute(0);
        let mut basis = [(0u32, 0u32); 32];
        for bit in 0..32 {
            let (flips, word) = reduce(&basis, compute(1 << bit) ^ zero, 1 << bit);
            if flips != 0
                && let Some(place) = basis.get_mut(flips.ilog2() as usize)
            {
                *place = (flips, word);
            }
        }
        SpareWord { basis }
    }

    /// The value of the word for which a structure has `checksum`; `zero` is its checksum for the
    /// word 0.
    pub(crate) fn keeping(&self, checksum: u32, zero: u32) -> Option<u32> {
        let (rest, word) = reduce(&self.basis, checksum ^ zero, 0);
        (rest == 0).then_some(word)
    }
}

/// Reduces `flips` by the members of the basis.
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

/// Seed of everything that belongs to one inode: the inode itself, its extent blocks, directory
/// blocks and index nodes, and the blocks of the orphan file.
#[must_use]
pub fn inode_seed(csum_seed: u32, ino: u32, generation: u32) -> u32 {
    let words = u64::from(ino) | u64::from(generation) << 32;
    ext4_crc32c(csum_seed, &words.to_le_bytes())
}

/// CRC-32C over `bytes` in which the `len` bytes at `hole` count as zero (a checksum field, `len` ≤
/// 4). A hole past the end has no effect.
#[must_use]
pub(crate) fn crc32c_with_hole(seed: u32, bytes: &[u8], hole: usize, len: usize) -> u32 {
    const ZERO: [u8; 4] = [0; 4];
    match (bytes.get(..hole), bytes.get(hole + len..), ZERO.get(..len)) {
        (Some(before), Some(after), Some(zero)) => {
            ext4_crc32c(ext4_crc32c(ext4_crc32c(seed, before), zero), after)
        }
        _ => ext4_crc32c(seed, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // The standard check value of CRC-32C, with the final inversion applied.
        assert_eq!(!ext4_crc32c(!0, b"123456789"), 0xE306_9283);
        // CRC-16/ARC.
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(
            ext4_crc32c(ext4_crc32c(7, b"12345"), b"6789"),
            ext4_crc32c(7, b"123456789")
        );
        assert_eq!(
            crc32c_with_hole(1, b"abcdefgh", 2, 4),
            ext4_crc32c(1, b"ab\0\0\0\0gh")
        );
    }
}
