//! Which volumes are taken: the feature words decide.

use stetfs_ondisk::ext4::features::{FeatureNames, Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::Superblock;

use crate::error::{FsError, Result};

/// Incompatible features that this version reads and writes.
const INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::FLEX_BG)
    .union(Incompat::LARGEDIR)
    .union(Incompat::MMP)
    .union(Incompat::EA_INODE)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::CSUM_SEED);

/// Read-only compatible features that this version keeps right when it writes.
const RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::QUOTA)
    .union(RoCompat::PROJECT)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::ORPHAN_PRESENT);

/// Incompatible features that are only read, some files perhaps not.
const INCOMPAT_READ: Incompat = Incompat::ENCRYPT.union(Incompat::CASEFOLD);

/// Largest block. Directories of larger ones have lengths of their own, and nobody could check them
/// here.
const BLOCK_MAX: u32 = 32 << 10;

/// Why a feature that could be kept right is not.
fn reason(name: &str) -> &'static str {
    match name {
        "encrypt" => " (names and content are written with keys only)",
        "casefold" => " (names would have to be compared by Unicode's rules)",
        "verity" => " (files are sealed against changes)",
        "shared_blocks" => " (blocks have several owners)",
        _ => "",
    }
}

fn explained(names: &[String]) -> String {
    let all: Vec<String> = names.iter().map(|n| format!("{n}{}", reason(n))).collect();
    all.join(", ")
}

/// Checks that the volume can be opened, for writing unless `read_only`.
///
/// # Errors
/// `Unsupported`, naming the features as dumpe2fs does.
pub(super) fn check(sb: &Superblock, read_only: bool) -> Result<()> {
    let unsupported = |text: String| Err(FsError::Unsupported(text));
    let foreign = sb.incompat() - INCOMPAT - INCOMPAT_READ;
    if !foreign.is_empty() {
        return unsupported(format!(
            "the volume has the features {}",
            foreign.names().join(", ")
        ));
    }
    let layout = sb.geometry()?;
    let block_size = layout.block_size;
    if block_size > BLOCK_MAX {
        return unsupported(format!(
            "blocks of {} KiB (up to {} KiB are)",
            block_size >> 10,
            BLOCK_MAX >> 10
        ));
    }
    if read_only {
        return Ok(());
    }
    let mut names = (sb.incompat() & INCOMPAT_READ).names();
    names.extend((sb.ro_compat() - RO_COMPAT).names());
    if !names.is_empty() {
        return unsupported(format!(
            "writing a volume with the features {}; it can be opened read-only",
            explained(&names)
        ));
    }
    let clusters = u64::from(layout.blocks_per_cluster.max(1));
    let groups = layout
        .blocks_count
        .saturating_sub(u64::from(layout.first_data_block));
    let mapped = sb.incompat().contains(Incompat::EXTENTS);
    if clusters > 1 && (!mapped || !groups.is_multiple_of(clusters)) {
        return unsupported(
            "writing a volume with clusters (bigalloc) without extents, or that ends within a cluster; it can be opened read-only"
                .into(),
        );
    }
    Ok(())
}
