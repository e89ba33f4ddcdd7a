//! Opening files, and operations that open, use and close a file in one call.

use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Error, Result, Why};
use crate::file::{Access, File};
use crate::low::{self, Fs, OpenRef};
use crate::resolve::{Found, PathWalk};
use crate::shared::{Shared, errno, is};
use crate::volume::Volume;
use stetfs_ext4::Ctx;

/// Options with which a file is opened, as [`std::fs::OpenOptions`].
///
/// ```
/// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
/// # let volume = stetfs::Volume::open(image.path(), &stetfs::MountOptions::new())?;
/// use std::io::Write;
/// use stetfs::File;
///
/// for day in ["Monday", "Tuesday"] {
///     let mut log = File::options().append(true).create(true).open(&volume, "/log")?;
///     writeln!(log, "{day}")?;
/// }
/// assert_eq!(volume.read_to_string("/log")?, "Monday\nTuesday\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// All options off.
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
        }
    }

    /// Opens for reading.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.read = read;
        self
    }

    /// Opens for writing.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.write = write;
        self
    }

    /// Opens for appending: each write goes to the current end, also with several writers.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.append = append;
        self
    }

    /// Truncates the file to 0 bytes.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.create = create;
        self
    }

    /// Creates the file, which must not exist.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Permissions of a new file (0666), before the volume's umask.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.mode = mode;
        self
    }

    /// Opens `path` in `volume`.
    ///
    /// # Errors
    /// As [`std::fs::OpenOptions::open`]: the file does not exist, or does (`create_new`), or is a
    /// directory to be written; options contradict each other; the volume is read-only, or full.
    pub fn open(&self, volume: &Volume, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let opened = self.open_in(volume, path);
        let open = opened.map_err(|e| Error::new("open", path, e))?;
        Ok(File::new(open, &volume.shared, path, self.access()))
    }

    fn access(&self) -> Access {
        Access {
            read: self.read,
            write: self.write || self.append,
            append: self.append,
        }
    }

    /// Flags of open(2).
    fn flags(&self) -> low::Result<i32> {
        let writes = self.write || self.append;
        let makes = self.create || self.create_new;
        let mut flags = match (self.read, writes) {
            (true, false) => OFlags::RDONLY,
            (false, true) => OFlags::WRONLY,
            (true, true) => OFlags::RDWR,
            (false, false) => return errno(Errno::INVAL),
        };
        // As in std.
        if (makes && !writes)
            || (self.truncate && !self.write)
            || (self.truncate && self.append && !self.create_new)
        {
            return errno(Errno::INVAL);
        }
        flags.set(OFlags::APPEND, self.append);
        flags.set(OFlags::TRUNC, self.truncate && !self.create_new);
        Ok(flags.bits() as i32)
    }

    fn open_in(&self, volume: &Volume, path: &Path) -> low::Result<OpenRef> {
        let flags = self.flags()?;
        let fs: &Fs = volume.shared.fs();
        let mut walk = PathWalk::new(volume.start(), path)?;
        loop {
            let Some(name) = walk.reach_last()? else {
                return match self.create_new {
                    true => errno(Errno::EXIST),
                    false => fs.open_inode(&Ctx::ROOT, walk.at.ino(), flags),
                };
            };
            if !self.create_new {
                match walk.look(&name) {
                    Ok(found) if found.attr.kind == low::FileType::Symlink => {
                        walk.follow(&found)?;
                        continue;
                    }
                    Ok(found) if walk.is_dir && found.attr.kind != low::FileType::Directory => {
                        return errno(Errno::NOTDIR);
                    }
                    Ok(found) => return fs.open_inode(&Ctx::ROOT, found.ino(), flags),
                    Err(e) if self.create && is(&e, Errno::NOENT) => {}
                    Err(e) => return Err(e),
                }
            }
            if walk.is_dir {
                return errno(Errno::ISDIR);
            }
            match self.make(&volume.shared, fs, &walk.at, &name, flags) {
                // Another thread created it meanwhile.
                Err(e) if !self.create_new && is(&e, Errno::EXIST) => walk.again(name),
                made => return made,
            }
        }
    }

    fn make(
        &self,
        volume: &Shared,
        fs: &Fs,
        dir: &Found<'_>,
        name: &[u8],
        flags: i32,
    ) -> low::Result<OpenRef> {
        let (maker, umask) = (&volume.maker, volume.umask);
        let (attr, open) = fs.create(maker, dir.ino(), name, self.mode, umask, flags)?;
        drop(Found::counted(fs, attr));
        Ok(open)
    }
}

impl File {
    /// Options to open a file with.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }
}

impl Volume {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file for writing: creates it, or truncates it.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.open(self, path)
    }

    /// The content of a file.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file); the errors of reading.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        self.open_file(path)?.read_all()
    }

    /// The content of a file, as text.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`InvalidInput`](std::io::ErrorKind::InvalidInput) if it is not
    /// UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        let text = String::from_utf8(self.read(path)?);
        text.map_err(|e| Error::new("read", path, Why::Invalid(e.to_string())))
    }

    /// Creates a file with these contents, or replaces its contents.
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file); the errors of writing.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        self.create_file(path)?.write_all_at(contents.as_ref(), 0)
    }
}
