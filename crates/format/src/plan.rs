//! A planned volume: what it will be, and how it is written.

use std::ops::Range;

use stetfs_block::BlockDevice;
use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::superblock::{Geometry, SUPERBLOCK_OFFSET, Superblock};
use stetfs_ondisk::num::{bounded32, low16, to_usize};
use zerocopy::IntoBytes;

use crate::batch::Batch;
use crate::error::{Result, size};
use crate::files::{self, Files};
use crate::groups::Groups;
use crate::options::FormatOptions;
use crate::settle::{Settled, settle};
use crate::space::Space;
use crate::tables::{Tables, Totals};

/// Bytes at both ends of the space in which other formats have their signatures.
const SIGNATURES: u64 = 1 << 20;

/// The content of the space before it is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Zeros, as of a new sparse file: nothing is zeroed.
    Zeros,
    /// Anything. Zeroed are 1 MiB at both ends, where other formats have their signatures, and the
    /// journal, whose old records could be taken for new ones. Inode tables are zeroed on request,
    /// and where the volume has no checksums of groups; else the groups say that they are not, and
    /// the kernel zeroes them after the first mount, as after mke2fs (`lazy_itable_init`).
    Anything,
}

/// A volume that was planned for a space, and can be written.
#[derive(Debug)]
pub struct Plan {
    settled: Settled,
    files: Files,
    space: Space,
    zero_tables: bool,
    free_blocks: u64,
}

/// The properties of a planned volume.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Size, bytes; at most that of the space.
    pub bytes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a cluster; the block size without `bigalloc`.
    pub cluster_size: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Blocks reserved for the superuser.
    pub reserved_blocks: u64,
    /// Number of groups.
    pub groups: u32,
    /// Blocks that are free in the new volume, those reserved for the superuser included.
    pub free_blocks: u64,
    /// Number of inodes.
    pub inodes: u32,
    /// Inodes that are free in the new volume.
    pub free_inodes: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Bytes of the journal; 0 without one.
    pub journal_bytes: u64,
    /// The features' names, as dumpe2fs shows them.
    pub features: String,
    /// The UUID.
    pub uuid: [u8; 16],
    /// The label.
    pub label: Vec<u8>,
    /// Deviations from the profile, each a sentence.
    pub notes: Vec<String>,
}

impl Plan {
    /// Plans a volume; nothing is read or written.
    ///
    /// # Errors
    /// [`FormatError::Options`](crate::FormatError::Options) and
    /// [`FormatError::Size`](crate::FormatError::Size).
    pub fn new(space: Space, options: &FormatOptions) -> Result<Plan> {
        let mut settled = settle(space, options)?;
        let files = files::make(&mut settled, options)?;
        let free_blocks = free_blocks(&settled, &files)?;
        Ok(Plan {
            free_blocks,
            zero_tables: options.zero_tables || settled.sb.checksum_mode() == ChecksumMode::None,
            settled,
            files,
            space,
        })
    }

    /// The properties of the volume.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let Settled { sb, geo, .. } = &self.settled;
        let block_size = u64::from(geo.block_size);
        Summary {
            bytes: geo.blocks_count * block_size,
            block_size: geo.block_size,
            cluster_size: block_size * u64::from(geo.blocks_per_cluster),
            blocks: geo.blocks_count,
            reserved_blocks: sb.reserved_blocks_count(),
            groups: geo.group_count,
            free_blocks: self.free_blocks,
            inodes: geo.inodes_count,
            free_inodes: geo.inodes_count - self.settled.last_ino,
            inode_size: geo.inode_size,
            journal_bytes: u64::from(self.settled.journal_blocks) * block_size,
            features: sb.features().to_string(),
            uuid: sb.uuid,
            label: sb.label().to_vec(),
            notes: self.settled.notes.clone(),
        }
    }

    /// Writes the volume, and makes it durable. The superblock is written last: after a failure or
    /// a crash the space holds no volume, neither the old one nor half of the new one.
    ///
    /// # Errors
    /// The device's; [`FormatError::Size`](crate::FormatError::Size) if it is smaller than the
    /// space of the plan.
    pub fn write(&self, device: &dyn BlockDevice, before: Before) -> Result<()> {
        if device.size() < self.space.bytes {
            return size(format!(
                "the device has {} bytes, and the volume was planned for {}",
                device.size(),
                self.space.bytes
            ));
        }
        let geo = &self.settled.geo;
        let groups = Groups::new(geo, &self.settled.sb);
        if before == Before::Anything {
            self.erase(device)?;
            self.zero(device, &groups)?;
        }
        let zeroed = before == Before::Zeros || self.zero_tables;
        let mut out = Batch::new(device, geo.block_size);
        let tables = Tables::new(&self.settled, &self.files, &groups, zeroed);
        let (totals, descs) = tables.write(&mut out)?;
        self.write_files(&groups, &mut out)?;
        let sb = self.superblock(totals);
        self.write_copies(&sb, &descs, &groups, &mut out)?;
        out.send()?;
        device.flush()?;
        let primary = encoded(&sb, 0);
        device.write(SUPERBLOCK_OFFSET, &primary)?;
        device.flush()?;
        Ok(())
    }

    /// Removes what was there: the superblock of an old volume, and signatures of other formats.
    fn erase(&self, device: &dyn BlockDevice) -> Result<()> {
        let end = self.space.bytes;
        let head = SIGNATURES.min(end);
        let tail = end.saturating_sub(SIGNATURES) / 4096 * 4096;
        device.zero(0..head)?;
        device.zero(tail.max(head)..end)?;
        device.flush()?;
        Ok(())
    }

    /// Zeroes what must be zero and is not written.
    fn zero(&self, device: &dyn BlockDevice, groups: &Groups<'_>) -> Result<()> {
        let geo = &self.settled.geo;
        let block_size = u64::from(geo.block_size);
        let zero =
            |blocks: &Range<u64>| device.zero(blocks.start * block_size..blocks.end * block_size);
        for run in &self.files.zeros {
            zero(run)?;
        }
        if !self.zero_tables {
            return Ok(());
        }
        let table = u64::from(geo.inode_table_blocks());
        for number in 0..groups.count() {
            // Tables of a flex group mostly adjoin.
            let mut run: Option<Range<u64>> = None;
            for place in groups.flex(number)?.places {
                let next = place.inode_table..place.inode_table + table;
                match &mut run {
                    Some(run) if run.end == next.start => run.end = next.end,
                    _ => {
                        if let Some(run) = run.replace(next) {
                            zero(&run)?;
                        }
                    }
                }
            }
            if let Some(run) = run {
                zero(&run)?;
            }
        }
        Ok(())
    }

    /// Writes the contents of files, and the blocks of the inode table with their inodes, which
    /// are in group 0.
    fn write_files(&self, groups: &Groups<'_>, out: &mut Batch<'_>) -> Result<()> {
        for (nr, block) in &self.files.blocks {
            out.push(*nr, block.clone())?;
        }
        let geo = &self.settled.geo;
        let flex = groups.flex(0)?;
        let Some(place) = flex.places.first() else {
            return Ok(());
        };
        let per_block = geo.inodes_per_block();
        let blocks = self.settled.last_ino.div_ceil(per_block);
        let len = u64::from(blocks) * u64::from(geo.block_size);
        let mut table = vec![0; to_usize(len)];
        for (ino, slot) in &self.files.inodes {
            let at = to_usize(u64::from(ino - 1) * u64::from(geo.inode_size));
            if let Some(to) = table.get_mut(at..at + slot.len()) {
                to.copy_from_slice(slot);
            }
        }
        out.push(place.inode_table, table)
    }

    /// The superblock with its counts.
    fn superblock(&self, totals: Totals) -> Superblock {
        let Settled { sb, geo, .. } = &self.settled;
        let mut sb = sb.clone();
        let ratio = u64::from(geo.blocks_per_cluster);
        sb.set_free_blocks_count(totals.free_clusters * ratio);
        sb.free_inodes_count.set(bounded32(totals.free_inodes));
        let journal = u64::from(self.settled.journal_blocks).div_ceil(ratio);
        let overhead = totals.metadata_clusters + journal + u64::from(geo.first_data_block);
        // Zero means that it is to be counted.
        sb.overhead_clusters
            .set(u32::try_from(overhead).unwrap_or(0));
        sb
    }

    /// Writes the descriptors, and the copies of them and of the superblock.
    fn write_copies(
        &self,
        sb: &Superblock,
        descs: &[u8],
        groups: &Groups<'_>,
        out: &mut Batch<'_>,
    ) -> Result<()> {
        let geo = &self.settled.geo;
        if let Some((nr, _)) = geo.desc_position(0)
            && geo.first_meta_bg.is_none()
        {
            out.push(nr, descs.to_vec())?;
        }
        for group in (1..geo.group_count).filter(|g| geo.has_super(*g)) {
            let start = groups.head(group).start;
            let mut block = encoded(sb, group);
            block.resize(to_usize(u64::from(geo.block_size)), 0);
            if geo.first_meta_bg.is_none() {
                block.extend_from_slice(descs);
            }
            out.push(start, block)?;
        }
        Ok(())
    }
}

/// The blocks that neither metadata of groups nor files have.
fn free_blocks(settled: &Settled, files: &Files) -> Result<u64> {
    let geo = &settled.geo;
    let groups = Groups::new(geo, &settled.sb);
    let mut used = clusters_of(geo, &files.taken);
    for number in 0..groups.count() {
        used += clusters_of(geo, &groups.flex(number)?.metadata);
    }
    let all: u64 = (0..geo.group_count)
        .map(|group| u64::from(geo.group_clusters(group)))
        .sum();
    Ok(all.saturating_sub(used) * u64::from(geo.blocks_per_cluster))
}

/// The clusters that hold these runs of blocks. One that two runs share counts twice.
fn clusters_of(geo: &Geometry, runs: &[Range<u64>]) -> u64 {
    let ratio = u64::from(geo.blocks_per_cluster);
    let first = u64::from(geo.first_data_block);
    let lens = runs
        .iter()
        .map(|r| (r.end - first).div_ceil(ratio) - (r.start - first) / ratio);
    lens.sum()
}

/// The bytes of the superblock's copy in a group.
fn encoded(sb: &Superblock, group: u32) -> Vec<u8> {
    let mut sb = sb.clone();
    // Groups beyond 65535 have their low bits there, as in e2fsprogs.
    sb.block_group_nr.set(low16(group));
    sb.update_checksum();
    sb.as_bytes().to_vec()
}
