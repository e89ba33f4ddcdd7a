//! The files of a volume.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stetfs::{File, Metadata, Node, SetMetadata, Volume};

use super::{Content, Finish, Item, KEPT_FLAGS, Kind, Made, Permissions, Sink, Tree, Xattr};
use crate::failure::Result;
use crate::files::left_out::LeftOut;

/// The files below a directory of a volume.
pub(in crate::files) struct Inside {
    volume: Volume,
    base: PathBuf,
}

/// Something in a volume.
struct InsideMade {
    volume: Volume,
    path: PathBuf,
    kind: Kind,
}

/// A file that is made.
struct InsideFile {
    file: File,
    made: InsideMade,
}

fn to_item(volume: &Volume, m: &Metadata) -> Item {
    Item {
        kind: Kind::of(m),
        mode: m.mode() & 0o7777,
        uid: m.uid(),
        gid: m.gid(),
        size: m.len(),
        links: m.nlink(),
        // No other volume that is open has its address.
        id: (Arc::as_ptr(volume.low()) as u64, m.ino()),
        modified: m.modified(),
        accessed: m.accessed(),
    }
}

impl Inside {
    /// The files below `base`; symbolic links on the way there are followed.
    ///
    /// # Errors
    /// It is not there, or no directory.
    pub(in crate::files) fn below(volume: &Volume, base: &Path) -> Result<Inside> {
        Ok(Inside {
            volume: volume.beneath(base)?,
            base: base.to_owned(),
        })
    }

    fn made(&self, path: &Path, kind: Kind) -> InsideMade {
        InsideMade {
            volume: self.volume.clone(),
            path: self.shown(path),
            kind,
        }
    }

    /// Removes a directory with all that is in it, or a file.
    pub(in crate::files) fn remove_all(&self, path: &Path) -> Result {
        Ok(self.volume.remove_dir_all(self.shown(path))?)
    }
}

impl Content for File {
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        Ok(File::next_data(self, from)?)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        Ok(File::read_at(self, buf, at)?)
    }
}

impl Sink for InsideFile {
    fn write_at(&self, bytes: &[u8], at: u64) -> Result {
        Ok(self.file.write_all_at(bytes, at)?)
    }

    fn set_len(&self, size: u64) -> Result {
        Ok(self.file.set_len(size)?)
    }
}

impl Made for InsideFile {
    fn item(&self) -> Result<Item> {
        self.made.item()
    }

    fn finish(&self, with: &Finish) -> Result<LeftOut> {
        self.made.finish(with)
    }
}

impl Made for InsideMade {
    fn item(&self) -> Result<Item> {
        let m = self.volume.symlink_metadata(&self.path)?;
        Ok(to_item(&self.volume, &m))
    }

    fn finish(&self, with: &Finish) -> Result<LeftOut> {
        let mut left_out = LeftOut::default();
        // A new owner takes `security.capability` away, and an ACL changes the mode.
        if let Some((uid, gid)) = with.owner {
            let owner = SetMetadata::new().owner(uid).group(gid).clone();
            self.volume.set_symlink_metadata(&self.path, &owner)?;
        }
        for (name, value) in &with.xattrs {
            match self.volume.set_symlink_xattr(&self.path, name, value) {
                // Of another kind of file system.
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => left_out.attributes += 1,
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
        self.volume.set_symlink_metadata(&self.path, &set)?;
        if let Some(flags) = with.flags {
            let now = self.volume.flags(&self.path)?;
            if now & KEPT_FLAGS != flags {
                let all = now & !KEPT_FLAGS | flags;
                match self.volume.set_flags(&self.path, all) {
                    // Of another kind of volume.
                    Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => left_out.flags += 1,
                    done => done?,
                }
            }
        }
        Ok(left_out)
    }
}

/// Errors of paths that lead to nothing.
const NOTHING: [i32; 3] = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP];

impl Tree for Inside {
    fn shown(&self, path: &Path) -> PathBuf {
        match path.as_os_str().is_empty() {
            true => self.base.clone(),
            false => self.base.join(path),
        }
    }

    fn item(&self, path: &Path) -> Result<Option<Item>> {
        match self.volume.symlink_metadata(self.shown(path)) {
            Ok(m) => Ok(Some(to_item(&self.volume, &m))),
            // Also behind a file, or a symbolic link.
            Err(e) if e.raw_os_error().is_some_and(|e| NOTHING.contains(&e)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn names(&self, dir: &Path) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in self.volume.read_dir(self.shown(dir))? {
            names.push(entry?.file_name().to_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn names_dirs_once(&self) -> bool {
        true
    }

    fn link(&self, path: &Path) -> Result<PathBuf> {
        Ok(self.volume.read_link(self.shown(path))?)
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>> {
        let path = self.shown(path);
        let mut all = Vec::new();
        for name in self.volume.symlink_xattrs(&path)? {
            if let Some(value) = self.volume.symlink_xattr(&path, &name)? {
                all.push((name, value));
            }
        }
        Ok(all)
    }

    fn flags(&self, path: &Path, item: &Item) -> Result<Option<u32>> {
        match item.kind {
            Kind::File | Kind::Dir => Ok(Some(self.volume.flags(self.shown(path))? & KEPT_FLAGS)),
            _ => Ok(None),
        }
    }

    fn open(&self, path: &Path, _: &Item) -> Result<Box<dyn Content>> {
        let file = self.volume.open_file(self.shown(path))?;
        file.check_map()?;
        Ok(Box::new(file))
    }

    fn make_dir(&self, path: &Path) -> Result {
        Ok(self.volume.create_dir(self.shown(path))?)
    }

    fn make_file(&self, path: &Path, _: Permissions) -> Result<Box<dyn Sink>> {
        let mut options = File::options();
        options.write(true).create_new(true);
        Ok(Box::new(InsideFile {
            file: options.open(&self.volume, self.shown(path))?,
            made: self.made(path, Kind::File),
        }))
    }

    fn make_link(&self, target: &Path, path: &Path) -> Result {
        Ok(self.volume.symlink(target, self.shown(path))?)
    }

    fn make_node(&self, path: &Path, node: Node, _: Permissions) -> Result<bool> {
        self.volume.create_node(self.shown(path), node)?;
        Ok(true)
    }

    fn hard_link(&self, path: &Path, name: &Path) -> Result {
        Ok(self.volume.hard_link(self.shown(path), self.shown(name))?)
    }

    fn hold(&self, path: &Path, what: Kind) -> Result<Box<dyn Made>> {
        Ok(Box::new(self.made(path, what)))
    }

    fn remove(&self, path: &Path) -> Result {
        Ok(self.volume.remove_file(self.shown(path))?)
    }
}
