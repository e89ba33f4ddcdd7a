//! The files of a volume as a [`Tree`].

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use stetfs::{File, Metadata, Node, SetMetadata, Volume};

use super::way::Way;
use super::{
    Content, Finish, Followed, Item, KEPT_FLAGS, Kind, Made, Named, Permissions, Sink, Tree, Xattr,
    has_no_room,
};
use crate::failure::{Failure, Result};
use crate::files::left_out::LeftOut;
use crate::files::meter::Meter;
use crate::files::place::split;

/// The files below a directory of a volume. The directories on the way to the last named file are
/// held, so that a name in them needs no walk from the base.
pub(in crate::files) struct Inside {
    /// The whole volume, where symbolic links lead.
    volume: Volume,
    way: RefCell<Way<Volume>>,
    /// The path of the base, for messages.
    path: PathBuf,
}

/// A file in a volume: a directory and a name in it.
struct InsideMade {
    dir: Rc<Volume>,
    name: OsString,
    kind: Kind,
}

/// An open file, and the path of its directory, for messages.
struct Open {
    file: File,
    dir: PathBuf,
}

/// A file that was created.
struct InsideFile {
    open: Open,
    made: InsideMade,
}

fn to_item(volume: &Volume, m: &Metadata) -> Item {
    Item {
        kind: Kind::of(m),
        mode: m.mode() & 0o7777,
        uid: m.uid(),
        gid: m.gid(),
        size: m.len(),
        is_sparse: m.blocks().saturating_mul(512) < m.len(),
        links: m.nlink(),
        // The address distinguishes open volumes.
        id: (Arc::as_ptr(volume.low()) as u64, m.ino()),
        modified: m.modified(),
        accessed: m.accessed(),
    }
}

impl Inside {
    /// The files below `base`; symbolic links in it are followed.
    ///
    /// # Errors
    /// It does not exist, or is not a directory.
    pub(in crate::files) fn below(volume: &Volume, base: &Path) -> Result<Inside> {
        Ok(Inside {
            volume: volume.clone(),
            way: RefCell::new(Way::new(volume.within(base)?)),
            path: base.to_owned(),
        })
    }

    /// The target of the symbolic link `path`; the target is not a directory.
    ///
    /// # Errors
    /// The link is broken, or its target cannot be read.
    pub(in crate::files) fn named(volume: &Volume, path: &Path) -> Result<Named> {
        let item = to_item(volume, &volume.metadata(path)?);
        let content: Option<Box<dyn Content>> = match item.kind {
            Kind::File => {
                let file = volume.open_file(path)?;
                file.check_map()?;
                let dir = PathBuf::new();
                Some(Box::new(Open { file, dir }))
            }
            _ => None,
        };
        Ok(Named { item, content })
    }

    /// The path of the file to which the symbolic link `path` leads at last, or `path` itself.
    ///
    /// # Errors
    /// It does not exist; there are too many links.
    pub(in crate::files) fn resolved(volume: &Volume, path: &Path) -> Result<PathBuf> {
        let mut path = path.to_owned();
        // The library ends a walk after as many links.
        for _ in 0..=40 {
            if !volume.symlink_metadata(&path)?.is_symlink() {
                return Ok(path);
            }
            let target = volume.read_link(&path)?;
            path = path.parent().unwrap_or(Path::new("/")).join(target);
        }
        Ok(volume.metadata(&path).map(|_| path)?)
    }

    /// The file to which the symbolic link `path` leads at last.
    ///
    /// # Errors
    /// The link is broken.
    pub(in crate::files) fn followed(volume: &Volume, path: &Path) -> Result<Followed> {
        let path = Inside::resolved(volume, path)?;
        let item = to_item(volume, &volume.metadata(&path)?);
        let (base, name) = match item.kind {
            Kind::Dir => (&*path, None),
            _ => split(&path),
        };
        Ok(Followed {
            tree: Box::new(Inside::below(volume, base)?),
            path: PathBuf::from(name.unwrap_or_default()),
            item,
        })
    }

    /// The attributes of `path`, as the library has them.
    pub(in crate::files) fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.with(path, |dir, name| dir.symlink_metadata(name))
    }

    /// Removes a file, or a directory with its content.
    pub(in crate::files) fn remove_all(&self, path: &Path) -> Result {
        self.with(path, |dir, name| dir.remove_dir_all(name))
    }

    /// The path of the directory that holds the file at `path`, for messages.
    fn shown_dir(&self, path: &Path) -> PathBuf {
        self.shown(path.parent().unwrap_or(Path::new("")))
    }

    /// The directory that holds the file at `path`, and its name there.
    fn at<'p>(&self, path: &'p Path) -> stetfs::Result<(Rc<Volume>, &'p OsStr)> {
        let mut way = self.way.borrow_mut();
        let Some(name) = path.file_name() else {
            return Ok((Rc::clone(way.base()), OsStr::new(".")));
        };
        let dir = way.dir(
            path.parent().unwrap_or(Path::new("")),
            |dir, name, above| dir.within(name).map_err(|e| e.below(&self.shown(above))),
        )?;
        Ok((dir, name))
    }

    /// Calls `op` with the directory that holds the file at `path` and its name there.
    pub(in crate::files) fn with<T>(
        &self,
        path: &Path,
        op: impl FnOnce(&Volume, &OsStr) -> stetfs::Result<T>,
    ) -> Result<T> {
        self.attempt(path, op).map_err(Failure::from)
    }

    /// As [`with`](Self::with), with the library's error.
    fn attempt<T>(
        &self,
        path: &Path,
        op: impl FnOnce(&Volume, &OsStr) -> stetfs::Result<T>,
    ) -> stetfs::Result<T> {
        let (dir, name) = self.at(path)?;
        op(&dir, name).map_err(|e| e.below(&self.shown_dir(path)))
    }

    fn made(&self, path: &Path, kind: Kind) -> Result<InsideMade> {
        let (dir, name) = self.at(path)?;
        Ok(InsideMade {
            dir,
            name: name.to_owned(),
            kind,
        })
    }
}

impl Content for Open {
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        Ok(self.file.next_data(from).map_err(|e| e.below(&self.dir))?)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        Ok(self.file.read_at(buf, at).map_err(|e| e.below(&self.dir))?)
    }
}

impl Sink for InsideFile {
    fn write_at(&self, bytes: &[u8], at: u64) -> Result {
        let Open { file, dir } = &self.open;
        Ok(file.write_all_at(bytes, at).map_err(|e| e.below(dir))?)
    }

    fn set_len(&self, size: u64) -> Result {
        let Open { file, dir } = &self.open;
        Ok(file.set_len(size).map_err(|e| e.below(dir))?)
    }
}

impl Made for InsideFile {
    fn item(&self, path: &Path) -> Result<Item> {
        self.made.item(path)
    }

    fn finish(&self, path: &Path, with: &Finish, meter: &mut Meter) -> Result {
        self.made.finish(path, with, meter)
    }
}

impl Made for InsideMade {
    fn item(&self, path: &Path) -> Result<Item> {
        let m = self.dir.symlink_metadata(&self.name);
        let m = m.map_err(|e| above(e, path))?;
        Ok(to_item(&self.dir, &m))
    }

    fn finish(&self, path: &Path, with: &Finish, meter: &mut Meter) -> Result {
        self.give(path, with, meter)
            .map_err(|e| above(e, path).into())
    }
}

/// The error of a name in a directory, with the whole path of the file.
fn above(e: stetfs::Error, path: &Path) -> stetfs::Error {
    match e.path() == Path::new(".") {
        true => e.below(path),
        false => e.below(path.parent().unwrap_or(Path::new(""))),
    }
}

impl InsideMade {
    fn give(&self, path: &Path, with: &Finish, meter: &mut Meter) -> stetfs::Result<()> {
        let (dir, name) = (&self.dir, &self.name);
        // A new owner removes `security.capability`, and an ACL changes the mode: the order
        // matters.
        if let Some((uid, gid)) = with.owner {
            let owner = SetMetadata::new().owner(uid).group(gid).clone();
            dir.set_symlink_metadata(name, &owner)?;
        }
        for (xattr, value) in &with.xattrs {
            match dir.set_symlink_xattr(name, xattr, value) {
                // The attribute comes from another kind of file system.
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    meter.left_out(LeftOut {
                        attributes: 1,
                        ..LeftOut::default()
                    });
                }
                Err(e) if e.raw_os_error().is_some_and(has_no_room) => {
                    let mut trouble = Failure::from(above(e, path));
                    trouble.message += &format!(" (the attribute {})", xattr.display());
                    meter.troubles.tell(&trouble);
                }
                done => done?,
            }
        }
        let mut set = SetMetadata::new();
        if let (Some(permissions), true) = (with.permissions, self.kind != Kind::Symlink) {
            set.mode(permissions.mode());
        }
        if let Some(time) = with.modified {
            set.modified(time);
        }
        if let Some(time) = with.accessed {
            set.accessed(time);
        }
        dir.set_symlink_metadata(name, &set)?;
        let Some(flags) = with.flags else {
            return Ok(());
        };
        let now = dir.flags(name)?;
        if now & KEPT_FLAGS == flags {
            return Ok(());
        }
        match dir.set_flags(name, now & !KEPT_FLAGS | flags) {
            // The flags come from another kind of volume.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                meter.left_out(LeftOut {
                    flags: 1,
                    ..LeftOut::default()
                });
                Ok(())
            }
            done => done,
        }
    }
}

/// Errors of paths that lead to no file.
const NOTHING: [i32; 3] = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP];

impl Tree for Inside {
    fn shown(&self, path: &Path) -> PathBuf {
        match path.as_os_str().is_empty() {
            true => self.path.clone(),
            false => self.path.join(path),
        }
    }

    fn item(&self, path: &Path) -> Result<Option<Item>> {
        let found = self.attempt(path, |dir, name| {
            Ok(to_item(dir, &dir.symlink_metadata(name)?))
        });
        match found {
            Ok(item) => Ok(Some(item)),
            // Also for a path that leads through a file or a symbolic link.
            Err(e) if e.raw_os_error().is_some_and(|e| NOTHING.contains(&e)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn names(&self, dir: &Path) -> Result<Vec<OsString>> {
        let mut names = self.with(dir, |at, name| {
            let entries = at.read_dir(name)?;
            let names = entries.map(|entry| Ok(entry?.file_name().to_owned()));
            names.collect::<stetfs::Result<Vec<_>>>()
        })?;
        names.sort_unstable();
        Ok(names)
    }

    fn names_dirs_once(&self) -> bool {
        true
    }

    fn link(&self, path: &Path) -> Result<PathBuf> {
        self.with(path, |dir, name| dir.read_link(name))
    }

    fn follow(&self, path: &Path) -> Result<Followed> {
        Inside::followed(&self.volume, &self.shown(path))
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>> {
        self.with(path, |dir, file| {
            let mut all = Vec::new();
            for name in dir.symlink_xattrs(file)? {
                if let Some(value) = dir.symlink_xattr(file, &name)? {
                    all.push((name, value));
                }
            }
            Ok(all)
        })
    }

    fn flags(&self, path: &Path, item: &Item) -> Result<Option<u32>> {
        match item.kind {
            Kind::File | Kind::Dir => {
                let flags = self.with(path, |dir, name| dir.flags(name))?;
                Ok(Some(flags & KEPT_FLAGS))
            }
            _ => Ok(None),
        }
    }

    fn open(&self, path: &Path, _: &Item) -> Result<Box<dyn Content>> {
        let file = self.with(path, |dir, name| {
            let file = dir.open_file(name)?;
            file.check_map().map(|()| file)
        })?;
        let dir = self.shown_dir(path);
        Ok(Box::new(Open { file, dir }))
    }

    fn make_dir(&self, path: &Path) -> Result {
        self.with(path, |dir, name| dir.create_dir(name))
    }

    fn make_file(&self, path: &Path, _: Permissions) -> Result<Box<dyn Sink>> {
        let mut options = File::options();
        options.write(true).create_new(true);
        let file = self.with(path, |dir, name| options.open(dir, name))?;
        let dir = self.shown_dir(path);
        Ok(Box::new(InsideFile {
            open: Open { file, dir },
            made: self.made(path, Kind::File)?,
        }))
    }

    fn make_link(&self, target: &Path, path: &Path) -> Result {
        self.with(path, |dir, name| dir.symlink(target, name))
    }

    fn make_node(&self, path: &Path, node: Node, _: Permissions) -> Result<bool> {
        self.with(path, |dir, name| dir.create_node(name, node))?;
        Ok(true)
    }

    fn hard_link(&self, path: &Path, name: &Path) -> Result {
        let way = self.way.borrow();
        let linked = way.base().hard_link(path, name);
        Ok(linked.map_err(|e| e.below(&self.path))?)
    }

    fn hold(&self, path: &Path, what: Kind) -> Result<Box<dyn Made>> {
        Ok(Box::new(self.made(path, what)?))
    }

    fn remove(&self, path: &Path) -> Result {
        self.with(path, |dir, name| dir.remove_file(name))
    }
}
