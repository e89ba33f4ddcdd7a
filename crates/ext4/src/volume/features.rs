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
    .union(Incompat::CSUM_SEED);

/// Read-only compatible features that this version keeps right when it writes.
const RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::ORPHAN_PRESENT);

/// Checks that the volume can be opened, for writing unless `read_only`.
///
/// # Errors
/// `Unsupported`, naming the features as dumpe2fs does.
pub(super) fn check(sb: &Superblock, read_only: bool) -> Result<()> {
    let unsupported = |text: String| Err(FsError::Unsupported(text));
    let foreign = sb.incompat() - INCOMPAT;
    if !foreign.is_empty() {
        return unsupported(format!(
            "the volume has the features {}",
            foreign.names().join(", ")
        ));
    }
    if read_only {
        return Ok(());
    }
    let unwritable = sb.ro_compat() - RO_COMPAT;
    if !unwritable.is_empty() {
        let names = unwritable.names().join(", ");
        return unsupported(format!(
            "writing a volume with the features {names}; it can be opened read-only"
        ));
    }
    Ok(())
}
