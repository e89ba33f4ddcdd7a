//! Creating, moving and removing names.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::makedev;
use rustix::io::Errno;

use crate::dir;
use crate::error::{Error, Result};
use crate::low::{self, Attr, Fs, FsError, Ino, RenameFlags};
use crate::resolve::{Found, Last, Place, Start, find, place};
use crate::shared::{errno, is};
use crate::volume::Volume;
use stetfs_ext4::Ctx;

/// Mode of a new directory, before the umask.
const DIR_MODE: u32 = 0o777;
/// Mode of a new pipe, socket or device, before the umask.
const NODE_MODE: u32 = 0o666;

/// A file that is neither a regular file nor a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device, by its major and minor number.
    CharDevice(u32, u32),
    /// A block device, by its major and minor number.
    BlockDevice(u32, u32),
}

impl Node {
    /// Type with permissions, and the device number.
    fn mode_and_rdev(self) -> (u32, u64) {
        use rustix::fs::FileType as Type;
        let (kind, rdev) = match self {
            Node::Fifo => (Type::Fifo, 0),
            Node::Socket => (Type::Socket, 0),
            Node::CharDevice(major, minor) => (Type::CharacterDevice, makedev(major, minor)),
            Node::BlockDevice(major, minor) => (Type::BlockDevice, makedev(major, minor)),
        };
        (kind.as_raw_mode() | NODE_MODE, rdev)
    }
}

/// Releases the lookup count of a new file.
fn made(fs: &Fs, attr: Attr) {
    drop(Found::counted(fs, attr));
}

/// A name for a file that is not a directory.
///
/// # Errors
/// As [`place`]; ENOENT if the path can only be a directory.
fn file_place<'a, 'p>(
    start: Start<'a>,
    path: &'p Path,
    of_root: Errno,
) -> low::Result<Place<'a, 'p>> {
    let place = place(start, path, of_root)?;
    match place.is_dir {
        true => errno(Errno::NOENT),
        false => Ok(place),
    }
}

impl Volume {
    fn fs(&self) -> &Fs {
        self.shared.fs()
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// The name exists; its directory does not; the volume is full, or read-only.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.make_dir(path)
            .map_err(|e| Error::new("make the directory", path, e))
    }

    fn make_dir(&self, path: &Path) -> low::Result<()> {
        let fs = self.fs();
        let Place { dir, name, .. } = place(self.start(), path, Errno::EXIST)?;
        let umask = self.shared.umask;
        let attr = fs.mkdir(&self.shared.maker, dir.ino(), &name, DIR_MODE, umask)?;
        made(fs, attr);
        Ok(())
    }

    /// Creates a directory and its missing parents.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir), except for existing directories.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let done = self.make_dirs(path);
        done.map_err(|e| Error::new("make the directory", path, e))
    }

    fn make_dirs(&self, path: &Path) -> low::Result<()> {
        // Upwards while directories are missing, and then down again.
        let mut missing = Vec::new();
        for dir in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
            match self.need_dir(dir) {
                Err(e) if is(&e, Errno::NOENT) => missing.push(dir),
                made => {
                    made?;
                    break;
                }
            }
        }
        missing
            .into_iter()
            .rev()
            .try_for_each(|dir| self.need_dir(dir))
    }

    /// Creates a directory if it does not exist.
    fn need_dir(&self, path: &Path) -> low::Result<()> {
        let is_dir = || find(self.start(), path, Last::Follow).is_ok_and(|f| f.attr.kind.is_dir());
        match self.make_dir(path) {
            Err(_) if is_dir() => Ok(()),
            made => made,
        }
    }

    /// Creates a symbolic link at `link` to `target`, which may be any text.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir); the target is empty or too long.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (target, link) = (target.as_ref().as_os_str().as_bytes(), link.as_ref());
        let fs = self.fs();
        let done =
            file_place(self.start(), link, Errno::EXIST).and_then(|Place { dir, name, .. }| {
                fs.symlink(&self.shared.maker, dir.ino(), &name, target)
            });
        done.map(|attr| made(fs, attr))
            .map_err(|e| Error::new("make the symbolic link", link, e))
    }

    /// The target of the symbolic link at `path`.
    ///
    /// # Errors
    /// It does not exist, or is not a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let (fs, path) = (self.fs(), path.as_ref());
        let target = find(self.start(), path, Last::Keep).and_then(|found| match found.attr.kind {
            low::FileType::Symlink => fs.readlink(found.ino()),
            _ => errno(Errno::INVAL),
        });
        let target = target.map_err(|e| Error::new("read the symbolic link", path, e))?;
        Ok(OsString::from_vec(target).into())
    }

    /// Creates a pipe, socket or device.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir).
    pub fn create_node(&self, path: impl AsRef<Path>, node: Node) -> Result<()> {
        let (fs, path) = (self.fs(), path.as_ref());
        let (mode, rdev) = node.mode_and_rdev();
        let (maker, umask) = (&self.shared.maker, self.shared.umask);
        let done =
            file_place(self.start(), path, Errno::EXIST).and_then(|Place { dir, name, .. }| {
                fs.mknod(maker, dir.ino(), &name, mode, umask, rdev)
            });
        done.map(|attr| made(fs, attr))
            .map_err(|e| Error::new("make", path, e))
    }

    /// Gives the file at `path` another name, `link`. A symbolic link is not followed.
    ///
    /// # Errors
    /// The file does not exist, or is a directory; the name `link` exists; the file has too many
    /// names; the volume is full, or read-only.
    pub fn hard_link(&self, path: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (fs, path, link) = (self.fs(), path.as_ref(), link.as_ref());
        let done = find(self.start(), path, Last::Keep).and_then(|found| {
            let Place { dir, name, .. } = file_place(self.start(), link, Errno::EXIST)?;
            fs.link(&Ctx::ROOT, found.ino(), dir.ino(), &name)
        });
        done.map(|attr| made(fs, attr))
            .map_err(|e| Error::on_two("link", path, link, e))
    }

    /// Moves `from` to `to`, and replaces an existing file, or an empty directory if a directory
    /// moves. At every moment, also after a crash, at least one of the names exists.
    ///
    /// # Errors
    /// `from` does not exist; a directory would replace a file, or the other way round; the
    /// replaced directory is not empty; a directory would move into itself; the volume is
    /// read-only.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.move_to(from, to)
            .map_err(|e| Error::on_two("rename", from, to, e))
    }

    fn move_to(&self, from: &Path, to: &Path) -> low::Result<()> {
        let fs = self.fs();
        let old = place(self.start(), from, Errno::BUSY)?;
        let new = place(self.start(), to, Errno::BUSY)?;
        if old.is_dir || new.is_dir {
            let moved = Found::lookup(fs, old.dir.ino(), &old.name)?;
            if !moved.attr.kind.is_dir() {
                return errno(Errno::NOTDIR);
            }
        }
        let flags = RenameFlags::default();
        fs.rename(
            &Ctx::ROOT,
            old.dir.ino(),
            &old.name,
            new.dir.ino(),
            &new.name,
            flags,
        )
    }

    /// Removes the name of a file, or of anything else but a directory. An open file exists until
    /// it is closed.
    ///
    /// # Errors
    /// It does not exist, is a directory, or is immutable; the volume is read-only.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let (fs, path) = (self.fs(), path.as_ref());
        let done =
            place(self.start(), path, Errno::ISDIR).and_then(|Place { dir, name, is_dir }| {
                if is_dir && !Found::lookup(fs, dir.ino(), &name)?.attr.kind.is_dir() {
                    return errno(Errno::NOTDIR);
                }
                fs.unlink(&Ctx::ROOT, dir.ino(), &name)
            });
        done.map_err(|e| Error::new("remove", path, e))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// It does not exist, is not a directory, or is not empty; the volume is read-only.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (fs, path) = (self.fs(), path.as_ref());
        let done = place(self.start(), path, Errno::BUSY)
            .and_then(|Place { dir, name, .. }| fs.rmdir(&Ctx::ROOT, dir.ino(), &name));
        done.map_err(|e| Error::new("remove the directory", path, e))
    }

    /// Removes a file, or a directory with its content. Symbolic links are removed, not followed.
    ///
    /// # Errors
    /// As [`remove_dir`](Self::remove_dir) and [`remove_file`](Self::remove_file), for anything in
    /// it; then a part of it is left.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let fs = self.fs();
        let done =
            place(self.start(), path, Errno::BUSY).and_then(|Place { dir, name, .. }| {
                match fs.unlink(&Ctx::ROOT, dir.ino(), &name) {
                    Err(e) if is(&e, Errno::ISDIR) => {
                        let top = Found::lookup(fs, dir.ino(), &name)?;
                        empty(fs, top)?;
                        fs.rmdir(&Ctx::ROOT, dir.ino(), &name)
                    }
                    done => done,
                }
            });
        done.map_err(|e| Error::new("remove", path, e))
    }
}

/// A directory that is being emptied; only its subdirectories are left.
struct Level<'a> {
    dir: Found<'a>,
    /// Its name in the parent.
    name: Vec<u8>,
    /// Its subdirectories.
    below: Vec<Vec<u8>>,
}

/// Removes the content of a directory.
fn empty(fs: &Fs, top: Found<'_>) -> low::Result<()> {
    let mut levels = vec![level(fs, top, Vec::new())?];
    while let Some(last) = levels.last_mut() {
        if let Some(name) = last.below.pop() {
            let dir = Found::lookup(fs, last.dir.ino(), &name)?;
            check_tree(&levels, dir.ino())?;
            levels.push(level(fs, dir, name)?);
            continue;
        }
        let Some(done) = levels.pop() else { break };
        if let Some(above) = levels.last() {
            fs.rmdir(&Ctx::ROOT, above.dir.ino(), &done.name)?;
        }
    }
    Ok(())
}

/// Removes the files of a directory.
fn level<'a>(fs: &'a Fs, dir: Found<'a>, name: Vec<u8>) -> low::Result<Level<'a>> {
    let open = dir::open(fs, &dir)?;
    let mut below = Vec::new();
    let mut from = Some(0);
    while let Some(cookie) = from {
        let (names, next) = dir::batch(fs, &open, cookie)?;
        for entry in names {
            match fs.unlink(&Ctx::ROOT, dir.ino(), &entry.name) {
                Err(e) if is(&e, Errno::ISDIR) => below.push(entry.name),
                // Another thread removed it.
                Err(e) if is(&e, Errno::NOENT) => {}
                done => done?,
            }
        }
        from = next;
    }
    Ok(Level { dir, name, below })
}

/// Checks that a directory does not contain itself, which only damage can cause.
fn check_tree(above: &[Level<'_>], ino: Ino) -> low::Result<()> {
    match above.iter().any(|level| level.dir.ino() == ino) {
        false => Ok(()),
        true => Err(FsError::corrupt(
            "directory",
            0,
            format!("directory {ino} contains itself"),
        )),
    }
}
