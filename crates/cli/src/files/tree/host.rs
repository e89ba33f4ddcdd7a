//! The files of the host as a [`Tree`].

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{FileType, Mode, SeekFrom, makedev, seek};
use rustix::io::Errno;
use rustix::process::{Resource, umask};
use stetfs::Node;

use super::host_dir::{Held, HostDir};
use super::host_item::{flags_of, id, kind, to_item};
use super::host_made::HostMade;
use super::way::Way;
use super::{Content, Finish, Followed, Item, Kind, Made, Named, Permissions, Sink, Tree, Xattr};
use crate::failure::{Code, Failure, Result};
use crate::files::failed::host;
use crate::files::meter::Meter;
use crate::files::place::split;

/// The files below a directory of the host.
///
/// A directory stays open while paths lead through it: files below it are found there, whatever
/// other processes do to its name meanwhile.
pub(in crate::files) struct Host {
    way: RefCell<Way<HostDir>>,
    /// The path of the base, for messages.
    path: PathBuf,
    /// The bits that the mode of a new file does not get.
    umask: u32,
}

/// An open file and its path, for messages.
struct Open {
    file: File,
    path: PathBuf,
}

/// A file that was created.
struct HostFile {
    open: Open,
    made: HostMade,
}

impl Content for Open {
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        let failed = |e: Errno| host("look for data in", &self.path, e);
        let size = self
            .file
            .metadata()
            .map_err(|e| host("look at", &self.path, e))?
            .len();
        let start = match seek(&self.file, SeekFrom::Data(from)) {
            Err(Errno::NXIO) => return Ok(None),
            // A pipe: it is read to its end.
            Err(Errno::SPIPE) => return Ok(None),
            // A file system that does not report holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok((from < size).then_some(from..size)),
            start => start.map_err(failed)?,
        };
        let end = match seek(&self.file, SeekFrom::Hole(start)) {
            // The file was truncated just now.
            Err(Errno::NXIO) => return Ok(None),
            end => end.map_err(failed)?,
        };
        Ok(Some(start..end))
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        let read = match self.file.read_at(buf, at) {
            // A pipe has no offsets: reads are in sequence.
            Err(e) if e.raw_os_error() == Some(Errno::SPIPE.raw_os_error()) => {
                (&self.file).read(buf)
            }
            read => read,
        };
        read.map_err(|e| host("read", &self.path, e))
    }
}

impl Sink for HostFile {
    fn write_at(&self, bytes: &[u8], at: u64) -> Result {
        let Open { file, path } = &self.open;
        file.write_all_at(bytes, at)
            .map_err(|e| host("write", path, e))
    }

    fn set_len(&self, size: u64) -> Result {
        let Open { file, path } = &self.open;
        file.set_len(size)
            .map_err(|e| host("set the size of", path, e))
    }
}

impl Made for HostFile {
    fn item(&self, path: &Path) -> Result<Item> {
        self.made.item(path)
    }

    fn finish(&self, path: &Path, with: &Finish, meter: &mut Meter) -> Result {
        self.made.finish(path, with, meter)
    }
}

/// The mode with which a file, pipe or device is created.
fn made_with(permissions: Permissions) -> Mode {
    match permissions {
        Permissions::New(mode) => Mode::from_bits_retain(mode & 0o777),
        // Other users have no access until the file is complete.
        Permissions::Kept(_) => Mode::RUSR | Mode::WUSR,
    }
}

/// The umask of this process. To be called before there are threads.
pub(in crate::files) fn host_umask() -> u32 {
    let mask = umask(Mode::RWXG | Mode::RWXO);
    umask(mask);
    mask.bits()
}

impl Host {
    /// The files below `path`; symbolic links in `path` are followed. To be called before there are
    /// threads.
    ///
    /// # Errors
    /// It is not a directory, or this user may not read it.
    pub(in crate::files) fn below(path: &Path) -> Result<Host> {
        let base = HostDir::open(path).map_err(|e| host("open the directory", path, e))?;
        // Each level of the tree keeps a directory open.
        stetfs_fuse::raise(Resource::Nofile);
        Ok(Host {
            way: RefCell::new(Way::new(base)),
            path: path.to_owned(),
            umask: host_umask(),
        })
    }

    /// The directory that holds the file at `path`, and its name there.
    fn at<'p>(&self, path: &'p Path) -> Result<(Rc<HostDir>, &'p OsStr)> {
        let mut way = self.way.borrow_mut();
        let Some(name) = path.file_name() else {
            return Ok((Rc::clone(way.base()), OsStr::new(".")));
        };
        let above = path.parent().unwrap_or(Path::new(""));
        let dir = way.dir(above, |dir, name, _| dir.dir(name));
        let dir = dir.map_err(|e| host("go to the directory of", &self.shown(path), e))?;
        Ok((dir, name))
    }

    /// The file at the end of `path`, with symbolic links followed. As with cp(1), opening a named
    /// pipe waits for its writer.
    ///
    /// # Errors
    /// It does not exist, or this user may not read it.
    pub(in crate::files) fn named(path: &Path) -> Result<Named> {
        let file = File::open(path).map_err(|e| host("open", path, e))?;
        let m = rustix::fs::fstat(&file).map_err(|e| host("look at", path, e))?;
        let path = path.to_owned();
        Ok(Named {
            item: Item {
                kind: Kind::File,
                ..to_item(&m)
            },
            content: Some(Box::new(Open { file, path })),
        })
    }

    /// The file to which the symbolic link `path` leads at last.
    ///
    /// # Errors
    /// The link is broken.
    pub(in crate::files) fn followed(path: &Path) -> Result<Followed> {
        let failed = |e| host("follow", path, e);
        let target = path.canonicalize().map_err(failed)?;
        let is_dir = target.is_dir();
        let (base, name) = match is_dir {
            true => (&*target, None),
            false => split(&target),
        };
        let tree = Box::new(Host::below(base)?);
        let path = PathBuf::from(name.unwrap_or_default());
        let item = tree.item(&path)?.ok_or_else(|| tree.replaced(&path))?;
        Ok(Followed { tree, path, item })
    }

    /// Calls `op` with the directory that holds the file at `path` and its name there.
    fn with<T>(
        &self,
        path: &Path,
        doing: &str,
        op: impl FnOnce(&HostDir, &OsStr) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let (dir, name) = self.at(path)?;
        op(&dir, name).map_err(|e| host(doing, &self.shown(path), e))
    }

    /// The failure for a file that was replaced since it was looked at.
    fn replaced(&self, path: &Path) -> Failure {
        let message = format!(
            "{} was replaced while it was copied",
            self.shown(path).display()
        );
        Failure::new(Code::Io, message)
    }
}

impl Tree for Host {
    fn shown(&self, path: &Path) -> PathBuf {
        match path.as_os_str().is_empty() {
            true => self.path.clone(),
            false => self.path.join(path),
        }
    }

    fn item(&self, path: &Path) -> Result<Option<Item>> {
        let (dir, name) = self.at(path)?;
        match dir.stat(name) {
            Ok(m) => Ok(Some(to_item(&m))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(host("look at", &self.shown(path), e)),
        }
    }

    fn names(&self, dir: &Path) -> Result<Vec<OsString>> {
        self.with(dir, "read the directory", HostDir::sorted_names)
    }

    fn names_dirs_once(&self) -> bool {
        false
    }

    fn link(&self, path: &Path) -> Result<PathBuf> {
        self.with(path, "read the symbolic link", HostDir::link)
    }

    fn follow(&self, path: &Path) -> Result<Followed> {
        Host::followed(&self.shown(path))
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>> {
        let held = self.with(path, "open", HostDir::hold)?;
        let all = held.xattrs();
        all.map_err(|e| host("read the attributes of", &self.shown(path), e))
    }

    fn flags(&self, path: &Path, item: &Item) -> Result<Option<u32>> {
        if !matches!(item.kind, Kind::File | Kind::Dir) {
            return Ok(None);
        }
        let file = self.with(path, "open", HostDir::open_file)?;
        flags_of(&file).map_err(|e| host("read the flags of", &self.shown(path), e))
    }

    fn open(&self, path: &Path, item: &Item) -> Result<Box<dyn Content>> {
        let file = self.with(path, "open", HostDir::open_file)?;
        let m = rustix::fs::fstat(&file).map_err(|e| host("look at", &self.shown(path), e))?;
        if (kind(&m), id(&m)) != (Kind::File, item.id) {
            return Err(self.replaced(path));
        }
        let path = self.shown(path);
        Ok(Box::new(Open { file, path }))
    }

    fn make_dir(&self, path: &Path) -> Result {
        self.with(path, "make the directory", HostDir::make_dir)
    }

    fn make_file(&self, path: &Path, permissions: Permissions) -> Result<Box<dyn Sink>> {
        let mode = made_with(permissions);
        let file = self.with(path, "make", |dir, name| dir.make_file(name, mode))?;
        let path = self.shown(path);
        let held = Held::of(&file).map_err(|e| host("open", &path, e))?;
        Ok(Box::new(HostFile {
            made: HostMade {
                held,
                kind: Kind::File,
                umask: self.umask,
            },
            open: Open { file, path },
        }))
    }

    fn make_link(&self, target: &Path, path: &Path) -> Result {
        self.with(path, "make the symbolic link", |dir, name| {
            dir.make_link(target, name)
        })
    }

    fn make_node(&self, path: &Path, node: Node, permissions: Permissions) -> Result<bool> {
        let what = match node {
            Node::Fifo => (FileType::Fifo, 0),
            Node::Socket => (FileType::Socket, 0),
            Node::CharDevice(a, b) => (FileType::CharacterDevice, makedev(a, b)),
            Node::BlockDevice(a, b) => (FileType::BlockDevice, makedev(a, b)),
        };
        let mode = made_with(permissions);
        self.with(path, "make", |dir, name| {
            match dir.make_node(name, what, mode) {
                Err(Errno::PERM) => Ok(false),
                made => made.map(|()| true),
            }
        })
    }

    fn hard_link(&self, path: &Path, name: &Path) -> Result {
        let (from, of) = self.at(path)?;
        self.with(name, "link", |dir, name| dir.hard_link(&from, of, name))
    }

    fn hold(&self, path: &Path, what: Kind) -> Result<Box<dyn Made>> {
        let held = self.with(path, "open", HostDir::hold)?;
        let made = HostMade {
            held,
            kind: what,
            umask: self.umask,
        };
        let m = made.stat(&self.shown(path))?;
        // A new file has one name. With more it is another file, which another process put here.
        if kind(&m) != what || (what != Kind::Dir && m.st_nlink != 1) {
            return Err(self.replaced(path));
        }
        Ok(Box::new(made))
    }

    fn remove(&self, path: &Path) -> Result {
        self.with(path, "remove", HostDir::remove)
    }
}
