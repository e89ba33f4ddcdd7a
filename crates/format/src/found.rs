//! Detection of content that formatting would destroy.

use std::fmt;

use stetfs_block::{BlockDevice, BlockError};
use stetfs_ondisk::ext4::superblock::{MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use stetfs_ondisk::foreign::Foreign;
use stetfs_ondisk::partitions::ReadBy;
use stetfs_ondisk::uuid;

/// Recognised content of a device: a file system, a partition table, a member of an array or the
/// like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    text: String,
    is_table: bool,
}

impl Found {
    /// Whether it is a partition table, so that the whole disk was given instead of a partition.
    #[must_use]
    pub fn is_partition_table(&self) -> bool {
        self.is_table
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The content of the device, if it is recognised. Zeros and unknown data are not.
///
/// # Errors
/// The device's.
pub fn found(device: &dyn BlockDevice) -> Result<Option<Found>, BlockError> {
    if let Some(text) = ext4(device)? {
        let is_table = false;
        return Ok(Some(Found { text, is_table }));
    }
    let disk = ReadBy {
        size: device.size(),
        sector: device.sector_size(),
        read: |at, buf: &mut [u8]| device.read(at, buf),
    };
    Ok(match Foreign::look(&disk)? {
        Foreign::Known(known) => Some(Found {
            text: known.name.to_owned(),
            is_table: false,
        }),
        Foreign::Partitions(_) => Some(Found {
            text: "a partition table".into(),
            is_table: true,
        }),
        Foreign::Zeroes | Foreign::Unknown | Foreign::Backup { .. } => None,
    })
}

/// The description of an ext2, ext3 or ext4 volume.
fn ext4(device: &dyn BlockDevice) -> Result<Option<String>, BlockError> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let end = SUPERBLOCK_OFFSET + bytes.len() as u64;
    if device.size() < end {
        return Ok(None);
    }
    device.read(SUPERBLOCK_OFFSET, &mut bytes)?;
    let sb = Superblock::decode_unchecked(&bytes).ok();
    Ok(sb.filter(|sb| sb.magic.get() == MAGIC).map(|sb| {
        let label = match sb.label() {
            [] => String::new(),
            label => format!(" {:?}", String::from_utf8_lossy(label)),
        };
        format!("an ext4 volume{label} (UUID {})", uuid::text(&sb.uuid))
    }))
}
