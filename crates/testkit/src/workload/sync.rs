//! Making a tree durable file by file.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

/// `fsync` of every file and directory at and below `path`.
///
/// Not `syncfs`: on a FUSE mount that is not over a block device the kernel does not pass it on.
pub fn fsync_all(path: &Path) -> Result<()> {
    let kind = fs::symlink_metadata(path)
        .with_context(|| format!("stat {}", path.display()))?
        .file_type();
    if kind.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("listing {}", path.display()))? {
            fsync_all(&entry?.path())?;
        }
    }
    // What cannot be opened (symlinks, device nodes, fifos) is durable with its directory.
    if kind.is_dir() || kind.is_file() {
        File::open(path)
            .and_then(|f| f.sync_all())
            .with_context(|| format!("fsync {}", path.display()))?;
    }
    Ok(())
}
