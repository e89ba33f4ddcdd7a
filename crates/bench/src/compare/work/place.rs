//! The place of a workload: a mounted directory, or a volume of StetFS that is open in this
//! process.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use stetfs::low::{
    Ctx, Fs, FsError, Ino, OpenRef, ROOT_INO, RenameFlags, SetAttr, Wait, serve_processor,
};
use stetfs_sync::timed::mpsc;

/// A place. Paths in it are relative, with `/` between the names.
pub(crate) enum Place<'a> {
    /// A directory of a mount.
    Mounted(PathBuf),
    /// A volume, from its root.
    Library(&'a Fs),
}

/// The way in which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// For reading.
    Read,
    /// For writing in its middle.
    Write,
    /// For reading, and for writing at its end.
    Append,
    /// For writing; it is created, or emptied.
    Create,
    /// For writing at its end; it is created if it does not exist.
    Log,
}

/// An open file of a place.
pub(super) enum Opened<'a> {
    /// A file of a mount.
    File(File),
    /// A file of a volume.
    Library { fs: &'a Fs, ino: Ino, open: OpenRef },
}

/// The value; `None` if the file does not exist.
fn there<T>(found: std::result::Result<T, FsError>) -> Result<Option<T>> {
    match found {
        Err(e) if e.errno() == libc::ENOENT => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// The same for calls of the system.
fn there_on_mount<T>(found: std::io::Result<T>) -> Result<Option<T>> {
    match found {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// An inode held by a lookup: it exists even if its name is removed.
struct Held<'a> {
    fs: &'a Fs,
    ino: Ino,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.fs.forget(self.ino, 1);
    }
}

/// The inode at a path; `None` if there is none.
fn look_up<'a>(fs: &'a Fs, path: &str) -> Result<Option<Held<'a>>> {
    let mut held: Option<Held<'a>> = None;
    for name in path.split('/') {
        let Some(found) = there(fs.lookup(number(&held), name.as_bytes()))? else {
            return Ok(None);
        };
        held = Some(Held { fs, ino: found.ino });
    }
    Ok(held)
}

/// The directory of a path (`None` for the root), and the name in it.
fn parent<'a, 'p>(fs: &'a Fs, path: &'p str) -> Result<(Option<Held<'a>>, &'p [u8])> {
    let Some((dir, name)) = path.rsplit_once('/') else {
        return Ok((None, path.as_bytes()));
    };
    let held = look_up(fs, dir)?.with_context(|| format!("there is no {dir}"))?;
    Ok((Some(held), name.as_bytes()))
}

/// The inode number of such a directory.
fn number(dir: &Option<Held<'_>>) -> Ino {
    dir.as_ref().map_or(ROOT_INO, |dir| dir.ino)
}

/// Opens a file of a volume. As for a program above the kernel, its name is looked up first.
fn open_in<'a>(fs: &'a Fs, path: &str, how: How) -> Result<Option<Opened<'a>>> {
    let ctx = Ctx::default();
    let flags = match how {
        How::Read => libc::O_RDONLY,
        How::Write | How::Append | How::Log => libc::O_RDWR,
        How::Create => libc::O_WRONLY | libc::O_TRUNC,
    };
    // Another thread may create or remove it in between.
    loop {
        if let Some(found) = look_up(fs, path)?
            && let Some(open) = there(fs.open_inode(&ctx, found.ino, flags))?
        {
            let ino = found.ino;
            return Ok(Some(Opened::Library { fs, ino, open }));
        }
        if !matches!(how, How::Create | How::Log) {
            return Ok(None);
        }
        let (dir, name) = parent(fs, path)?;
        match fs.create(&ctx, number(&dir), name, 0o644, 0, libc::O_RDWR) {
            Ok((made, open)) => {
                fs.forget(made.ino, 1);
                let ino = made.ino;
                return Ok(Some(Opened::Library { fs, ino, open }));
            }
            Err(e) if e.errno() == libc::EEXIST => {}
            Err(e) => return Err(e.into()),
        }
    }
}

impl Place<'_> {
    /// Makes a directory.
    pub(super) fn make_dir(&self, path: &str) -> Result<()> {
        match self {
            Place::Mounted(root) => Ok(fs::create_dir(root.join(path))?),
            Place::Library(fs) => {
                let (dir, name) = parent(fs, path)?;
                let made = fs.mkdir(&Ctx::default(), number(&dir), name, 0o755, 0)?;
                fs.forget(made.ino, 1);
                Ok(())
            }
        }
    }

    /// Opens a file; `None` if it does not exist and is not to be created.
    pub(super) fn open(&self, path: &str, how: How) -> Result<Option<Opened<'_>>> {
        let root = match self {
            Place::Mounted(root) => root,
            Place::Library(fs) => return open_in(fs, path, how),
        };
        let mut options = OpenOptions::new();
        match how {
            How::Read => options.read(true),
            How::Write => options.write(true),
            How::Append => options.read(true).append(true),
            How::Create => options.write(true).create(true).truncate(true),
            How::Log => options.append(true).create(true),
        };
        Ok(there_on_mount(options.open(root.join(path)))?.map(Opened::File))
    }

    /// As [`Place::open`], for a file that is created or must exist.
    pub(super) fn must_open(&self, path: &str, how: How) -> Result<Opened<'_>> {
        self.open(path, how)?
            .with_context(|| format!("there is no {path}"))
    }

    /// Removes a file; false if it does not exist.
    pub(super) fn remove(&self, path: &str) -> Result<bool> {
        match self {
            Place::Mounted(root) => Ok(there_on_mount(fs::remove_file(root.join(path)))?.is_some()),
            Place::Library(fs) => {
                let (dir, name) = parent(fs, path)?;
                Ok(there(fs.unlink(&Ctx::default(), number(&dir), name))?.is_some())
            }
        }
    }

    /// Renames a file.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<()> {
        match self {
            Place::Mounted(root) => Ok(fs::rename(root.join(from), root.join(to))?),
            Place::Library(fs) => {
                let ((old, from), (new, to)) = (parent(fs, from)?, parent(fs, to)?);
                let (old, new) = (number(&old), number(&new));
                let flags = RenameFlags::default();
                Ok(fs.rename(&Ctx::default(), old, from, new, to, flags)?)
            }
        }
    }

    /// Reads the attributes of a file; false if it does not exist.
    pub(super) fn stat(&self, path: &str) -> Result<bool> {
        match self {
            Place::Mounted(root) => Ok(there_on_mount(fs::metadata(root.join(path)))?.is_some()),
            Place::Library(fs) => Ok(look_up(fs, path)?.is_some()),
        }
    }

    /// Registers this thread as one of several: in a volume it acts as the thread of the processor
    /// of this number, for journals with lanes.
    pub(super) fn work_as(&self, thread: u16) {
        if let Place::Library(_) = self {
            serve_processor(thread);
        }
    }
}

impl Opened<'_> {
    /// Writes all bytes at offset `at`.
    pub(super) fn write_at(&self, at: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Opened::File(file) => Ok(file.write_all_at(bytes, at)?),
            Opened::Library { fs, open, .. } => {
                let n = fs.write(&Ctx::default(), open, at, bytes, false)?;
                ensure!(
                    n == bytes.len(),
                    "{n} bytes of {} were written",
                    bytes.len()
                );
                Ok(())
            }
        }
    }

    /// Writes at the end. In a volume two threads may write at the same offset.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Opened::File(file) => Ok(file.write_all(bytes)?),
            Opened::Library { fs, ino, .. } => {
                let end = fs.getattr(*ino)?.size;
                self.write_at(end, bytes)
            }
        }
    }

    /// Reads to the end, as Filebench does. `read_to_end` would first ask for all attributes, which
    /// FUSE does not cache.
    pub(super) fn read_whole(&mut self, buffer: &mut [u8]) -> Result<()> {
        match self {
            Opened::File(file) => while file.read(buffer)? > 0 {},
            Opened::Library { fs, open, .. } => {
                let mut at = 0;
                while let n @ 1.. = fs.read(open, at, buffer)? {
                    at += n as u64;
                }
            }
        }
        Ok(())
    }

    /// Truncates it to 0 bytes.
    pub(super) fn empty(&self) -> Result<()> {
        match self {
            Opened::File(file) => Ok(file.set_len(0)?),
            Opened::Library { fs, ino, .. } => {
                let set = SetAttr {
                    size: Some(0),
                    ..SetAttr::default()
                };
                fs.setattr(&Ctx::default(), *ino, &set)?;
                Ok(())
            }
        }
    }

    /// fsync(2).
    pub(super) fn sync(&self) -> Result<()> {
        match self {
            Opened::File(file) => Ok(file.sync_all()?),
            Opened::Library { fs, open, .. } => {
                let (tell, told) = mpsc::channel();
                fs.fsync(
                    open,
                    false,
                    Wait::Inline,
                    Box::new(move |done| drop(tell.send(done))),
                );
                Ok(told.recv().context("the sync was never answered")??)
            }
        }
    }
}
