//! Makes a tree durable file by file.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

/// Calls `fsync` for every file and directory at and below `path`.
///
/// `syncfs` would not do: on a FUSE mount without a block device the kernel does not pass it on.
pub fn fsync_all(path: &Path) -> Result<()> {
    let kind = fs::symlink_metadata(path)
        .with_context(|| format!("stat {}", path.display()))?
        .file_type();
    if kind.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("listing {}", path.display()))? {
            fsync_all(&entry?.path())?;
        }
    }
    // Files that cannot be opened (symlinks, device nodes, fifos) are durable with their directory.
    if kind.is_dir() || kind.is_file() {
        File::open(path)
            .and_then(|f| f.sync_all())
            .with_context(|| format!("fsync {}", path.display()))?;
    }
    Ok(())
}
