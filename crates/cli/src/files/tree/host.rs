//! The files of the host.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{FileType, Mode, SeekFrom, ioctl_getflags, makedev, seek};
use rustix::io::Errno;
use rustix::process::{Resource, umask};
use stetfs::Node;

use super::host_dir::{Held, HostDir};
use super::host_item::{has_no_flags, id, is_unsupported, kind, to_item};
use super::host_made::HostMade;
use super::way::Way;
use super::{Content, Finish, Item, KEPT_FLAGS, Kind, Made, Named, Permissions, Sink, Tree, Xattr};
use crate::failure::{Code, Failure, Result};
use crate::files::failed::host;
use crate::files::meter::Meter;

/// The files below a directory of the host.
///
/// A directory that was found stays open while paths lead through it: what is below it is there,
/// whatever others make of its name meanwhile.
pub(in crate::files) struct Host {
    way: RefCell<Way<HostDir>>,
    /// The path of the base, for messages.
    path: PathBuf,
    /// Permissions that something new does not get.
    umask: u32,
}

/// An open file and its path, for messages.
struct Open {
    file: File,
    path: PathBuf,
}

/// A file that is made.
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
            // A file system that does not tell.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok((from < size).then_some(from..size)),
            start => start.map_err(failed)?,
        };
        let end = match seek(&self.file, SeekFrom::Hole(start)) {
            // Cut short just now.
            Err(Errno::NXIO) => return Ok(None),
            end => end.map_err(failed)?,
        };
        Ok(Some(start..end))
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        let read = match self.file.read_at(buf, at) {
            // A pipe has no places: what comes is next.
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

/// Bits of a file, pipe or device as it is made.
fn made_with(permissions: Permissions) -> Mode {
    match permissions {
        Permissions::New(mode) => Mode::from_bits_retain(mode & 0o777),
        // Nobody else's until it is whole.
        Permissions::Kept(_) => Mode::RUSR | Mode::WUSR,
    }
}

impl Host {
    /// The files below `path`; symbolic links on the way there are followed. To be made before
    /// there are threads.
    ///
    /// # Errors
    /// It is no directory, or not for us.
    pub(in crate::files) fn below(path: &Path) -> Result<Host> {
        let base = HostDir::open(path).map_err(|e| host("open the directory", path, e))?;
        // A directory is open for each level of the tree.
        stetfs_fuse::raise(Resource::Nofile);
        let mask = umask(Mode::RWXG | Mode::RWXO);
        umask(mask);
        Ok(Host {
            way: RefCell::new(Way::new(base)),
            path: path.to_owned(),
            umask: mask.bits(),
        })
    }

    /// The directory that holds what is at `path`, and its name there.
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

    /// The end of `path`, symbolic links followed. A pipe is waited for, as of cp(1): it was
    /// named.
    ///
    /// # Errors
    /// It is not there, or not for us.
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

    /// Does something in the directory that holds what is at `path`.
    fn with<T>(
        &self,
        path: &Path,
        doing: &str,
        op: impl FnOnce(&HostDir, &OsStr) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let (dir, name) = self.at(path)?;
        op(&dir, name).map_err(|e| host(doing, &self.shown(path), e))
    }

    /// Something else is there than was a moment ago.
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
        let mut names = self.with(dir, "read the directory", HostDir::names)?;
        names.sort_unstable();
        Ok(names)
    }

    fn names_dirs_once(&self) -> bool {
        false
    }

    fn link(&self, path: &Path) -> Result<PathBuf> {
        self.with(path, "read the symbolic link", HostDir::link)
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>> {
        let failed = |e: Errno| host("read the attributes of", &self.shown(path), e);
        let held = self.with(path, "open", HostDir::hold)?;
        let names = match held.xattr_names() {
            Err(e) if is_unsupported(e) => return Ok(Vec::new()),
            names => names.map_err(failed)?,
        };
        let mut all = Vec::new();
        for name in names.split(|b| *b == 0).filter(|name| !name.is_empty()) {
            let name = OsString::from_vec(name.to_vec());
            match held.xattr(&name) {
                // Gone, or not for us.
                Err(e) if e == Errno::NODATA || is_unsupported(e) => {}
                value => all.push((name, value.map_err(failed)?)),
            }
        }
        Ok(all)
    }

    fn flags(&self, path: &Path, item: &Item) -> Result<Option<u32>> {
        if !matches!(item.kind, Kind::File | Kind::Dir) {
            return Ok(None);
        }
        let file = self.with(path, "open", HostDir::open_file)?;
        match ioctl_getflags(&file) {
            Ok(flags) => Ok(Some(flags.bits() & KEPT_FLAGS)),
            Err(e) if is_unsupported(e) || has_no_flags(e) => Ok(None),
            Err(e) => Err(host("read the flags of", &self.shown(path), e)),
        }
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
        // Another name of it would be of a file that somebody else put here.
        if kind(&m) != what || (what != Kind::Dir && m.st_nlink != 1) {
            return Err(self.replaced(path));
        }
        Ok(Box::new(made))
    }

    fn remove(&self, path: &Path) -> Result {
        self.with(path, "remove", HostDir::remove)
    }
}
