//! The numbers of a new volume, from the options and the space.

mod counts;
mod sizes;

use std::time::{SystemTime, UNIX_EPOCH};

use stetfs_ondisk::ext4::checksum::ext4_crc32c;
use stetfs_ondisk::ext4::features::{Compat, Incompat, RoCompat};
use stetfs_ondisk::ext4::hash::{HashKind, HashVersion};
use stetfs_ondisk::ext4::inode::{FULL_EXTRA_ISIZE, GOOD_OLD_INODE_SIZE};
use stetfs_ondisk::ext4::superblock::{
    CHECKSUM_TYPE_CRC32C, DYNAMIC_REV, DefaultMountOpts, ErrorPolicy, GOOD_OLD_FIRST_INO,
    GRP_QUOTA_INO, Geometry, JOURNAL_INO, MAGIC, State, SuperFlags, Superblock, USR_QUOTA_INO,
};
use stetfs_ondisk::ext4::time::Timestamp;
use zerocopy::FromZeros;

use crate::error::{Result, options};
use crate::options::FormatOptions;
use crate::profile::Defaults;
use crate::random::Source;
use crate::rules::{Choice, Feature};
use crate::space::Space;
use sizes::Sizes;

/// The numbers of a new volume. Its superblock has all fields but the counts of free blocks and
/// inodes, the overhead, and the places of files.
#[derive(Debug, Clone)]
pub(crate) struct Settled {
    pub(crate) sb: Superblock,
    pub(crate) geo: Geometry,
    /// Blocks of the journal with its area for fast commits; 0 without a journal.
    pub(crate) journal_blocks: u32,
    /// Blocks of that area.
    pub(crate) fast_commit_blocks: u32,
    /// Blocks of the orphan file; 0 without one.
    pub(crate) orphan_blocks: u32,
    /// The inode of project quota; 0 without it.
    pub(crate) project_ino: u32,
    /// The last inode in use.
    pub(crate) last_ino: u32,
    pub(crate) now: Timestamp,
    pub(crate) notes: Vec<String>,
}

/// Inode of `lost+found`.
pub(crate) const LOST_FOUND_INO: u32 = GOOD_OLD_FIRST_INO;

/// Decides all numbers.
///
/// # Errors
/// Options that contradict each other or do not fit the space.
pub(crate) fn settle(space: Space, options: &FormatOptions) -> Result<Settled> {
    let defaults = options.profile.defaults(space.bytes);
    let mut choice = Choice::new(&defaults.features, &options.features)?;
    let sizes = Sizes::choose(space, options, &defaults, &mut choice)?;
    let counts = counts::choose(space, options, &defaults, &sizes, &mut choice)?;

    let mut sb = Superblock::new_zeroed();
    fill(&mut sb, &choice, options, &sizes)?;
    identify(&mut sb, options)?;
    let now = now(options, &sb)?;
    stamp(&mut sb, now);
    counts.store(&mut sb);
    let mut next = LOST_FOUND_INO;
    let mut inode_if = |wanted: bool| match wanted {
        true => {
            next += 1;
            next
        }
        false => 0,
    };
    let orphan_ino = inode_if(counts.orphan_blocks > 0);
    let project_ino = inode_if(choice.has(Feature::RoCompat(RoCompat::PROJECT)));
    sb.orphan_file_inum.set(orphan_ino);
    sb.prj_quota_inum.set(project_ino);
    reserve(&mut sb, options, &defaults)?;
    Ok(Settled {
        geo: sb.geometry()?,
        sb,
        journal_blocks: counts.journal_blocks,
        fast_commit_blocks: counts.fast_commit_blocks,
        orphan_blocks: counts.orphan_blocks,
        project_ino,
        last_ino: next,
        now: Timestamp {
            sec: now.cast_signed(),
            nsec: 0,
        },
        notes: choice.notes,
    })
}

/// The fields that follow from features and sizes.
fn fill(
    sb: &mut Superblock,
    choice: &Choice<'_>,
    options: &FormatOptions,
    s: &Sizes,
) -> Result<()> {
    let features = &choice.features;
    sb.magic.set(MAGIC);
    sb.rev_level.set(DYNAMIC_REV);
    sb.set_state(State::VALID_FS);
    sb.errors.set(ErrorPolicy::Continue as u16);
    sb.max_mnt_count.set(u16::MAX);
    sb.set_compat(features.compat);
    sb.set_incompat(features.incompat);
    sb.set_ro_compat(features.ro_compat);
    sb.first_ino.set(GOOD_OLD_FIRST_INO);
    sb.inode_size.set(s.inode_size);
    sb.log_block_size.set(s.block_size.ilog2() - 10);
    sb.log_cluster_size.set(s.cluster_size().ilog2() - 10);
    sb.first_data_block.set(s.first_data_block());
    sb.clusters_per_group.set(s.clusters_per_group());
    sb.blocks_per_group.set(s.blocks_per_group());
    if features.incompat.contains(Incompat::BIT64) {
        sb.desc_size.set(64);
    }
    if features.incompat.contains(Incompat::FLEX_BG) {
        sb.log_groups_per_flex = sizes::LOG_FLEX;
    }
    if features.incompat.contains(Incompat::MMP) {
        sb.mmp_interval.set(5);
    }
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        sb.checksum_type = CHECKSUM_TYPE_CRC32C;
    }
    if usize::from(s.inode_size) > GOOD_OLD_INODE_SIZE {
        sb.min_extra_isize.set(FULL_EXTRA_ISIZE);
        sb.want_extra_isize.set(FULL_EXTRA_ISIZE);
    }
    if features.compat.contains(Compat::HAS_JOURNAL) {
        sb.journal_inum.set(JOURNAL_INO);
    }
    if features.ro_compat.contains(RoCompat::QUOTA) {
        sb.usr_quota_inum.set(USR_QUOTA_INO);
        sb.grp_quota_inum.set(GRP_QUOTA_INO);
    }
    let mount = DefaultMountOpts::XATTR_USER | DefaultMountOpts::ACL;
    sb.default_mount_opts.set(mount.bits());
    sb.flags.set(SuperFlags::SIGNED_HASH.bits());
    let hash = HashVersion {
        kind: HashKind::HalfMd4,
        unsigned: false,
    };
    sb.def_hash_version = hash.root_byte();
    if options.label.len() > sb.volume_name.len() {
        return crate::error::options(format!(
            "a label has {} bytes at most, and this one has {}",
            sb.volume_name.len(),
            options.label.len()
        ));
    }
    sb.set_label(&options.label);
    Ok(())
}

/// The UUID, the seed of directory hashes, and the seed of checksums.
fn identify(sb: &mut Superblock, options: &FormatOptions) -> Result<()> {
    let mut random = Source::new(options.seed);
    let (uuid, hash_seed) = (random.uuid()?, random.uuid()?);
    sb.uuid = options.uuid.unwrap_or(uuid);
    let (words, _) = hash_seed.as_chunks::<4>();
    for (to, word) in sb.hash_seed.iter_mut().zip(words) {
        to.set(u32::from_le_bytes(*word));
    }
    if sb.incompat().contains(Incompat::CSUM_SEED) {
        sb.checksum_seed.set(ext4_crc32c(!0, &sb.uuid));
    }
    Ok(())
}

/// The time of all timestamps, seconds.
fn now(of: &FormatOptions, sb: &Superblock) -> Result<u64> {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH);
    let now = of
        .epoch
        .unwrap_or_else(|| clock().map_or(0, |d| d.as_secs()));
    let extra = usize::from(sb.inode_size.get()) > GOOD_OLD_INODE_SIZE;
    let latest = match extra {
        true => Timestamp::MAX_SEC,
        false => Timestamp::MAX_SEC_32,
    };
    if now > latest.unsigned_abs() {
        return options(format!(
            "an inode of {} bytes cannot hold the time {now}; the latest is {latest}",
            sb.inode_size.get()
        ));
    }
    Ok(now)
}

fn stamp(sb: &mut Superblock, now: u64) {
    sb.set_creation_time(now);
    sb.set_write_time(now);
    sb.set_check_time(now);
}

/// Blocks reserved for the superuser.
fn reserve(sb: &mut Superblock, of: &FormatOptions, defaults: &Defaults) -> Result<()> {
    let share = of.reserved.unwrap_or(defaults.reserved);
    if share > 5000 {
        return options("at most 50 % can be reserved: give --reserved a smaller number");
    }
    let blocks = u128::from(sb.blocks_count()) * u128::from(share) / 10_000;
    sb.set_reserved_blocks_count(u64::try_from(blocks).unwrap_or(0));
    Ok(())
}
