//! The directories to which names in an archive lead.
//!
//! An archive may contain a symbolic link and names that go through it, to reach files elsewhere.
//! So no name leads through a link that came from the same archive. A link that was there before is
//! followed, as container layers need it (`lib` that leads to `usr/lib`), but never out of the
//! base.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use crate::failure::{Code, Failure, Result};
use crate::files::tree::{Inside, Kind, Tree};

/// Most symbolic links followed for one name, as in Linux.
const MOST_LINKS: u32 = 40;

/// The directories into which an archive is unpacked. All paths are relative to the base and
/// contain only names.
pub(super) struct Unpacked<'a> {
    tree: &'a Inside,
    /// The base is the root of the volume.
    is_root: bool,
    /// Symbolic links that came from the archive.
    links: HashSet<PathBuf>,
}

impl<'a> Unpacked<'a> {
    pub(super) fn new(tree: &'a Inside, base: &Path) -> Unpacked<'a> {
        Unpacked {
            tree,
            is_root: base.parent().is_none(),
            links: HashSet::new(),
        }
    }

    /// The path for the archive's `name`. Its directory is created if `make` says so; `None` if the
    /// directory is missing. A symbolic link at the end is not followed.
    ///
    /// # Errors
    /// The name leads through a link of the archive, or out of the base.
    pub(super) fn place(&self, name: &Path, make: bool) -> Result<Option<PathBuf>> {
        let (dir, last) = match (name.parent(), name.file_name()) {
            (Some(dir), Some(last)) => (dir, last),
            _ => return Ok(Some(PathBuf::new())),
        };
        Ok(self.dir(dir, make, name)?.map(|dir| dir.join(last)))
    }

    fn dir(&self, dir: &Path, make: bool, name: &Path) -> Result<Option<PathBuf>> {
        // Starts again at the last directory that names alone lead to: the tree follows no links.
        let mut names = Vec::new();
        let mut at = dir;
        while let (Some(above), Some(last)) = (at.parent(), at.file_name()) {
            if self
                .tree
                .item(at)?
                .is_some_and(|item| item.kind == Kind::Dir)
            {
                break;
            }
            names.push(last);
            at = above;
        }
        let mut walk = Walk {
            at: at.to_owned(),
            links: 0,
            make,
            name,
        };
        for part in names.into_iter().rev() {
            if !self.step(&mut walk, part)? {
                return Ok(None);
            }
        }
        Ok(Some(walk.at))
    }

    /// Enters a directory; returns whether it exists.
    fn step(&self, walk: &mut Walk<'_>, part: &OsStr) -> Result<bool> {
        walk.at.push(part);
        match self.tree.item(&walk.at)?.map(|item| item.kind) {
            Some(Kind::Dir) => Ok(true),
            Some(Kind::Symlink) => self.follow(walk),
            _ if !walk.make => Ok(false),
            // Nothing is there, or something else is in the way, which `make_dir` reports.
            _ => self.tree.make_dir(&walk.at).map(|()| true),
        }
    }

    fn follow(&self, walk: &mut Walk<'_>) -> Result<bool> {
        if self.links.contains(&walk.at) {
            return Err(walk.refused("a symbolic link that came from the archive"));
        }
        walk.links += 1;
        if walk.links > MOST_LINKS {
            return Err(walk.refused("too many symbolic links"));
        }
        let target = self.tree.link(&walk.at)?;
        walk.at.pop();
        for part in target.components() {
            let is_there = match part {
                Component::Normal(part) => self.step(walk, part)?,
                Component::ParentDir => walk.at.pop() || self.is_root || self.leads_out(walk)?,
                Component::RootDir if !self.is_root => self.leads_out(walk)?,
                Component::RootDir => {
                    walk.at.clear();
                    true
                }
                Component::CurDir | Component::Prefix(_) => true,
            };
            if !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn leads_out(&self, walk: &Walk<'_>) -> Result<bool> {
        Err(walk.refused("a symbolic link that leads out of the directory to unpack into"))
    }

    /// Notes that the archive made a symbolic link at `place`.
    pub(super) fn made_link(&mut self, place: &Path) {
        self.links.insert(place.to_owned());
    }
}

/// The look-up of a name of the archive.
struct Walk<'a> {
    /// The directory reached so far.
    at: PathBuf,
    links: u32,
    make: bool,
    /// The whole name, for messages.
    name: &'a Path,
}

impl Walk<'_> {
    fn refused(&self, through: &str) -> Failure {
        let message = format!(
            "the archive holds the name {}, which leads through {through}",
            self.name.display()
        );
        Failure::new(Code::Usage, message)
    }
}
