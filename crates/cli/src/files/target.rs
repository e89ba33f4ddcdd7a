//! The target of `mv` and `ln`: a directory of a volume, or a new name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use stetfs::Volume;

use super::place::ends_with_slash;
use crate::failure::{Code, Failure, Result};

/// The place of new names.
pub(super) enum Target {
    /// In this directory.
    Dir(PathBuf),
    /// As this path.
    Name(PathBuf),
}

/// The handling of a target that may be a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A directory if it is one, or is a symbolic link to one.
    Either,
    /// As [`Either`](Wanted::Either), but a symbolic link is a name.
    NoLink,
    /// A directory (`-t`).
    Dir,
    /// A name (`-T`).
    Name,
}

impl Target {
    /// The target of so many sources.
    ///
    /// # Errors
    /// It has to be a directory, and is none.
    pub(super) fn of(
        volume: &Volume,
        path: &Path,
        wanted: Wanted,
        sources: usize,
    ) -> Result<Target> {
        let is_dir = match wanted {
            Wanted::Name => false,
            Wanted::NoLink => volume.symlink_metadata(path).is_ok_and(|m| m.is_dir()),
            Wanted::Either | Wanted::Dir => volume.metadata(path).is_ok_and(|m| m.is_dir()),
        };
        if is_dir {
            return Ok(Target::Dir(path.to_owned()));
        }
        if wanted == Wanted::Dir || sources > 1 {
            let message = format!("{} is no directory", path.display());
            return Err(Failure::new(Code::Usage, message));
        }
        Ok(Target::Name(path.to_owned()))
    }

    /// The path that the source `from` gets.
    ///
    /// # Errors
    /// The source has no name.
    pub(super) fn path_of(&self, from: &Path) -> Result<PathBuf> {
        match self {
            Target::Name(path) => Ok(path.clone()),
            Target::Dir(dir) => match from.file_name() {
                Some(name) => Ok(dir.join(name)),
                None => {
                    let message = format!("{} has no name of its own", from.display());
                    Err(Failure::new(Code::Usage, message))
                }
            },
        }
    }
}

/// The identity of a name: the inode of its directory, and the name there. `None` if there is no
/// such directory.
pub(super) fn name_id<'p>(volume: &Volume, path: &'p Path) -> Option<(u64, &'p OsStr)> {
    let dir = volume.metadata(path.parent()?).ok()?;
    Some((dir.ino(), path.file_name()?))
}

/// The failure for a source and a target that are one file.
pub(super) fn one_file(from: &Path, to: &Path) -> Failure {
    let message = format!("{} and {} are one file", from.display(), to.display());
    Failure::new(Code::Usage, message)
}

/// Refuses a name with a slash at its end that would be that of a file.
pub(super) fn check_slash(to: &Path) -> Result {
    match ends_with_slash(to) {
        false => Ok(()),
        true => {
            let message = format!("{} is no directory", to.display());
            Err(Failure::new(Code::Usage, message))
        }
    }
}
