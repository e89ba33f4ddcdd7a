//! The files of the host.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown,
    symlink,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, SeekFrom, Timespec, Timestamps, UTIME_OMIT, XattrFlags,
    lgetxattr, llistxattr, lsetxattr, major, makedev, minor, mknodat, seek, utimensat,
};
use rustix::io::Errno;
use stetfs::Node;

use super::{Content, Finish, Item, Kind, Sink, Tree, Xattr};
use crate::failure::Result;
use crate::files::failed::host;

/// The host.
pub(in crate::files) struct Host;

/// An open file and its path, for messages.
struct Open {
    file: File,
    path: PathBuf,
}

/// The longest value of an attribute, and the longest list of names, bytes.
const XATTR_MOST: usize = 64 << 10;

fn kind(m: &Metadata) -> Kind {
    let (t, device) = (m.file_type(), (major(m.rdev()), minor(m.rdev())));
    match () {
        () if t.is_dir() => Kind::Dir,
        () if t.is_symlink() => Kind::Symlink,
        () if t.is_fifo() => Kind::Node(Node::Fifo),
        () if t.is_socket() => Kind::Node(Node::Socket),
        () if t.is_char_device() => Kind::Node(Node::CharDevice(device.0, device.1)),
        () if t.is_block_device() => Kind::Node(Node::BlockDevice(device.0, device.1)),
        () => Kind::File,
    }
}

fn to_item(m: &Metadata) -> Item {
    // Not by `modified`, which refuses what it cannot show.
    let time = |seconds: i64, nanos: i64| {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let at = match seconds < 0 {
            true => UNIX_EPOCH.checked_sub(whole),
            false => UNIX_EPOCH.checked_add(whole),
        };
        at.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    };
    Item {
        kind: kind(m),
        mode: m.mode() & 0o7777,
        uid: m.uid(),
        gid: m.gid(),
        size: m.len(),
        links: m.nlink(),
        id: (m.dev(), m.ino()),
        modified: time(m.mtime(), m.mtime_nsec()),
        accessed: time(m.atime(), m.atime_nsec()),
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

/// Reads an attribute, or a list of them.
fn read_into(read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buf = vec![0; XATTR_MOST];
    let n = read(&mut buf)?;
    buf.truncate(n);
    Ok(buf)
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

impl Sink for Open {
    fn write_at(&self, bytes: &[u8], at: u64) -> Result {
        self.file
            .write_all_at(bytes, at)
            .map_err(|e| host("write", &self.path, e))
    }

    fn set_len(&self, size: u64) -> Result {
        self.file
            .set_len(size)
            .map_err(|e| host("set the size of", &self.path, e))
    }
}

impl Host {
    /// Sets an extended attribute, where that is possible.
    fn set_xattr(path: &Path, (name, value): &Xattr) -> Result {
        match lsetxattr(path, name, value, XattrFlags::empty()) {
            Err(e) if is_unsupported(e) => {
                tracing::warn!("{}: no attribute {}: {e}", path.display(), name.display());
                Ok(())
            }
            done => done.map_err(|e| host("set an attribute of", path, e)),
        }
    }
}

impl Tree for Host {
    fn item(&self, path: &Path) -> Result<Option<Item>> {
        match fs::symlink_metadata(path) {
            Ok(m) => Ok(Some(to_item(&m))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(host("look at", path, e)),
        }
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn names(&self, dir: &Path) -> Result<Vec<OsString>> {
        let failed = |e| host("read the directory", dir, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn names_dirs_once(&self) -> bool {
        false
    }

    fn link(&self, path: &Path) -> Result<PathBuf> {
        fs::read_link(path).map_err(|e| host("read the symbolic link", path, e))
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>> {
        let failed = |e: Errno| host("read the attributes of", path, e);
        let names = match read_into(|buf| llistxattr(path, buf)) {
            Err(e) if is_unsupported(e) => return Ok(Vec::new()),
            names => names.map_err(failed)?,
        };
        let mut all = Vec::new();
        for name in names.split(|b| *b == 0).filter(|name| !name.is_empty()) {
            let name = OsString::from_vec(name.to_vec());
            match read_into(|buf| lgetxattr(path, &name, buf)) {
                // Gone, or not for us.
                Err(e) if e == Errno::NODATA || is_unsupported(e) => {}
                value => all.push((name, value.map_err(failed)?)),
            }
        }
        Ok(all)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Content>> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(path).map_err(|e| host("open", path, e))?;
        let path = path.to_owned();
        Ok(Box::new(Open { file, path }))
    }

    fn make_dir(&self, path: &Path) -> Result {
        // Nobody else's until it is whole.
        let made = fs::DirBuilder::new().mode(0o700).create(path);
        made.map_err(|e| host("make the directory", path, e))
    }

    fn make_file(&self, path: &Path) -> Result<Box<dyn Sink>> {
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(|e| host("make", path, e))?;
        let path = path.to_owned();
        Ok(Box::new(Open { file, path }))
    }

    fn make_link(&self, target: &Path, path: &Path) -> Result {
        symlink(target, path).map_err(|e| host("make the symbolic link", path, e))
    }

    fn make_node(&self, path: &Path, node: Node) -> Result<bool> {
        let (kind, dev) = match node {
            Node::Fifo => (FileType::Fifo, 0),
            Node::Socket => (FileType::Socket, 0),
            Node::CharDevice(a, b) => (FileType::CharacterDevice, makedev(a, b)),
            Node::BlockDevice(a, b) => (FileType::BlockDevice, makedev(a, b)),
        };
        match mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, dev) {
            Err(Errno::PERM) => Ok(false),
            made => made.map(|()| true).map_err(|e| host("make", path, e)),
        }
    }

    fn hard_link(&self, path: &Path, name: &Path) -> Result {
        fs::hard_link(path, name).map_err(|e| host("link", name, e))
    }

    fn finish(&self, path: &Path, kind: Kind, with: &Finish) -> Result {
        if let Some((uid, gid)) = with.owner {
            match lchown(path, Some(uid), Some(gid)) {
                // Only the administrator gives files away.
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {}
                done => done.map_err(|e| host("give away", path, e))?,
            }
        }
        for xattr in &with.xattrs {
            Host::set_xattr(path, xattr)?;
        }
        if let (Some(mode), true) = (with.mode, kind != Kind::Symlink) {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(path, mode).map_err(|e| host("change", path, e))?;
        }
        if with.modified.is_some() || with.accessed.is_some() {
            let times = Timestamps {
                last_access: timespec(with.accessed),
                last_modification: timespec(with.modified),
            };
            let done = utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
            done.map_err(|e| host("set the times of", path, e))?;
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result {
        fs::remove_file(path).map_err(|e| host("remove", path, e))
    }

    fn remove_all(&self, path: &Path) -> Result {
        let done = match fs::symlink_metadata(path) {
            Ok(m) if m.is_dir() => fs::remove_dir_all(path),
            _ => fs::remove_file(path),
        };
        done.map_err(|e| host("remove", path, e))
    }
}
