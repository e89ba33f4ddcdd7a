//! Operations done through the library.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use stetfs::low::{
    AtomicGroup, Attr, Ctx, FallocateMode, Fs, FsError, Ino, OpenRef, RenameFlags, SetAttr, Wait,
    XattrSet,
};

use super::op::{Op, bytes, held_number};

/// How long a sync may take; one that takes longer fails with ETIMEDOUT.
const TIMEOUT: Duration = Duration::from_secs(60);
/// `EXT4_EXTENTS_FL`.
const EXTENTS: u32 = 0x8_0000;

/// A user of an open volume, at work in one directory.
pub struct Session {
    fs: Arc<Fs>,
    root: Ino,
    ctx: Ctx,
    held: BTreeMap<u32, OpenRef>,
    group: Option<AtomicGroup>,
}

type Done = Result<(), FsError>;

impl Session {
    /// At work in `dir`; the volume's root if it is empty.
    ///
    /// # Errors
    /// There is no such directory, or the volume failed.
    pub fn new(fs: &Arc<Fs>, dir: &str) -> Result<Session, FsError> {
        let root = match dir {
            "" => stetfs::low::ROOT_INO,
            _ => look_up(fs, stetfs::low::ROOT_INO, dir)?,
        };
        Ok(Session {
            fs: Arc::clone(fs),
            root,
            ctx: Ctx::default(),
            held: BTreeMap::new(),
            group: None,
        })
    }

    fn ino(&self, path: &str) -> Result<Ino, FsError> {
        if let Some(held) = held_number(path) {
            let file = self.held.get(&held).ok_or(FsError::Errno(libc::EBADF))?;
            return Ok(file.ino());
        }
        let mut at = self.root;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            at = look_up(&self.fs, at, name)?;
        }
        Ok(at)
    }

    /// The directory and name of a path.
    fn place<'p>(&self, path: &'p str) -> Result<(Ino, &'p [u8]), FsError> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.ino(dir)?, name.as_bytes()))
    }

    fn open(&self, path: &str, flags: i32) -> Result<OpenRef, FsError> {
        self.fs.open_inode(&self.ctx, self.ino(path)?, flags)
    }

    /// Does it; on return it is acknowledged.
    ///
    /// # Errors
    /// The volume's.
    pub fn run(&mut self, op: &Op) -> Done {
        if let Some(done) = self.in_group(op) {
            return done;
        }
        match op {
            Op::Create { path, mode } => self.create(path, *mode),
            Op::Mkdir { path, mode } => self.mkdir(path, *mode),
            Op::Symlink { path, target } => self.symlink(path, target),
            Op::Write {
                path,
                offset,
                len,
                key,
            }
            | Op::MapWrite {
                path,
                offset,
                len,
                key,
            } => self.write(path, *offset, &bytes(*key, *len)),
            Op::Truncate { path, size } => self.set(path, &set_size(*size)),
            Op::Punch { path, offset, len } => {
                self.fallocate(path, FallocateMode::PunchHole, *offset, *len)
            }
            Op::Zero {
                path,
                offset,
                len,
                keep,
            } => self.fallocate(path, zero_range(*keep), *offset, *len),
            Op::Allocate {
                path,
                offset,
                len,
                keep,
            } => self.fallocate(path, allocate(*keep), *offset, *len),
            Op::Unlink { path } => self.unlink(path),
            Op::Hold { path, held } => self.hold(path, *held),
            Op::HoldUnlink { path, held } => self.hold_unlink(path, *held),
            Op::Tmpfile { held, mode } => self.tmpfile(*held, *mode),
            Op::Close { held } => self.close(*held),
            Op::Rmdir { path } => self.rmdir(path),
            Op::Link { from, to } => self.link(from, to),
            Op::Rename { from, to } => self.rename(from, to, RenameFlags::default()),
            Op::Exchange { a, b } => self.rename(a, b, exchanging()),
            Op::Chmod { path, mode } => self.set(path, &set_mode(*mode)),
            Op::Chown { path, uid, gid } => self.set(path, &set_owner(*uid, *gid)),
            Op::SetXattr {
                path,
                name,
                key,
                len,
            } => self.set_xattr(path, name, &bytes(*key, *len)),
            Op::RemoveXattr { path, name } => self.remove_xattr(path, name),
            Op::Chattr { path, extents } => self.chattr(path, *extents),
            Op::Atomic { paths } => self.begin_group(paths),
            Op::Early => self.write_early(),
            Op::Commit => self.commit_group(),
            Op::Abort => self.abort_group(),
            Op::Fsync { path } => self.fsync(path, false, Wait::Inline),
            Op::Fdatasync { path } => self.fsync(path, true, Wait::Deferred),
            Op::SyncAll => awaited(|done| self.fs.sync_all(done)),
            Op::Freeze => self.fs.freeze(),
            Op::Thaw => self.fs.thaw(),
        }
    }
}

/// Names.
impl Session {
    fn create(&self, path: &str, mode: u32) -> Done {
        let (dir, name) = self.place(path)?;
        let flags = libc::O_RDWR;
        let (attr, file) = self.fs.create(&self.ctx, dir, name, mode, 0, flags)?;
        drop(file);
        self.fs.forget(attr.ino, 1);
        Ok(())
    }

    fn mkdir(&self, path: &str, mode: u32) -> Done {
        let (dir, name) = self.place(path)?;
        self.forget(self.fs.mkdir(&self.ctx, dir, name, mode, 0))
    }

    fn symlink(&self, path: &str, target: &str) -> Done {
        let (dir, name) = self.place(path)?;
        self.forget(self.fs.symlink(&self.ctx, dir, name, target.as_bytes()))
    }

    fn unlink(&self, path: &str) -> Done {
        let (dir, name) = self.place(path)?;
        self.fs.unlink(&self.ctx, dir, name)
    }

    fn rmdir(&self, path: &str) -> Done {
        let (dir, name) = self.place(path)?;
        self.fs.rmdir(&self.ctx, dir, name)
    }

    fn link(&self, from: &str, to: &str) -> Done {
        let (dir, name) = self.place(to)?;
        self.forget(self.fs.link(&self.ctx, self.ino(from)?, dir, name))
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done {
        let (dir, name) = self.place(from)?;
        let (new_dir, new_name) = self.place(to)?;
        self.fs
            .rename(&self.ctx, dir, name, new_dir, new_name, flags)
    }

    fn forget(&self, made: Result<Attr, FsError>) -> Done {
        self.fs.forget(made?.ino, 1);
        Ok(())
    }
}

fn exchanging() -> RenameFlags {
    RenameFlags {
        exchange: true,
        ..RenameFlags::default()
    }
}

/// Files that are held open.
impl Session {
    fn hold(&mut self, path: &str, held: u32) -> Done {
        let file = self.open(path, libc::O_RDWR)?;
        self.held.insert(held, file);
        Ok(())
    }

    fn hold_unlink(&mut self, path: &str, held: u32) -> Done {
        let file = self.open(path, libc::O_RDWR)?;
        let (dir, name) = self.place(path)?;
        let done = self.fs.unlink(&self.ctx, dir, name);
        self.held.insert(held, file);
        done
    }

    fn tmpfile(&mut self, held: u32, mode: u32) -> Done {
        let flags = libc::O_RDWR;
        let (attr, file) = self.fs.tmpfile(&self.ctx, self.root, mode, 0, flags)?;
        self.fs.forget(attr.ino, 1);
        self.held.insert(held, file);
        Ok(())
    }

    fn close(&mut self, held: u32) -> Done {
        drop(self.held.remove(&held));
        Ok(())
    }
}

/// Content of files, and syncs.
impl Session {
    /// What a program reads of a file: through the open group, if the file is in it.
    ///
    /// # Errors
    /// The volume's.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, FsError> {
        let ino = self.ino(path)?;
        let group = self.group.as_ref();
        if let Some(group) = group.filter(|group| group.files().any(|member| member == ino)) {
            let mut bytes = sized(group.size(ino)?)?;
            group.read(ino, 0, &mut bytes)?;
            return Ok(bytes);
        }
        // A look is no change.
        let file = self.open(path, libc::O_RDONLY | libc::O_NOATIME)?;
        let mut bytes = sized(self.fs.getattr(ino)?.size)?;
        self.fs.read(&file, 0, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, path: &str, offset: u64, data: &[u8]) -> Done {
        let file = self.open(path, libc::O_RDWR)?;
        let n = self.fs.write(&self.ctx, &file, offset, data, false)?;
        if n < data.len() {
            // There is room enough, so the device failed after the first transaction.
            return Err(FsError::Errno(libc::EIO));
        }
        Ok(())
    }

    fn fallocate(&self, path: &str, mode: FallocateMode, offset: u64, len: u64) -> Done {
        let file = self.open(path, libc::O_RDWR)?;
        let fallocate = || self.fs.fallocate(&self.ctx, &file, mode, offset, len);
        match fallocate() {
            Err(FsError::Errno(libc::EOPNOTSUPP)) => {
                self.chattr(path, true)?;
                fallocate()
            }
            done => done,
        }
    }

    fn fsync(&self, path: &str, data_only: bool, wait: Wait) -> Done {
        let file = self.open(path, libc::O_RDONLY)?;
        awaited(|done| self.fs.fsync(&file, data_only, wait, done))
    }
}

fn sized(size: u64) -> Result<Vec<u8>, FsError> {
    let len = usize::try_from(size).map_err(|_| FsError::Errno(libc::EFBIG))?;
    Ok(vec![0; len])
}

fn zero_range(keep_size: bool) -> FallocateMode {
    FallocateMode::ZeroRange { keep_size }
}

fn allocate(keep_size: bool) -> FallocateMode {
    FallocateMode::Allocate { keep_size }
}

/// Attributes.
impl Session {
    fn set(&self, path: &str, set: &SetAttr) -> Done {
        self.fs.setattr(&self.ctx, self.ino(path)?, set).map(drop)
    }

    fn set_xattr(&self, path: &str, name: &str, value: &[u8]) -> Done {
        let ino = self.ino(path)?;
        self.fs
            .setxattr(&self.ctx, ino, name.as_bytes(), value, XattrSet::Any)
    }

    fn chattr(&self, path: &str, extents: bool) -> Done {
        let ino = self.ino(path)?;
        let old = self.fs.get_flags(ino)? & !EXTENTS;
        let flags = old | if extents { EXTENTS } else { 0 };
        match self.fs.set_flags(&self.ctx, ino, flags) {
            // Its map cannot have that form.
            Err(FsError::Errno(libc::EOPNOTSUPP | libc::EINVAL)) => Ok(()),
            done => done,
        }
    }

    fn remove_xattr(&self, path: &str, name: &str) -> Done {
        let ino = self.ino(path)?;
        self.fs.removexattr(&self.ctx, ino, name.as_bytes())
    }
}

fn set_size(size: u64) -> SetAttr {
    SetAttr {
        size: Some(size),
        ..SetAttr::default()
    }
}

fn set_mode(mode: u32) -> SetAttr {
    SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    }
}

fn set_owner(uid: u32, gid: u32) -> SetAttr {
    SetAttr {
        uid: Some(uid),
        gid: Some(gid),
        ..SetAttr::default()
    }
}

/// Atomic groups.
impl Session {
    /// Does it in the group, if the file is in it.
    fn in_group(&mut self, op: &Op) -> Option<Done> {
        let path = match op {
            Op::Write { path, .. } | Op::Truncate { path, .. } | Op::Punch { path, .. } => path,
            _ => return None,
        };
        let ino = self.ino(path).ok()?;
        let ctx = &self.ctx;
        let group = self.group.as_mut()?;
        if !group.files().any(|member| member == ino) {
            return None;
        }
        Some(match op {
            Op::Write {
                offset, len, key, ..
            } => {
                let written = group.write(ctx, ino, *offset, &bytes(*key, *len));
                // The workload knows of no part of a write.
                written.and_then(|n| match n == *len {
                    true => Ok(()),
                    false => Err(FsError::Errno(libc::ENOSPC)),
                })
            }
            Op::Truncate { size, .. } => group.set_size(ctx, ino, *size),
            Op::Punch { offset, len, .. } => group.zero(ctx, ino, *offset, *len),
            _ => return None,
        })
    }

    fn begin_group(&mut self, paths: &[String]) -> Done {
        let open = |path: &String| self.open(path, libc::O_RDWR);
        let files: Result<Vec<_>, _> = paths.iter().map(open).collect();
        self.group = Some(self.fs.atomic_group(&files?)?);
        Ok(())
    }

    fn write_early(&mut self) -> Done {
        match self.group.as_mut() {
            Some(group) => group.write_early(&self.ctx).map(drop),
            None => Err(FsError::Errno(libc::EINVAL)),
        }
    }

    fn commit_group(&mut self) -> Done {
        match self.group.take() {
            Some(group) => group.commit(),
            None => Err(FsError::Errno(libc::EINVAL)),
        }
    }

    fn abort_group(&mut self) -> Done {
        if let Some(group) = self.group.take() {
            group.abort();
        }
        Ok(())
    }
}

/// Starts a sync, and waits until it is answered.
///
/// # Errors
/// Its own, and ETIMEDOUT.
pub(crate) fn awaited(start: impl FnOnce(stetfs::low::Done)) -> Done {
    let (answer, wait) = mpsc::channel();
    start(Box::new(move |r| drop(answer.send(r))));
    wait.recv_timeout(TIMEOUT)
        .unwrap_or(Err(FsError::Errno(libc::ETIMEDOUT)))
}

fn look_up(fs: &Fs, dir: Ino, name: &str) -> Result<Ino, FsError> {
    let ino = fs.lookup(dir, name.as_bytes())?.ino;
    fs.forget(ino, 1);
    Ok(ino)
}
