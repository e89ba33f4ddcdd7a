//! Writing the files of reports.

use std::path::Path;

use anyhow::{Context, Result};

/// Writes files of these names into `dir`, which is created if it does not exist.
///
/// # Errors
/// The directory or a file cannot be written.
pub(crate) fn write_all(dir: &Path, files: &[(&str, String)]) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("mkdir {}", dir.display()))?;
    for (name, content) in files {
        let path = dir.join(name);
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
