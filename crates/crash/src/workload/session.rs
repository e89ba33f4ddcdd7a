//! Sessions: run operations through the library.

mod look;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use stetfs::low::{
    AtomicGroup, Attr, Ctx, FallocateMode, Fs, FsError, Ino, OpenRef, RenameFlags, SetAttr, Wait,
    XattrSet,
};

use super::op::{Flag, Op, bytes, held_number};

/// Most time that a sync may take; a longer one fails with ETIMEDOUT.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A user of an open volume, who works in one directory.
pub struct Session {
    fs: Arc<Fs>,
    root: Ino,
    ctx: Ctx,
    held: BTreeMap<u32, OpenRef>,
    group: Option<AtomicGroup>,
}

type Done = Result<(), FsError>;

impl Session {
    /// A session in the directory `dir`; in the root if it is empty.
    ///
    /// # Errors
    /// The directory does not exist, or the volume fails.
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

    /// The parent directory and the name of a path.
    fn place<'p>(&self, path: &'p str) -> Result<(Ino, &'p [u8]), FsError> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.ino(dir)?, name.as_bytes()))
    }

    fn open(&self, path: &str, flags: i32) -> Result<OpenRef, FsError> {
        self.fs.open_inode(&self.ctx, self.ino(path)?, flags)
    }

    /// Runs an operation; on return it is acknowledged.
    ///
    /// # Errors
    /// The volume's; EIO for a write of which only a part was done.
    pub fn run(&mut self, op: &Op) -> Done {
        match self.run_partly(op)? {
            done if done == *op => Ok(()),
            // There is enough space, so the device failed after the first transaction.
            _ => Err(FsError::Errno(libc::EIO)),
        }
    }

    /// Runs an operation and gives the part that was done: a write may be shortened for lack of
    /// space.
    ///
    /// # Errors
    /// The volume's.
    pub fn run_partly(&mut self, op: &Op) -> Result<Op, FsError> {
        match op {
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
            } => {
                let data = bytes(*key, *len);
                let written = match (self.group_of(path), &mut self.group) {
                    (Some(ino), Some(group)) => group.write(&self.ctx, ino, *offset, &data)?,
                    _ => self.write(path, *offset, &data)?,
                };
                let mut done = op.clone();
                if let Op::Write { len, .. } | Op::MapWrite { len, .. } = &mut done {
                    *len = written;
                }
                Ok(done)
            }
            Op::Copy {
                from,
                offset,
                to,
                at,
                len,
            } => Ok(Op::Copy {
                from: from.clone(),
                offset: *offset,
                to: to.clone(),
                at: *at,
                len: self.copy(from, *offset, (to, *at), *len)?,
            }),
            _ => self.run_whole(op).map(|()| op.clone()),
        }
    }

    fn run_whole(&mut self, op: &Op) -> Done {
        if let Some(done) = self.in_group(op) {
            return done;
        }
        match op {
            Op::Create { path, mode } => self.create(path, *mode),
            Op::Mkdir { path, mode } => self.mkdir(path, *mode),
            Op::Symlink { path, target } => self.symlink(path, target),
            // The caller has handled these.
            Op::Write { .. } | Op::MapWrite { .. } | Op::Copy { .. } => {
                Err(FsError::Errno(libc::EINVAL))
            }
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
            Op::Mkfifo { path, mode } => self.mkfifo(path, *mode),
            Op::RenameNew { from, to } => self.rename(from, to, no_replace()),
            Op::Whiteout { from, to } => self.rename(from, to, whiteout()),
            Op::SetAcl { path, user, perms } => self.set_acl(path, *user, *perms),
            Op::SetXattr {
                path,
                name,
                key,
                len,
            } => self.set_xattr(path, name, &bytes(*key, *len)),
            Op::RemoveXattr { path, name } => self.remove_xattr(path, name),
            Op::Chattr { path, flag, on } => self.chattr(path, *flag, *on),
            Op::Atomic { paths } => self.begin_group(paths),
            Op::Early => self.write_early(),
            Op::Commit => self.commit_group(),
            Op::Abort => self.abort_group(),
            Op::Fsync { path } => self.fsync(path, false, Wait::Inline),
            Op::Fdatasync { path } => self.fsync(path, true, Wait::Deferred),
            Op::SyncAll => awaited(|done| self.fs.sync_all(done)),
            Op::Limit { .. } | Op::Project { .. } | Op::Memory { .. } => self.run_on_volume(op),
            Op::Trim | Op::Remount | Op::Act { .. } => self.run_on_volume(op),
            Op::Refused { .. } | Op::Freeze | Op::Thaw => self.run_on_volume(op),
        }
    }

    /// Runs an operation on the volume as a whole, or on the session.
    fn run_on_volume(&mut self, op: &Op) -> Done {
        match op {
            Op::Limit { uid, kib, inodes } => self.limit(*uid, *kib, *inodes),
            Op::Project { path, id } => self.project(path, *id),
            Op::Memory { mib } => {
                self.fs.set_cache_bytes(*mib << 20);
                Ok(())
            }
            Op::Trim => self.trim(),
            // The volume is closed when all threads have reached this point.
            Op::Remount => Ok(()),
            Op::Act { uid, gid } => {
                (self.ctx.uid, self.ctx.gid) = (*uid, *gid);
                Ok(())
            }
            Op::Refused { op } => match self.run_partly(op) {
                Ok(_) => Err(FsError::Errno(libc::EEXIST)),
                Err(_) => Ok(()),
            },
            Op::Freeze => self.fs.freeze(),
            Op::Thaw => self.fs.thaw(),
            // The caller handles the others.
            _ => Err(FsError::Errno(libc::EINVAL)),
        }
    }
}

/// Operations on names.
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

/// Operations on files that are held open.
impl Session {
    fn hold(&mut self, path: &str, held: u32) -> Done {
        let file = self.open(path, libc::O_RDWR)?;
        self.held.insert(held, file);
        Ok(())
    }

    fn hold_unlink(&mut self, path: &str, held: u32) -> Done {
        let file = self.open(path, libc::O_RDWR)?;
        let (dir, name) = self.place(path)?;
        self.fs.unlink(&self.ctx, dir, name)?;
        self.held.insert(held, file);
        Ok(())
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

/// Operations on content, and syncs.
impl Session {
    fn write(&self, path: &str, offset: u64, data: &[u8]) -> Result<usize, FsError> {
        let ino = self.ino(path)?;
        // A file that may only grow has to be opened with O_APPEND.
        let flags = match self.fs.getattr(ino)?.flags & Flag::Append.bit() {
            0 => libc::O_RDWR,
            _ => libc::O_RDWR | libc::O_APPEND,
        };
        let file = self.fs.open_inode(&self.ctx, ino, flags)?;
        self.fs.write(&self.ctx, &file, offset, data, false)
    }

    fn fallocate(&self, path: &str, mode: FallocateMode, offset: u64, len: u64) -> Done {
        let file = self.open(path, libc::O_RDWR)?;
        let fallocate = || self.fs.fallocate(&self.ctx, &file, mode, offset, len);
        match fallocate() {
            Err(FsError::Errno(libc::EOPNOTSUPP)) => {
                self.chattr(path, Flag::Extents, true)?;
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

/// RENAME_NOREPLACE.
fn no_replace() -> RenameFlags {
    RenameFlags {
        no_replace: true,
        ..RenameFlags::default()
    }
}

/// RENAME_WHITEOUT.
fn whiteout() -> RenameFlags {
    RenameFlags {
        whiteout: true,
        ..RenameFlags::default()
    }
}

fn zero_range(keep_size: bool) -> FallocateMode {
    FallocateMode::ZeroRange { keep_size }
}

fn allocate(keep_size: bool) -> FallocateMode {
    FallocateMode::Allocate { keep_size }
}

/// Operations on attributes.
impl Session {
    fn set(&self, path: &str, set: &SetAttr) -> Done {
        self.fs.setattr(&self.ctx, self.ino(path)?, set).map(drop)
    }

    fn set_xattr(&self, path: &str, name: &str, value: &[u8]) -> Done {
        let ino = self.ino(path)?;
        // Some kinds of attributes can only be set by root.
        self.fs
            .setxattr(&Ctx::ROOT, ino, name.as_bytes(), value, XattrSet::Any)
    }

    fn remove_xattr(&self, path: &str, name: &str) -> Done {
        let ino = self.ino(path)?;
        self.fs.removexattr(&Ctx::ROOT, ino, name.as_bytes())
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

/// Operations on atomic groups.
impl Session {
    /// Runs the operation in the open group, if the file is in it.
    fn in_group(&mut self, op: &Op) -> Option<Done> {
        let path = match op {
            Op::Truncate { path, .. } | Op::Punch { path, .. } => path,
            _ => return None,
        };
        let ino = self.group_of(path)?;
        let ctx = &self.ctx;
        let group = self.group.as_mut()?;
        Some(match op {
            Op::Truncate { size, .. } => group.set_size(ctx, ino, *size),
            Op::Punch { offset, len, .. } => group.zero(ctx, ino, *offset, *len),
            _ => return None,
        })
    }

    /// The file at a path, if it is in the open group.
    fn group_of(&self, path: &str) -> Option<Ino> {
        let ino = self.ino(path).ok()?;
        let mut files = self.group.as_ref()?.files();
        files.any(|member| member == ino).then_some(ino)
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

/// Starts a sync, and waits for its result.
///
/// # Errors
/// The sync's, or ETIMEDOUT.
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
