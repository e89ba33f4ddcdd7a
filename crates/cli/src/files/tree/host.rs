//! The files of the host.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    FileType, Mode, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT, major, makedev, minor, seek,
};
use rustix::io::Errno;
use rustix::process::{Resource, umask};
use stetfs::Node;

use super::host_dir::{Held, HostDir};
use super::{Content, Finish, Item, Kind, Made, Permissions, Sink, Tree, Xattr, needs_owner, tame};
use crate::failure::{Code, Failure, Result};
use crate::files::failed::host;
use crate::files::left_out::LeftOut;

/// Set-group-id.
const SET_GID: u32 = 0o2000;

/// The files below a directory of the host.
///
/// A directory that was found stays open while paths lead through it: what is below it is there,
/// whatever others make of its name meanwhile.
pub(in crate::files) struct Host {
    base: Rc<HostDir>,
    /// Its path, for messages.
    path: PathBuf,
    /// The directories on the way to what was named last, by name, below each other.
    way: RefCell<Vec<(OsString, Rc<HostDir>)>>,
    /// Permissions that something new does not get.
    umask: u32,
}

/// An open file and its path, for messages.
struct Open {
    file: File,
    path: PathBuf,
}

/// Something that was made, or a directory that was there.
struct HostMade {
    held: Held,
    path: PathBuf,
    kind: Kind,
    umask: u32,
}

/// A file that is made.
struct HostFile {
    open: Open,
    made: HostMade,
}

fn kind(m: &Stat) -> Kind {
    let device = (major(m.st_rdev), minor(m.st_rdev));
    match FileType::from_raw_mode(m.st_mode) {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Node(Node::Fifo),
        FileType::Socket => Kind::Node(Node::Socket),
        FileType::CharacterDevice => Kind::Node(Node::CharDevice(device.0, device.1)),
        FileType::BlockDevice => Kind::Node(Node::BlockDevice(device.0, device.1)),
        _ => Kind::File,
    }
}

fn id(m: &Stat) -> (u64, u64) {
    (m.st_dev, m.st_ino)
}

// The number of links is narrower on some machines.
#[allow(clippy::useless_conversion)]
fn to_item(m: &Stat) -> Item {
    let time = |seconds: i64, nanos: u64| {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let at = match seconds < 0 {
            true => UNIX_EPOCH.checked_sub(whole),
            false => UNIX_EPOCH.checked_add(whole),
        };
        at.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(nanos)
    };
    Item {
        kind: kind(m),
        mode: m.st_mode & 0o7777,
        uid: m.st_uid,
        gid: m.st_gid,
        size: u64::try_from(m.st_size).unwrap_or(0),
        links: m.st_nlink.into(),
        id: id(m),
        modified: time(m.st_mtime, m.st_mtime_nsec),
        accessed: time(m.st_atime, m.st_atime_nsec),
    }
}

/// For utimensat.
fn timespec(time: Option<SystemTime>) -> Timespec {
    let Some(time) = time else {
        return Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
    };
    let seconds = |d: Duration| i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: seconds(after),
            tv_nsec: after.subsec_nanos().into(),
        },
        Err(e) => {
            let before = e.duration();
            let nanos = i64::from(before.subsec_nanos());
            let borrowed = i64::from(nanos > 0);
            Timespec {
                tv_sec: -seconds(before) - borrowed,
                tv_nsec: borrowed * 1_000_000_000 - nanos,
            }
        }
    }
}

/// What a file system without such a thing answers, or who may not.
fn is_unsupported(e: Errno) -> bool {
    matches!(e, Errno::OPNOTSUPP | Errno::PERM | Errno::NOSYS)
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
        self.file
            .read_at(buf, at)
            .map_err(|e| host("read", &self.path, e))
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
    fn item(&self) -> Result<Item> {
        self.made.item()
    }

    fn finish(&self, with: &Finish) -> Result<LeftOut> {
        self.made.finish(with)
    }
}

impl Made for HostMade {
    fn item(&self) -> Result<Item> {
        Ok(to_item(&self.stat()?))
    }

    fn finish(&self, with: &Finish) -> Result<LeftOut> {
        let mut left_out = LeftOut::default();
        let owned = match with.owner {
            None => false,
            Some(owner) => self.give_away(owner)?,
        };
        left_out.owners += u64::from(with.owner.is_some() && !owned);
        for xattr in &with.xattrs {
            let set = (owned || !needs_owner(&xattr.0)) && self.set_xattr(xattr)?;
            left_out.attributes += u64::from(!set);
        }
        let mode = match with.permissions {
            None => None,
            Some(_) if self.kind == Kind::Symlink => None,
            Some(Permissions::New(mode)) => {
                left_out.bits += u64::from(mode != tame(self.kind, mode));
                self.new_mode(mode)?
            }
            Some(Permissions::Kept(mode)) if owned => Some(mode),
            Some(Permissions::Kept(mode)) => {
                left_out.bits += u64::from(mode != tame(self.kind, mode));
                Some(tame(self.kind, mode))
            }
        };
        if let Some(mode) = mode {
            let done = self.held.set_mode(mode);
            done.map_err(|e| host("change", &self.path, e))?;
        }
        if with.modified.is_some() || with.accessed.is_some() {
            let times = Timestamps {
                last_access: timespec(with.accessed),
                last_modification: timespec(with.modified),
            };
            let done = self.held.set_times(&times);
            done.map_err(|e| host("set the times of", &self.path, e))?;
        }
        Ok(left_out)
    }
}

impl HostMade {
    fn stat(&self) -> Result<Stat> {
        self.held.stat().map_err(|e| host("look at", &self.path, e))
    }

    /// Gives it away; answers whether it is the new owner's. As of cp(1), who may not give files
    /// away gives them the group at least.
    fn give_away(&self, (uid, gid): (u32, u32)) -> Result<bool> {
        match self.held.set_owner(Some(uid), gid) {
            Err(Errno::PERM | Errno::INVAL) => {
                // Only the administrator, and who is in the group.
                let _ = self.held.set_owner(None, gid);
                let is = self.stat()?;
                Ok((is.st_uid, is.st_gid) == (uid, gid))
            }
            done => done
                .map(|()| true)
                .map_err(|e| host("give away", &self.path, e)),
        }
    }

    /// Sets an extended attribute; answers whether that is possible.
    fn set_xattr(&self, (name, value): &Xattr) -> Result<bool> {
        match self.held.set_xattr(name, value) {
            Err(e) if is_unsupported(e) => Ok(false),
            done => done
                .map(|()| true)
                .map_err(|e| host("set an attribute of", &self.path, e)),
        }
    }

    /// The mode of something new that was not made with it: of a directory. It keeps the group of
    /// the one that it is in, if that does (set-group-id), and may be sticky, as of cp(1).
    fn new_mode(&self, mode: u32) -> Result<Option<u32>> {
        if self.kind != Kind::Dir {
            return Ok(None);
        }
        let inherited = self.stat()?.st_mode & SET_GID;
        Ok(Some((tame(self.kind, mode) & !self.umask) | inherited))
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
            base: Rc::new(base),
            path: path.to_owned(),
            way: RefCell::default(),
            umask: mask.bits(),
        })
    }

    /// The directory that holds what is at `path`, and its name there.
    fn at<'p>(&self, path: &'p Path) -> Result<(Rc<HostDir>, &'p OsStr)> {
        let Some(name) = path.file_name() else {
            return Ok((Rc::clone(&self.base), OsStr::new(".")));
        };
        let mut way = self.way.borrow_mut();
        let mut at = Rc::clone(&self.base);
        let above = path.parent().into_iter().flat_map(Path::iter);
        for (known, part) in above.enumerate() {
            if way.get(known).is_none_or(|(name, _)| name != part) {
                way.truncate(known);
                let dir = at
                    .dir(part)
                    .map_err(|e| host("go to the directory of", &self.shown(path), e))?;
                way.push((part.to_owned(), Rc::new(dir)));
            }
            if let Some((_, dir)) = way.get(known) {
                at = Rc::clone(dir);
            }
        }
        Ok((at, name))
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
                path: path.clone(),
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
            path: self.shown(path),
            kind: what,
            umask: self.umask,
        };
        let m = made.stat()?;
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
