//! Detection of foreign content: devices and images that hold no ext4 volume are recognised by
//! their first bytes, so that they are not mistaken for empty ones.
//!
//! The magic numbers are those of the formats' own documentation, as in libblkid and file(1).

mod signatures;

use std::fmt;

pub use signatures::{Kind, Signature};

use crate::partitions::{Disk, Partitions};

/// Bytes from the start that are examined, except for partition tables.
const HEAD: usize = 1 << 20;

/// The content found instead of an ext4 superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Zeros, as far as was read.
    Zeroes,
    /// A known format.
    Known(&'static Signature),
    /// A partition table.
    Partitions(Partitions),
    /// An ext4 volume whose first superblock is destroyed, but a copy of it is left.
    Backup {
        /// The copy's block number.
        block: u64,
        /// Bytes in a block.
        block_size: u64,
    },
    /// Unknown content.
    Unknown,
}

impl Foreign {
    /// Detects the content of a disk or an image.
    ///
    /// # Errors
    /// The disk's.
    pub fn look<D: Disk>(disk: &D) -> Result<Foreign, D::Error> {
        let len = usize::try_from(disk.size()).unwrap_or(HEAD).min(HEAD);
        let head = disk.bytes(0, len)?.unwrap_or_default();
        // Boot sectors of FAT and NTFS end as partition tables do. A magic number deep inside may
        // be left over from before a table was written.
        let (first, deep) = (0..1024, 1024..u64::MAX);
        if let Some(known) = signatures::find(&head, &first) {
            return Ok(Foreign::Known(known));
        }
        if let Some(table) = Partitions::read(disk)? {
            return Ok(Foreign::Partitions(table));
        }
        Ok(match signatures::find(&head, &deep) {
            Some(known) => Foreign::Known(known),
            None if head.iter().all(|b| *b == 0) => Foreign::Zeroes,
            None => Foreign::Unknown,
        })
    }
}

/// The known format that begins with these bytes.
pub fn known(head: &[u8]) -> Option<&'static Signature> {
    signatures::find(head, &(0..1024))
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Foreign::Zeroes => f.write_str("it begins with zeroes"),
            Foreign::Known(known) => write!(f, "it holds {}", known.name),
            Foreign::Partitions(table) => table.fmt(f),
            Foreign::Backup { block, .. } => write!(
                f,
                "its superblock is destroyed, but there is a copy in block {block}"
            ),
            Foreign::Unknown => f.write_str("it holds data of an unknown kind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &[u8]) -> Foreign {
        let Ok(found) = Foreign::look(&head);
        found
    }

    fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut head = vec![0; HEAD];
        head[at..at + bytes.len()].copy_from_slice(bytes);
        head
    }

    #[test]
    fn every_signature_is_found_where_it_is() {
        for known in signatures::ALL {
            let head = with(known.offset as usize, known.magic);
            assert_eq!(of(&head), Foreign::Known(known), "{}", known.name);
        }
    }

    #[test]
    fn zeroes_are_told_from_what_is_not_known() {
        assert_eq!(of(&vec![0; HEAD]), Foreign::Zeroes);
        assert_eq!(of(&with(HEAD - 1, &[1])), Foreign::Unknown);
        assert_eq!(of(&[]), Foreign::Zeroes);
    }

    #[test]
    fn no_bytes_and_no_length_are_a_panic() {
        let mut state = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(8192)
        .collect();
        assert_eq!(
            of(&with(510, &[0x55, 0xaa])),
            Foreign::Unknown,
            "no entries"
        );
        for len in [1, 510, 511, 512, 600, 1023, 1025, 4090, 8192] {
            let mut head = noise[..len].to_vec();
            of(&head);
            if len >= 600 {
                head[510..520].copy_from_slice(b"\x55\xaaEFI PART");
                of(&head);
            }
        }
    }
}
