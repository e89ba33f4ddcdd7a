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

    fn forget(&self, made: Result<Attr, FsError>) -> Done {
        self.fs.forget(made?.ino, 1);
        Ok(())
    }

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

    fn set(&self, path: &str, set: &SetAttr) -> Done {
        self.fs.setattr(&self.ctx, self.ino(path)?, set).map(drop)
    }

    fn fallocate(&self, path: &str, mode: FallocateMode, offset: u64, len: u64) -> Done {
        let file = self.open(path, libc::O_RDWR)?;
        self.fs.fallocate(&self.ctx, &file, mode, offset, len)
    }

    /// Does it; on return it is acknowledged.
    ///
    /// # Errors
    /// The volume's.
    pub fn run(&mut self, op: &Op) -> Done {
        if let Some(done) = self.in_group(op) {
            return done;
        }
        let (fs, ctx) = (&self.fs, &self.ctx);
        match op {
            Op::Create { path, mode } => {
                let (dir, name) = self.place(path)?;
                let (attr, file) = fs.create(ctx, dir, name, *mode, 0, libc::O_RDWR)?;
                drop(file);
                fs.forget(attr.ino, 1);
                Ok(())
            }
            Op::Mkdir { path, mode } => {
                let (dir, name) = self.place(path)?;
                self.forget(fs.mkdir(ctx, dir, name, *mode, 0))
            }
            Op::Symlink { path, target } => {
                let (dir, name) = self.place(path)?;
                self.forget(fs.symlink(ctx, dir, name, target.as_bytes()))
            }
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
                let file = self.open(path, libc::O_RDWR)?;
                let n = fs.write(ctx, &file, *offset, &bytes(*key, *len), false)?;
                if n < *len {
                    // There is room enough, so the device failed after the first transaction.
                    return Err(FsError::Errno(libc::EIO));
                }
                Ok(())
            }
            Op::Truncate { path, size } => self.set(
                path,
                &SetAttr {
                    size: Some(*size),
                    ..SetAttr::default()
                },
            ),
            Op::Punch { path, offset, len } => {
                self.fallocate(path, FallocateMode::PunchHole, *offset, *len)
            }
            Op::Zero {
                path,
                offset,
                len,
                keep,
            } => self.fallocate(
                path,
                FallocateMode::ZeroRange { keep_size: *keep },
                *offset,
                *len,
            ),
            Op::Allocate {
                path,
                offset,
                len,
                keep,
            } => self.fallocate(
                path,
                FallocateMode::Allocate { keep_size: *keep },
                *offset,
                *len,
            ),
            Op::Unlink { path } => {
                let (dir, name) = self.place(path)?;
                fs.unlink(ctx, dir, name)
            }
            Op::Hold { path, held } => {
                let file = self.open(path, libc::O_RDWR)?;
                self.held.insert(*held, file);
                Ok(())
            }
            Op::HoldUnlink { path, held } => {
                let file = self.open(path, libc::O_RDWR)?;
                let (dir, name) = self.place(path)?;
                let done = fs.unlink(ctx, dir, name);
                self.held.insert(*held, file);
                done
            }
            Op::Tmpfile { held, mode } => {
                let (attr, file) = fs.tmpfile(ctx, self.root, *mode, 0, libc::O_RDWR)?;
                fs.forget(attr.ino, 1);
                self.held.insert(*held, file);
                Ok(())
            }
            Op::Close { held } => {
                drop(self.held.remove(held));
                Ok(())
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.place(path)?;
                fs.rmdir(ctx, dir, name)
            }
            Op::Link { from, to } => {
                let (dir, name) = self.place(to)?;
                self.forget(fs.link(ctx, self.ino(from)?, dir, name))
            }
            Op::Rename { from, to } => self.rename(from, to, RenameFlags::default()),
            Op::Exchange { a, b } => self.rename(
                a,
                b,
                RenameFlags {
                    exchange: true,
                    ..RenameFlags::default()
                },
            ),
            Op::Chmod { path, mode } => self.set(
                path,
                &SetAttr {
                    mode: Some(*mode),
                    ..SetAttr::default()
                },
            ),
            Op::Chown { path, uid, gid } => self.set(
                path,
                &SetAttr {
                    uid: Some(*uid),
                    gid: Some(*gid),
                    ..SetAttr::default()
                },
            ),
            Op::SetXattr {
                path,
                name,
                key,
                len,
            } => fs.setxattr(
                ctx,
                self.ino(path)?,
                name.as_bytes(),
                &bytes(*key, *len),
                XattrSet::Any,
            ),
            Op::RemoveXattr { path, name } => fs.removexattr(ctx, self.ino(path)?, name.as_bytes()),
            Op::Atomic { paths } => {
                let open = |path: &String| self.open(path, libc::O_RDWR);
                let files: Result<Vec<_>, _> = paths.iter().map(open).collect();
                self.group = Some(fs.atomic_group(&files?)?);
                Ok(())
            }
            Op::Early => match self.group.as_mut() {
                Some(group) => group.write_early(ctx).map(drop),
                None => Err(FsError::Errno(libc::EINVAL)),
            },
            Op::Commit => match self.group.take() {
                Some(group) => group.commit(),
                None => Err(FsError::Errno(libc::EINVAL)),
            },
            Op::Abort => {
                if let Some(group) = self.group.take() {
                    group.abort();
                }
                Ok(())
            }
            Op::Fsync { path } => {
                let file = self.open(path, libc::O_RDONLY)?;
                awaited(|done| fs.fsync(&file, false, Wait::Inline, done))
            }
            Op::Fdatasync { path } => {
                let file = self.open(path, libc::O_RDONLY)?;
                awaited(|done| fs.fsync(&file, true, Wait::Deferred, done))
            }
            Op::SyncAll => awaited(|done| fs.sync_all(done)),
            Op::Freeze => fs.freeze(),
            Op::Thaw => fs.thaw(),
        }
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done {
        let (dir, name) = self.place(from)?;
        let (new_dir, new_name) = self.place(to)?;
        self.fs
            .rename(&self.ctx, dir, name, new_dir, new_name, flags)
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
