//! Partition tables: MBR with its chain of logical partitions, and GPT (UEFI specification, chapter
//! 5).
//!
//! 1. A partition without a fault lies on the disk, behind its table, and overlaps no other one.
//! 2. Reading is bounded, whatever a table says: 4 MBR entries, 128 links of a chain, 1 MiB of GPT
//!    entries.
//! 3. A GPT counts if both its checksums are valid. If the first copy is damaged, the one at the
//!    end of the disk is used.

mod disk;
mod gpt;
mod mbr;
mod named;
#[cfg(test)]
mod samples;
mod table;
#[cfg(test)]
mod tests;

pub use disk::{Disk, ReadBy};
pub use named::NoPartition;
pub use table::{Ext4, Partition, Partitions};

use crate::error::Result as Decoded;
use crate::ext4::superblock::{MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use crate::uuid;

impl Partitions {
    /// The table of a disk, if it has one.
    ///
    /// # Errors
    /// The disk's.
    pub fn read<D: Disk>(disk: &D) -> Result<Option<Partitions>, D::Error> {
        let Some(head) = disk.bytes(0, mbr::LEN)? else {
            return Ok(None);
        };
        let Some(entries) = mbr::entries(&head) else {
            return Ok(None);
        };
        let found = match mbr::is_protective(&entries) {
            true => gpt::read(disk)?,
            false => mbr::read(disk, &head, &entries)?,
        };
        let Some(mut table) = found else {
            return Ok(None);
        };
        table.find_faults(disk.size());
        for partition in &mut table.all {
            if partition.fault.is_none() && !partition.extended {
                partition.ext4 = ext4_at(disk, partition)?;
            }
        }
        Ok(Some(table))
    }
}

/// The ext4 volume in a partition.
fn ext4_at<D: Disk>(disk: &D, partition: &Partition) -> Result<Option<Ext4>, D::Error> {
    if partition.size < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Ok(None);
    }
    let bytes = disk.bytes(partition.offset + SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
    Ok(bytes.and_then(|bytes| volume(&bytes).ok().flatten()))
}

fn volume(bytes: &[u8]) -> Decoded<Option<Ext4>> {
    let sb = Superblock::decode_unchecked(bytes)?;
    Ok((sb.magic.get() == MAGIC).then(|| Ext4 {
        label: String::from_utf8_lossy(sb.label()).into_owned(),
        uuid: uuid::text(&sb.uuid),
    }))
}
