//! Reading and writing of the superblock on its device.

use crate::error::{FsError, Result};
use crate::volume::foreign;
use std::sync::Arc;
use stetfs_block::BlockDevice;
use stetfs_ondisk::ext4::superblock::{MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

/// Reads and checks the superblock.
///
/// # Errors
/// `Foreign`; `Corrupt`; errors of the device.
pub fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    if device.size() >= SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        device.read(SUPERBLOCK_OFFSET, &mut bytes)?;
    }
    if Superblock::decode_unchecked(&bytes)?.magic.get() != MAGIC {
        return Err(FsError::Foreign(Arc::new(foreign::look(device)?)));
    }
    let sb = Superblock::decode(&bytes)?;
    if !sb.verify_checksum() {
        return Err(FsError::corrupt(
            "superblock",
            0,
            "checksum does not match (e2fsck can restore a backup)",
        ));
    }
    Ok(sb)
}

/// Writes the superblock durably. A power cut during the write leaves a valid one; `before` is the
/// content on the device. Returns the superblock as it was written.
///
/// # Errors
/// Errors of the device.
pub(crate) fn write_superblock(
    device: &dyn BlockDevice,
    sb: &Superblock,
    before: &Superblock,
) -> Result<Superblock> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    let mut written = sb.clone();
    written.update_checksum_after(before);
    written.encode(&mut bytes)?;
    device.write(SUPERBLOCK_OFFSET, &bytes)?;
    device.flush()?;
    Ok(written)
}
