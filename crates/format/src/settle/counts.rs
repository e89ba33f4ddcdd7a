//! Numbers of blocks, groups and inodes, and the sizes of the journal and the orphan file.

use stetfs_ondisk::ext4::features::{Compat, Incompat, RoCompat};
use stetfs_ondisk::ext4::orphan_file;
use stetfs_ondisk::ext4::superblock::{Superblock, group_has_super};
use stetfs_ondisk::jbd2::superblock::{DEFAULT_FC_BLOCKS, MIN_BLOCKS};
use stetfs_ondisk::num::{bounded32, low16};

use super::sizes::Sizes;
use crate::error::{Result, options, size};
use crate::options::FormatOptions;
use crate::profile::Defaults;
use crate::rules::{Choice, Feature};
use crate::space::Space;

/// The reserved inodes, `lost+found`, and those of the orphan file and project quota, rounded up.
const FIRST_INODES: u32 = 16;
/// Blocks beside its metadata that a last group has, or it is left out.
const LAST_GROUP: u64 = 50;
/// Blocks of the largest journal that mke2fs makes.
const MAX_JOURNAL: u64 = 10_240_000;

/// The numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    blocks: u64,
    groups: u32,
    inodes_per_group: u32,
    reserved_gdt_blocks: u32,
    backups: [u32; 2],
    pub(super) journal_blocks: u32,
    pub(super) fast_commit_blocks: u32,
    pub(super) orphan_blocks: u32,
}

impl Counts {
    /// Stores them in the superblock, which has the features.
    pub(super) fn store(&self, sb: &mut Superblock) {
        sb.set_blocks_count(self.blocks);
        sb.inodes_per_group.set(self.inodes_per_group);
        sb.inodes_count.set(self.inodes_per_group * self.groups);
        sb.reserved_gdt_blocks.set(low16(self.reserved_gdt_blocks));
        for (to, group) in sb.backup_bgs.iter_mut().zip(self.backups) {
            to.set(group);
        }
    }
}

pub(super) fn choose(
    space: Space,
    of: &FormatOptions,
    defaults: &Defaults,
    s: &Sizes,
    choice: &mut Choice<'_>,
) -> Result<Counts> {
    let mut blocks = space.bytes / u64::from(s.block_size);
    // A volume ends with a whole cluster.
    blocks -= blocks % u64::from(s.ratio);
    check_width(blocks, s, choice)?;
    let mut counts = try_blocks(blocks, space, of, defaults, s, choice)?;
    // A rest that is too small for a group of its own is left out.
    while let Some(fewer) = counts.without_last_group(s, choice) {
        if fewer <= u64::from(s.first_data_block()) {
            return too_small(space, s);
        }
        counts = try_blocks(fewer, space, of, defaults, s, choice)?;
    }
    let (journal, fast) = journal(of, counts.blocks, s, choice)?;
    counts.journal_blocks = journal;
    counts.fast_commit_blocks = fast;
    let has_orphans = choice.has(Feature::Compat(Compat::ORPHAN_FILE));
    if has_orphans {
        let blocks = (counts.blocks / 4096).clamp(32, u64::from(orphan_file::MAX_BLOCKS));
        counts.orphan_blocks = bounded32(blocks);
    }
    Ok(counts)
}

fn too_small<T>(space: Space, s: &Sizes) -> Result<T> {
    size(format!(
        "{} bytes are too few for a volume with blocks of {} bytes: give it more room, or smaller \
         blocks (--block-size)",
        space.bytes, s.block_size
    ))
}

/// Block numbers have 32 bits without `64bit`, and 48 in extents.
fn check_width(blocks: u64, s: &Sizes, choice: &mut Choice<'_>) -> Result<()> {
    let wide = choice.has(Feature::Incompat(Incompat::BIT64));
    let bits = if wide { 48 } else { 32 };
    if blocks >> bits != 0 || blocks == u64::from(u32::MAX) && !wide {
        return size(format!(
            "{blocks} blocks of {} bytes are more than block numbers of {bits} bits can name: give \
             larger blocks (--block-size){}",
            s.block_size,
            if wide { "" } else { ", or -O 64bit,extent" }
        ));
    }
    if blocks > u64::from(u32::MAX) {
        let why = "it ends at 2^32 blocks (resize2fs grows the volume with meta_bg)";
        choice.without(Feature::Compat(Compat::RESIZE_INODE), why)?;
    }
    Ok(())
}

fn try_blocks(
    blocks: u64,
    space: Space,
    of: &FormatOptions,
    defaults: &Defaults,
    s: &Sizes,
    choice: &mut Choice<'_>,
) -> Result<Counts> {
    let first = u64::from(s.first_data_block());
    if blocks < first + 16 {
        return too_small(space, s);
    }
    let per_group = u64::from(s.blocks_per_group());
    let Ok(groups) = u32::try_from((blocks - first).div_ceil(per_group)) else {
        return size("the volume would have more than 2^32 groups: give larger blocks");
    };
    let desc_blocks = groups.div_ceil(s.descs_per_block());
    if u64::from(desc_blocks) > per_group / 2 {
        let why = "descriptors of all groups would fill the first one";
        choice.without(Feature::Compat(Compat::RESIZE_INODE), why)?;
        choice.with(Feature::Incompat(Incompat::META_BG), why)?;
    }
    if !choice.has(Feature::RoCompat(RoCompat::SPARSE_SUPER))
        && !choice.has(Feature::Compat(Compat::SPARSE_SUPER2))
    {
        let why = "without sparse_super every group has a copy of its blocks";
        choice.without(Feature::Compat(Compat::RESIZE_INODE), why)?;
    }
    if s.ratio > 1 && s.block_size == 1024 {
        // The superblock of group 0 is in block 1, and that of other groups in their block 0.
        let why = "with clusters of blocks of 1 KiB its copies would be a block off";
        choice.without(Feature::Compat(Compat::RESIZE_INODE), why)?;
    }
    let grows = choice.has(Feature::Compat(Compat::RESIZE_INODE));
    let sparse2 = choice.has(Feature::Compat(Compat::SPARSE_SUPER2));
    Ok(Counts {
        blocks,
        groups,
        inodes_per_group: inodes_per_group(space, of, defaults, s, groups)?,
        reserved_gdt_blocks: match grows {
            true => reserved_gdt_blocks(blocks, s, desc_blocks),
            false => 0,
        },
        backups: match (sparse2, groups) {
            (false, _) | (true, 1) => [0, 0],
            (true, 2) => [1, 0],
            (true, n) => [1, n - 1],
        },
        journal_blocks: 0,
        fast_commit_blocks: 0,
        orphan_blocks: 0,
    })
}

/// Descriptor blocks for growth to 1024 times the size, or to 2^32 blocks.
fn reserved_gdt_blocks(blocks: u64, s: &Sizes, desc_blocks: u32) -> u32 {
    let most = blocks.saturating_mul(1024).min(u64::from(u32::MAX));
    let groups = (most - u64::from(s.first_data_block())).div_ceil(u64::from(s.blocks_per_group()));
    let wanted = bounded32(groups.div_ceil(u64::from(s.descs_per_block())));
    // A block of the resize inode names them.
    wanted.saturating_sub(desc_blocks).min(s.block_size / 4)
}

/// Inodes of a group: whole blocks of its table, and whole bytes of its bitmap.
fn inodes_per_group(
    space: Space,
    of: &FormatOptions,
    defaults: &Defaults,
    s: &Sizes,
    groups: u32,
) -> Result<u32> {
    let ratio = of.inode_ratio.unwrap_or(defaults.inode_ratio);
    if !(1024..=64 << 20).contains(&ratio) {
        return options("an inode ratio is between 1K and 64M: give --inode-ratio such a number");
    }
    let wanted = match of.inodes {
        Some(inodes) => u64::from(inodes),
        None => (space.bytes / ratio).min(u64::from(u32::MAX)),
    };
    let unit = s.inodes_per_block().max(8);
    let whole = |n: u64| n.div_ceil(u64::from(unit)) * u64::from(unit);
    // Counts of a group have 16 bits.
    let most = (s.block_size * 8).min(65536 - unit) / unit * unit;
    // All of a volume have 32.
    let most_of_all = u32::MAX / groups / unit * unit;
    let least = whole(u64::from(FIRST_INODES));
    let wanted_per_group = wanted.div_ceil(u64::from(groups));
    let per_group = match of.inodes {
        Some(_) => whole(wanted_per_group),
        // As mke2fs: whole blocks, then whole bytes of the bitmap, rounded down.
        None => wanted_per_group.next_multiple_of(u64::from(s.inodes_per_block())) & !7,
    };
    let per_group = per_group.max(least);
    if u64::from(most_of_all) < least {
        return size(format!(
            "{groups} groups have more than 2^32 inodes: give larger blocks (--block-size)"
        ));
    }
    let most = u64::from(most.min(most_of_all));
    match per_group > most && of.inodes.is_some() {
        true => options(format!(
            "{wanted} inodes are too many for {groups} groups: at most {} are possible (--inodes), \
             or more with smaller blocks (--block-size)",
            most * u64::from(groups)
        )),
        false => Ok(bounded32(per_group.min(most))),
    }
}

impl Counts {
    /// The number of blocks without a last group that is too small to be one; `None` if it is not.
    fn without_last_group(&self, s: &Sizes, choice: &Choice<'_>) -> Option<u64> {
        let first = u64::from(s.first_data_block());
        let per_group = u64::from(s.blocks_per_group());
        let rest = (self.blocks - first) % per_group;
        if rest == 0 {
            return None;
        }
        let last = self.groups - 1;
        let sparse2 = choice.has(Feature::Compat(Compat::SPARSE_SUPER2));
        let has_super = match sparse2 {
            true => true,
            false => {
                !choice.has(Feature::RoCompat(RoCompat::SPARSE_SUPER)) || group_has_super(last)
            }
        };
        let descs = match choice.has(Feature::Incompat(Incompat::META_BG)) {
            true => 1,
            false => u64::from(self.groups.div_ceil(s.descs_per_block())),
        };
        let head = match has_super {
            true => 1 + descs + u64::from(self.reserved_gdt_blocks),
            false => 1,
        };
        let table = self.inodes_per_group.div_ceil(s.inodes_per_block());
        let needed = head + 2 + u64::from(table) + LAST_GROUP;
        // The only group of a volume holds whatever fits.
        (rest < needed && last > 0).then_some(self.blocks - rest)
    }
}

/// Blocks of the journal, and those for fast commits among them.
fn journal(
    of: &FormatOptions,
    blocks: u64,
    s: &Sizes,
    choice: &mut Choice<'_>,
) -> Result<(u32, u32)> {
    let feature = Feature::Compat(Compat::HAS_JOURNAL);
    if !choice.has(feature) {
        return match of.journal_size {
            Some(_) => options("a journal size takes a journal: remove -O ^has_journal"),
            None => Ok((0, 0)),
        };
    }
    let wanted = match of.journal_size {
        Some(bytes) => Some(explicit_journal(bytes, blocks, s)?),
        None => default_journal(blocks),
    };
    let Some(wanted) = wanted else {
        let why = "the volume is too small for a journal";
        choice.without(Feature::Compat(Compat::ORPHAN_FILE), why)?;
        choice.without(Feature::Compat(Compat::FAST_COMMIT), why)?;
        choice.without(feature, why)?;
        return Ok((0, 0));
    };
    let fast = match choice.has(Feature::Compat(Compat::FAST_COMMIT)) {
        true => DEFAULT_FC_BLOCKS,
        false => 0,
    };
    Ok((wanted + fast, fast))
}

fn explicit_journal(bytes: u64, blocks: u64, s: &Sizes) -> Result<u32> {
    let wanted = bytes / u64::from(s.block_size);
    let least = u64::from(MIN_BLOCKS);
    let most = (blocks / 2).min(MAX_JOURNAL);
    if most < least {
        return size(format!(
            "a volume of {blocks} blocks is too small for a journal, which has {MIN_BLOCKS} blocks \
             at least: give it more room, smaller blocks, or -O ^has_journal"
        ));
    }
    if !(least..=most).contains(&wanted) {
        return options(format!(
            "a journal of {bytes} bytes is not possible here: give --journal-size a number from {} \
             to {}",
            least * u64::from(s.block_size),
            most * u64::from(s.block_size)
        ));
    }
    Ok(bounded32(wanted))
}

/// Blocks of the journal that mke2fs makes on a volume of `blocks` blocks; `None` if there is no
/// room for one.
fn default_journal(blocks: u64) -> Option<u32> {
    const K: u64 = 1024;
    // Up to so many blocks, a journal of that many.
    const STEPS: [(u64, u32); 8] = [
        (2 * K, 0),
        (32 * K, 1024),
        (256 * K, 4096),
        (512 * K, 8192),
        (4096 * K, 16384),
        (8192 * K, 32768),
        (16384 * K, 65536),
        (32768 * K, 131_072),
    ];
    let step = STEPS.iter().find(|(end, _)| blocks < *end);
    step.map_or(Some(262_144), |(_, journal)| {
        (*journal > 0).then_some(*journal)
    })
}
