//! What is on a device that has no ext4 superblock.

use stetfs_block::BlockDevice;
use stetfs_ondisk::ext4::superblock::{MAGIC, SUPERBLOCK_SIZE, Superblock};
use stetfs_ondisk::foreign::Foreign;
use stetfs_ondisk::partitions::{Disk, Partitions, ReadBy};

use crate::error::{FsError, Result};

/// A device as what tables are read from.
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
/// The device's.
pub fn read_partitions(device: &dyn BlockDevice) -> Result<Option<Partitions>> {
    Partitions::read(&whole(device))
}

/// What is there instead.
///
/// # Errors
/// The device's.
pub(super) fn look(device: &dyn BlockDevice) -> Result<Foreign> {
    match Foreign::look(&whole(device))? {
        found @ (Foreign::Zeroes | Foreign::Unknown) => Ok(backup(device)?.unwrap_or(found)),
        known => Ok(known),
    }
}

/// The copy of the superblock in the second group, for the sizes of blocks and groups that mke2fs
/// makes by itself.
fn backup(device: &dyn BlockDevice) -> Result<Option<Foreign>> {
    for block_size in [1024, 2048, 4096, 65536] {
        // A bitmap of one block has a bit for each block of a group, and groups have no more than
        // fit the descriptor's 16 bits.
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
        // A copy says which group it is in.
        if copy.magic.get() == MAGIC && copy.block_group_nr.get() == 1 {
            return Ok(Some(Foreign::Backup { block, block_size }));
        }
    }
    Ok(None)
}
