//! Recognition of the content of a device without an ext4 superblock.

use stetfs_block::BlockDevice;
use stetfs_ondisk::ext4::superblock::{MAGIC, SUPERBLOCK_SIZE, Superblock};
use stetfs_ondisk::foreign::Foreign;
use stetfs_ondisk::partitions::{Disk, Partitions, ReadBy};

use crate::error::{FsError, Result};

/// The whole device as the source of partition tables.
fn whole(device: &dyn BlockDevice) -> impl Disk<Error = FsError> {
    ReadBy {
        size: device.size(),
        sector: device.sector_size(),
        read: |at, buf: &mut [u8]| Ok(device.read(at, buf)?),
    }
}

/// The partition table of a disk, if it has one.
///
/// # Errors
/// Errors of the device.
pub fn read_partitions(device: &dyn BlockDevice) -> Result<Option<Partitions>> {
    Partitions::read(&whole(device))
}

/// The content of the device instead of an ext4 superblock.
///
/// # Errors
/// Errors of the device.
pub(crate) fn look(device: &dyn BlockDevice) -> Result<Foreign> {
    match Foreign::look(&whole(device))? {
        found @ (Foreign::Zeroes | Foreign::Unknown) => Ok(backup(device)?.unwrap_or(found)),
        known => Ok(known),
    }
}

/// The backup superblock in the second group, for the block and group sizes that mke2fs chooses by
/// default.
fn backup(device: &dyn BlockDevice) -> Result<Option<Foreign>> {
    for block_size in [1024, 2048, 4096, 65536] {
        // A block bitmap of one block has a bit for each block of a group, and the descriptor
        // counts the blocks of a group in 16 bits.
        let in_group = (8 * block_size).min(65528);
        let block = if block_size == 1024 {
            in_group + 1
        } else {
            in_group
        };
        let at = block * block_size;
        if at + SUPERBLOCK_SIZE as u64 > device.size() {
            continue;
        }
        let mut copy = vec![0; SUPERBLOCK_SIZE];
        device.read(at, &mut copy)?;
        let copy = Superblock::decode_unchecked(&copy)?;
        // A backup names the group that it is in.
        if copy.magic.get() == MAGIC && copy.block_group_nr.get() == 1 {
            return Ok(Some(Foreign::Backup { block, block_size }));
        }
    }
    Ok(None)
}
