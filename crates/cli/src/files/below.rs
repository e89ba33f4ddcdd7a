//! Visits of a file and of all that is below it, for `chmod -R` and its like.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use stetfs::{Metadata, Volume};

use super::place::split;
use super::tree::{Entered, Inside, Tree};
use super::troubles::Troubles;
use crate::failure::Result;

/// A visited file: the directory that holds it, its name there, and its attributes. Symbolic links
/// are not followed.
pub(super) struct Visited<'a> {
    pub(super) dir: &'a Volume,
    pub(super) name: &'a OsStr,
    pub(super) metadata: &'a Metadata,
    /// The whole path in the volume.
    pub(super) path: &'a Path,
}

/// The treatment of a symbolic link that is named as the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Top {
    /// Its target is visited, with all that is below it.
    Followed,
    /// It is visited itself.
    Kept,
}

/// Calls `op` for the file at `path` and, if it is a directory, for all below it, a directory
/// before what is in it. Errors below are told, and the other files are visited.
///
/// # Errors
/// The errors of the file at `path` itself; Ctrl-C.
pub(super) fn each_below(
    volume: &Volume,
    path: &Path,
    top: Top,
    troubles: &mut Troubles,
    op: &mut dyn FnMut(&Visited<'_>) -> stetfs::Result<()>,
) -> Result {
    let is_dir = match top {
        Top::Followed => volume.metadata(path)?.is_dir(),
        Top::Kept => volume.symlink_metadata(path)?.is_dir(),
    };
    let (base, name) = match is_dir {
        true => (path.to_owned(), None),
        false => resolved(volume, path, top)?,
    };
    let tree = Inside::below(volume, &base)?;
    let mut entered = Entered::default();
    let mut all = vec![PathBuf::from(name.as_deref().unwrap_or(OsStr::new("")))];
    let mut is_top = true;
    while let Some(path) = all.pop() {
        let shown = tree.shown(&path);
        let mut visit = || -> Result<Vec<_>> {
            let metadata = tree.metadata(&path)?;
            tree.with(&path, |dir, name| {
                op(&Visited {
                    dir,
                    name,
                    metadata: &metadata,
                    path: &shown,
                })
            })?;
            if !metadata.is_dir() {
                return Ok(Vec::new());
            }
            entered.add(&shown, (0, metadata.ino()))?;
            tree.names(&path)
        };
        let names = match is_top {
            true => visit()?,
            false => troubles.pass(visit())?.unwrap_or_default(),
        };
        is_top = false;
        // The stack is popped from its end, so the first name goes last.
        all.extend(names.into_iter().rev().map(|name| path.join(name)));
    }
    Ok(())
}

/// The directory of a file that is no directory, and its name there.
fn resolved(
    volume: &Volume,
    path: &Path,
    top: Top,
) -> Result<(PathBuf, Option<std::ffi::OsString>)> {
    let path = match top {
        Top::Followed => Inside::resolved(volume, path)?,
        Top::Kept => path.to_owned(),
    };
    let (dir, name) = split(&path);
    Ok((dir.to_owned(), name.map(OsStr::to_owned)))
}
