//! Directories of the host, accessed through descriptors.
//!
//! Other users may change a tree while it is copied. Each call resolves a path anew, and a symbolic
//! link put in place meanwhile would lead it elsewhere. So every access names a single name in an
//! open directory, no link is followed, and a file to be changed is held by a descriptor.
//! (openat2(2) does not help: Linux 5.4 lacks it, and paths of any length must work.)

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timestamps, Uid, XattrFlags, chmodat,
    chownat, fgetxattr, flistxattr, getxattr, linkat, listxattr, mkdirat, mknodat, openat,
    readlinkat, setxattr, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, Result};

use super::Xattr;
use super::host_item::is_unsupported;

/// The longest value of an attribute, and the longest list of names, bytes.
const XATTR_MOST: usize = 64 << 10;

/// An open directory.
pub(super) struct HostDir(OwnedFd);

/// A file held by a descriptor, whatever becomes of its name.
pub(super) struct Held(OwnedFd);

/// Flags of a descriptor that only names a file.
const NAMES: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl HostDir {
    /// The directory at `path`. Symbolic links are followed, because the user named the path.
    pub(super) fn open(path: &Path) -> Result<HostDir> {
        openat(CWD, path, NAMES | OFlags::DIRECTORY, Mode::empty()).map(HostDir)
    }

    /// The directory `name` in this one.
    ///
    /// # Errors
    /// ENOTDIR also for a symbolic link to one.
    pub(super) fn dir(&self, name: &OsStr) -> Result<HostDir> {
        let flags = NAMES | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        openat(&self.0, name, flags, Mode::empty()).map(HostDir)
    }

    /// Attributes of `name`; a symbolic link is not followed.
    pub(super) fn stat(&self, name: &OsStr) -> Result<Stat> {
        statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The names in the directory `name`.
    fn names(&self, name: &OsStr) -> Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = openat(&self.0, name, flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(dir)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// The names in the directory `name`, in the order of their bytes.
    pub(super) fn sorted_names(&self, name: &OsStr) -> Result<Vec<OsString>> {
        let mut names = self.names(name)?;
        names.sort_unstable();
        Ok(names)
    }

    /// The target of the symbolic link `name`.
    pub(super) fn link(&self, name: &OsStr) -> Result<PathBuf> {
        let target = readlinkat(&self.0, name, Vec::new())?.into_bytes();
        Ok(OsString::from_vec(target).into())
    }

    /// Opens `name` for reading. The call does not wait, should it be a pipe by now.
    pub(super) fn open_file(&self, name: &OsStr) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        openat(&self.0, name, flags | OFlags::CLOEXEC, Mode::empty()).map(File::from)
    }

    /// Creates a file, which must not exist; the umask applies to its mode.
    pub(super) fn make_file(&self, name: &OsStr, mode: Mode) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        openat(&self.0, name, flags | OFlags::CLOEXEC, mode).map(File::from)
    }

    /// Creates a directory without access for other users until it is complete.
    pub(super) fn make_dir(&self, name: &OsStr) -> Result<()> {
        mkdirat(&self.0, name, Mode::RWXU)
    }

    /// Makes a symbolic link.
    pub(super) fn make_link(&self, target: &Path, name: &OsStr) -> Result<()> {
        symlinkat(target, &self.0, name)
    }

    /// Creates a pipe, socket or device; the umask applies to its mode.
    pub(super) fn make_node(
        &self,
        name: &OsStr,
        (kind, device): (FileType, u64),
        mode: Mode,
    ) -> Result<()> {
        mknodat(&self.0, name, kind, mode, device)
    }

    /// Gives the file `of` in the directory `from` another name here.
    pub(super) fn hard_link(&self, from: &HostDir, of: &OsStr, name: &OsStr) -> Result<()> {
        linkat(&from.0, of, &self.0, name, AtFlags::empty())
    }

    /// Removes a file that is not a directory.
    pub(super) fn remove(&self, name: &OsStr) -> Result<()> {
        unlinkat(&self.0, name, AtFlags::empty())
    }

    /// Holds the file `name`; a symbolic link is not followed.
    pub(super) fn hold(&self, name: &OsStr) -> Result<Held> {
        openat(&self.0, name, NAMES | OFlags::NOFOLLOW, Mode::empty()).map(Held)
    }
}

/// Bytes that most lists and values of attributes take at most.
const XATTR_USUAL: usize = 256;

/// Reads an attribute, or a list of them.
fn read_into(read: impl Fn(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut usual = [0; XATTR_USUAL];
    match read(&mut usual) {
        Err(Errno::RANGE) => {}
        n => return Ok(usual.get(..n?).unwrap_or_default().to_vec()),
    }
    let mut buf = vec![0; XATTR_MOST];
    let n = read(&mut buf)?;
    buf.truncate(n);
    Ok(buf)
}

/// All attributes, by their names, each followed by a zero, and the way to a value.
fn all_xattrs(
    names: Result<Vec<u8>>,
    value: impl Fn(&OsStr) -> Result<Vec<u8>>,
) -> Result<Vec<Xattr>> {
    let names = match names {
        Err(e) if is_unsupported(e) => return Ok(Vec::new()),
        names => names?,
    };
    let mut all = Vec::new();
    for name in names.split(|b| *b == 0).filter(|name| !name.is_empty()) {
        let name = OsString::from_vec(name.to_vec());
        match value(&name) {
            // The attribute is gone, or not readable to this user.
            Err(e) if e == Errno::NODATA || is_unsupported(e) => {}
            value => all.push((name, value?)),
        }
    }
    Ok(all)
}

/// The extended attributes of an open file.
pub(super) fn xattrs_of(file: &File) -> Result<Vec<Xattr>> {
    let names = read_into(|buf| flistxattr(file, buf));
    all_xattrs(names, |name| read_into(|buf| fgetxattr(file, name, buf)))
}

impl Held {
    /// Holds an open file.
    pub(super) fn of(file: &File) -> io::Result<Held> {
        Ok(Held(file.try_clone()?.into()))
    }

    /// Opens it for reading; the call does not wait.
    pub(super) fn open(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        openat(CWD, self.path(), flags, Mode::empty())
    }

    pub(super) fn stat(&self) -> Result<Stat> {
        statat(&self.0, "", AtFlags::EMPTY_PATH)
    }

    /// A path that the kernel resolves to exactly this file, for calls that do not accept a
    /// descriptor of a symbolic link, device or pipe.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    pub(super) fn set_owner(&self, uid: Option<u32>, gid: u32) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), Some(Gid::from_raw(gid)));
        chownat(&self.0, "", uid, gid, AtFlags::EMPTY_PATH)
    }

    /// Sets the 12 mode bits; not for symbolic links.
    pub(super) fn set_mode(&self, mode: u32) -> Result<()> {
        chmodat(
            CWD,
            self.path(),
            Mode::from_bits_retain(mode),
            AtFlags::empty(),
        )
    }

    pub(super) fn set_times(&self, times: &Timestamps) -> Result<()> {
        utimensat(CWD, self.path(), times, AtFlags::empty())
    }

    pub(super) fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<()> {
        setxattr(self.path(), name, value, XattrFlags::empty())
    }

    /// The extended attributes.
    pub(super) fn xattrs(&self) -> Result<Vec<Xattr>> {
        let path = self.path();
        let names = read_into(|buf| listxattr(&path, buf));
        all_xattrs(names, |name| read_into(|buf| getxattr(&path, name, buf)))
    }
}
