//! Feature checks: which volumes this version opens, for reading or writing.

use stetfs_ondisk::ext4::features::{
    FeatureNames, Incompat, RoCompat, WRITTEN_INCOMPAT, WRITTEN_RO_COMPAT,
};
use stetfs_ondisk::ext4::superblock::Superblock;

use crate::error::{FsError, Result};

/// Incompatible features that this version reads and writes.
const INCOMPAT: Incompat = WRITTEN_INCOMPAT.union(Incompat::RECOVER);

/// Read-only compatible features that this version maintains when it writes.
const RO_COMPAT: RoCompat = WRITTEN_RO_COMPAT.union(RoCompat::ORPHAN_PRESENT);

/// Incompatible features for which volumes are only read, perhaps without some files.
const INCOMPAT_READ: Incompat = Incompat::ENCRYPT.union(Incompat::CASEFOLD);

/// The largest block size. Directories with larger blocks use another encoding of lengths, which
/// cannot be tested here.
const BLOCK_MAX: u32 = 32 << 10;

/// The reason why a known feature is not supported.
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
/// `Unsupported`, naming the features as dumpe2fs does; `Format` for an unknown default hash.
pub(super) fn check(sb: &Superblock, read_only: bool) -> Result<()> {
    let unsupported = |text: String| Err(FsError::Unsupported(text));
    let foreign = sb.incompat() - INCOMPAT - INCOMPAT_READ;
    if !foreign.is_empty() {
        return unsupported(format!(
            "the volume has the features {}",
            foreign.names().join(", ")
        ));
    }
    // Linux refuses a default hash that it does not know, too, whatever the volume's features.
    sb.default_hash()?;
    let layout = sb.geometry()?;
    let block_size = layout.block_size;
    if block_size > BLOCK_MAX {
        return unsupported(format!(
            "blocks of {} KiB (at most {} KiB)",
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
