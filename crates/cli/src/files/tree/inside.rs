//! The files of a volume.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stetfs::{File, Metadata, Node, SetMetadata, Volume};

use super::{Content, Finish, Item, Kind, Sink, Tree, Xattr};
use crate::failure::Result;

/// A volume.
pub(in crate::files) struct Inside(pub(in crate::files) Volume);

impl Inside {
    fn to_item(&self, m: &Metadata) -> Item {
        Item {
            kind: Kind::of(m),
            mode: m.mode() & 0o7777,
            uid: m.uid(),
            gid: m.gid(),
            size: m.len(),
            links: m.nlink(),
            // No other volume that is open has its address.
            id: (Arc::as_ptr(self.0.low()) as u64, m.ino()),
            modified: m.modified(),
            accessed: m.accessed(),
        }
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

impl Sink for File {
    fn write_at(&self, bytes: &[u8], at: u64) -> Result {
        Ok(self.write_all_at(bytes, at)?)
    }

    fn set_len(&self, size: u64) -> Result {
        Ok(File::set_len(self, size)?)
    }
}

impl Tree for Inside {
    fn item(&self, path: &Path) -> Result<Option<Item>> {
        match self.0.symlink_metadata(path) {
            Ok(m) => Ok(Some(self.to_item(&m))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.0.metadata(path).is_ok_and(|m| m.is_dir())
    }

    fn names(&self, dir: &Path) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in self.0.read_dir(dir)? {
            names.push(entry?.file_name().to_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn names_dirs_once(&self) -> bool {
        true
    }

    fn link(&self, path: &Path) -> Result<PathBuf> {
        Ok(self.0.read_link(path)?)
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>> {
        let mut all = Vec::new();
        for name in self.0.symlink_xattrs(path)? {
            if let Some(value) = self.0.symlink_xattr(path, &name)? {
                all.push((name, value));
            }
        }
        Ok(all)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Content>> {
        let file = self.0.open_file(path)?;
        file.check_map()?;
        Ok(Box::new(file))
    }

    fn make_dir(&self, path: &Path) -> Result {
        Ok(self.0.create_dir(path)?)
    }

    fn make_file(&self, path: &Path) -> Result<Box<dyn Sink>> {
        let mut options = File::options();
        options.write(true).create_new(true);
        Ok(Box::new(options.open(&self.0, path)?))
    }

    fn make_link(&self, target: &Path, path: &Path) -> Result {
        Ok(self.0.symlink(target, path)?)
    }

    fn make_node(&self, path: &Path, node: Node) -> Result<bool> {
        self.0.create_node(path, node)?;
        Ok(true)
    }

    fn hard_link(&self, path: &Path, name: &Path) -> Result {
        Ok(self.0.hard_link(path, name)?)
    }

    fn finish(&self, path: &Path, kind: Kind, with: &Finish) -> Result {
        for (name, value) in &with.xattrs {
            match self.0.set_symlink_xattr(path, name, value) {
                // Of another kind of file system.
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    tracing::warn!("{e}: {}", name.display());
                }
                done => done?,
            }
        }
        let mut set = SetMetadata::new();
        if let Some((uid, gid)) = with.owner {
            set.owner(uid).group(gid);
        }
        if let (Some(mode), true) = (with.mode, kind != Kind::Symlink) {
            set.mode(mode);
        }
        if let Some(time) = with.modified {
            set.modified(time);
        }
        if let Some(time) = with.accessed {
            set.accessed(time);
        }
        Ok(self.0.set_symlink_metadata(path, &set)?)
    }

    fn remove(&self, path: &Path) -> Result {
        Ok(self.0.remove_file(path)?)
    }

    fn remove_all(&self, path: &Path) -> Result {
        Ok(self.0.remove_dir_all(path)?)
    }
}
