//! Resolution of paths to files.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::low::{Attr, FileType, Fs, Ino, ROOT_INO, Result};
use crate::shared::{Shared, errno};

/// Most symbolic links followed on one walk, as in Linux.
const MOST_LINKS: u32 = 40;

/// A file that was found. It exists, with or without a name, while this lives.
pub(crate) struct Found<'a> {
    fs: &'a Fs,
    pub(crate) attr: Attr,
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        self.fs.forget(self.attr.ino, 1);
    }
}

impl<'a> Found<'a> {
    /// The file `name` in the directory `dir`.
    pub(crate) fn lookup(fs: &'a Fs, dir: Ino, name: &[u8]) -> Result<Found<'a>> {
        let attr = fs.lookup(dir, name)?;
        Ok(Found { fs, attr })
    }

    /// The result of an operation that counts a lookup.
    pub(crate) fn counted(fs: &'a Fs, attr: Attr) -> Found<'a> {
        Found { fs, attr }
    }

    pub(crate) fn ino(&self) -> Ino {
        self.attr.ino
    }

    fn is_link(&self) -> bool {
        self.attr.kind == FileType::Symlink
    }
}

/// A directory that paths cannot leave: the base of [`Volume::beneath`](crate::Volume::beneath). It
/// stays the same directory, with or without a name, while this lives.
pub(crate) struct Base {
    shared: Arc<Shared>,
    ino: Ino,
    /// The path with which its paths begin.
    path: PathBuf,
}

impl Drop for Base {
    fn drop(&mut self) {
        self.shared.fs().forget(self.ino, 1);
    }
}

impl Base {
    /// The directory that was found at `path`.
    pub(crate) fn new(shared: &Arc<Shared>, path: &Path, found: Found<'_>) -> Base {
        let ino = found.ino();
        // The base takes over its lookup count.
        std::mem::forget(found);
        Base {
            shared: Arc::clone(shared),
            ino,
            path: path.to_owned(),
        }
    }
}

/// The start of paths: the root, or a base that they cannot leave.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) base: Option<&'a Base>,
}

/// The handling of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// It is followed.
    Follow,
    /// It is not followed.
    Keep,
}

/// A directory and a name in it; the file may not exist.
pub(crate) struct Place<'a, 'p> {
    pub(crate) dir: Found<'a>,
    pub(crate) name: Cow<'p, [u8]>,
    /// The path can only be a directory.
    pub(crate) is_dir: bool,
}

/// The file at `path`.
///
/// # Errors
/// ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG; EXDEV for a path outside of the base.
pub(crate) fn find<'a>(start: Start<'a>, path: &Path, last: Last) -> Result<Found<'a>> {
    let mut walk = PathWalk::new(start, path)?;
    while let Some(name) = walk.rest.pop() {
        let ends = walk.rest.is_empty() && !walk.is_dir;
        walk.step(name, last == Last::Follow || !ends)?;
    }
    if walk.is_dir && walk.at.attr.kind != FileType::Directory {
        return errno(Errno::NOTDIR);
    }
    Ok(walk.at)
}

/// The directory that holds the last name of `path`, and that name.
///
/// # Errors
/// As [`find`]; `of_root` if the path names the root.
pub(crate) fn place<'a, 'p>(
    start: Start<'a>,
    path: &'p Path,
    of_root: Errno,
) -> Result<Place<'a, 'p>> {
    let mut walk = PathWalk::new(start, path)?;
    match walk.reach_last()? {
        Some(name) => Ok(Place {
            dir: walk.at,
            name,
            is_dir: walk.is_dir,
        }),
        None => errno(of_root),
    }
}

/// A path looked up name by name (in Linux, a path walk).
pub(crate) struct PathWalk<'a, 'p> {
    start: Start<'a>,
    /// The directory or file reached so far.
    pub(crate) at: Found<'a>,
    /// The remaining names, in reverse order.
    rest: Vec<Cow<'p, [u8]>>,
    /// Symbolic links followed so far.
    links: u32,
    /// The path ends with a slash.
    pub(crate) is_dir: bool,
}

/// The names of a path, in reverse order.
fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/')
        .rev()
        .filter(|name| !name.is_empty())
}

impl<'a, 'p> PathWalk<'a, 'p> {
    pub(crate) fn new(start: Start<'a>, path: &'p Path) -> Result<PathWalk<'a, 'p>> {
        if path.as_os_str().is_empty() {
            return errno(Errno::NOENT);
        }
        let (ino, path) = match start.base {
            None => (ROOT_INO, path),
            Some(base) => match path.strip_prefix(&base.path) {
                Ok(path) if !path.components().any(|c| c == Component::ParentDir) => {
                    (base.ino, path)
                }
                _ => return errno(Errno::XDEV),
            },
        };
        let path = path.as_os_str().as_bytes();
        Ok(PathWalk {
            start,
            at: Found::lookup(start.fs, ino, b".")?,
            rest: names(path).map(Cow::Borrowed).collect(),
            links: 0,
            is_dir: path.ends_with(b"/"),
        })
    }

    /// Walks to the directory of the last name, and returns that name. `None` if there is none: the
    /// path ends at the root.
    pub(crate) fn reach_last(&mut self) -> Result<Option<Cow<'p, [u8]>>> {
        while let Some(name) = self.rest.pop() {
            if self.rest.is_empty() {
                return Ok(Some(name));
            }
            self.step(name, true)?;
        }
        Ok(None)
    }

    /// Puts back the last name.
    pub(crate) fn again(&mut self, name: Cow<'p, [u8]>) {
        self.rest.push(name);
    }

    /// The file `name` in the current directory.
    pub(crate) fn look(&self, name: &[u8]) -> Result<Found<'a>> {
        // The file system would find `.` in any file.
        match self.at.attr.kind {
            FileType::Directory => Found::lookup(self.start.fs, self.at.ino(), name),
            _ => errno(Errno::NOTDIR),
        }
    }

    fn step(&mut self, name: Cow<'p, [u8]>, follow: bool) -> Result<()> {
        let found = self.look(&name)?;
        if follow && found.is_link() {
            return self.follow(&found);
        }
        self.at = found;
        Ok(())
    }

    /// Replaces a symbolic link in the current directory by its target.
    pub(crate) fn follow(&mut self, link: &Found<'_>) -> Result<()> {
        self.links += 1;
        if self.links > MOST_LINKS || self.start.base.is_some() {
            return errno(Errno::LOOP);
        }
        let target = self.start.fs.readlink(link.ino())?;
        if target.is_empty() {
            return errno(Errno::NOENT);
        }
        if target.starts_with(b"/") {
            self.at = Found::lookup(self.start.fs, ROOT_INO, b".")?;
        }
        if self.rest.is_empty() {
            self.is_dir |= target.ends_with(b"/");
        }
        self.rest
            .extend(names(&target).map(|name| Cow::Owned(name.to_vec())));
        Ok(())
    }
}
