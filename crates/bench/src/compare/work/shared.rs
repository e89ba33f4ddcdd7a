//! Inputs that several runs share.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;

use super::database::Programs;

/// Inputs that several runs share: the repository to clone, the tree to copy, programs.
pub(in crate::compare) struct Shared {
    pub(super) sqlite3: PathBuf,
    pub(super) git: std::result::Result<PathBuf, String>,
    pub(super) sqlite: std::result::Result<(), String>,
    pub(super) postgres: std::result::Result<Programs, String>,
    pub(super) mariadb: std::result::Result<Programs, String>,
    pub(super) tree: Option<PathBuf>,
    pub(super) _dir: TempDir,
}

impl Shared {
    pub(super) fn repository(&self) -> Result<&Path> {
        found(&self.git).map(PathBuf::as_path)
    }

    pub(super) fn postgres(&self) -> Result<&Programs> {
        found(&self.postgres)
    }

    pub(super) fn mariadb(&self) -> Result<&Programs> {
        found(&self.mariadb)
    }

    pub(super) fn tree(&self) -> Result<&Path> {
        self.tree.as_deref().context("there is no tree to copy")
    }
}

fn found<T>(what: &std::result::Result<T, String>) -> Result<&T> {
    what.as_ref().map_err(|reason| anyhow!("{reason}"))
}
