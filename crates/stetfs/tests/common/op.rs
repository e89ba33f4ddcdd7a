//! Operations, how they are done through the library, and scripts made of them.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use stetfs::{Attr, Ctx, FallocateMode, Fs, FsError, Ino, OpenRef, RenameFlags, SetAttr, XattrSet};

use super::model::{Kind, State};

/// One change, or one sync. Paths are relative to the directory that the script works in.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        path: String,
        mode: u32,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Symlink {
        path: String,
        target: String,
    },
    Write {
        path: String,
        offset: u64,
        len: usize,
        key: u64,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Punch {
        path: String,
        offset: u64,
        len: u64,
    },
    Zero {
        path: String,
        offset: u64,
        len: u64,
    },
    Allocate {
        path: String,
        offset: u64,
        len: u64,
    },
    Unlink {
        path: String,
    },
    /// Unlinks a file that stays open until the end.
    HoldUnlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Exchange {
        a: String,
        b: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Chown {
        path: String,
        uid: u32,
        gid: u32,
    },
    SetXattr {
        path: String,
        name: String,
        key: u64,
        len: usize,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    Fsync {
        path: String,
    },
    Fdatasync {
        path: String,
    },
    SyncAll,
}

/// Bytes that no other key gives, none of them zero.
pub fn bytes(key: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    std::iter::repeat_with(|| rng.u8(1..)).take(len).collect()
}

/// How long any single operation may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user of an open volume, at work in one directory.
pub struct Session {
    fs: Arc<Fs>,
    root: Ino,
    ctx: Ctx,
    held: Vec<OpenRef>,
}

type Done = Result<(), FsError>;

impl Session {
    pub fn new(fs: &Arc<Fs>, dir: &str) -> Result<Session, FsError> {
        let root = match dir {
            "" => stetfs::ROOT_INO,
            _ => look_up(fs, stetfs::ROOT_INO, dir)?,
        };
        Ok(Session {
            fs: Arc::clone(fs),
            root,
            ctx: Ctx::default(),
            held: Vec::new(),
        })
    }

    fn ino(&self, path: &str) -> Result<Ino, FsError> {
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

    fn set(&self, path: &str, set: &SetAttr) -> Done {
        self.fs.setattr(&self.ctx, self.ino(path)?, set).map(drop)
    }

    fn fallocate(&self, path: &str, mode: FallocateMode, offset: u64, len: u64) -> Done {
        let file = self.open(path, libc::O_RDWR)?;
        self.fs.fallocate(&self.ctx, &file, mode, offset, len)
    }

    fn sync(&self, start: impl FnOnce(stetfs::Done)) -> Done {
        let (answer, wait) = mpsc::channel();
        start(Box::new(move |r| drop(answer.send(r))));
        wait.recv_timeout(PATIENCE).expect("a sync is answered")
    }

    /// Does it; on return it is acknowledged.
    pub fn run(&mut self, op: &Op) -> Done {
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
            Op::Zero { path, offset, len } => self.fallocate(
                path,
                FallocateMode::ZeroRange { keep_size: false },
                *offset,
                *len,
            ),
            Op::Allocate { path, offset, len } => self.fallocate(
                path,
                FallocateMode::Allocate { keep_size: false },
                *offset,
                *len,
            ),
            Op::Unlink { path } => {
                let (dir, name) = self.place(path)?;
                fs.unlink(ctx, dir, name)
            }
            Op::HoldUnlink { path } => {
                let file = self.open(path, libc::O_RDWR)?;
                let (dir, name) = self.place(path)?;
                let done = fs.unlink(ctx, dir, name);
                self.held.push(file);
                done
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
            Op::Fsync { path } => {
                let file = self.open(path, libc::O_RDONLY)?;
                self.sync(|done| fs.fsync(&file, false, done))
            }
            Op::Fdatasync { path } => {
                let file = self.open(path, libc::O_RDONLY)?;
                self.sync(|done| fs.fsync(&file, true, done))
            }
            Op::SyncAll => self.sync(|done| fs.sync_all(done)),
        }
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done {
        let (dir, name) = self.place(from)?;
        let (new_dir, new_name) = self.place(to)?;
        self.fs
            .rename(&self.ctx, dir, name, new_dir, new_name, flags)
    }
}

fn look_up(fs: &Fs, dir: Ino, name: &str) -> Result<Ino, FsError> {
    let ino = fs.lookup(dir, name.as_bytes())?.ino;
    fs.forget(ino, 1);
    Ok(ino)
}

/// Makes operations that must succeed.
pub struct Generator {
    rng: fastrand::Rng,
    key: u64,
}

/// Files stay below this size, bytes.
const FILE_MAX: u64 = 60_000;
/// The tree stays near this many entries.
const ENTRIES: usize = 40;

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator {
            rng: fastrand::Rng::with_seed(seed),
            key: seed << 32,
        }
    }

    fn key(&mut self) -> u64 {
        self.key += 1;
        self.key
    }

    fn pick<'a>(&mut self, from: &[&'a String]) -> Option<&'a String> {
        self.rng.choice(from).copied()
    }

    /// A path that is not taken. Some names are long, so that directories soon need several blocks.
    fn new_path(&mut self, state: &State, dirs: &[&String]) -> String {
        loop {
            let n = self.rng.u32(0..1000);
            let name = if self.rng.u8(0..3) == 0 {
                format!("n{n}{}", "-long".repeat(20))
            } else {
                format!("n{n}")
            };
            let path = match self.pick(dirs) {
                Some(dir) if self.rng.u8(0..3) > 0 && dir.matches('/').count() < 3 => {
                    format!("{dir}/{name}")
                }
                _ => name,
            };
            if state.find(&path).is_none() {
                return path;
            }
        }
    }

    /// Somewhere in a file of `size` bytes, or near behind it; often at a block's edge.
    fn offset(&mut self, size: u64) -> u64 {
        let any = self.rng.u64(0..=(size + 3000).min(FILE_MAX));
        match self.rng.u8(0..4) {
            0 => size,
            1 => any / 4096 * 4096,
            2 => any / 1024 * 1024,
            _ => any,
        }
    }

    /// The next operation.
    pub fn next(&mut self, state: &State) -> Op {
        loop {
            if let Some(op) = self.candidate(state) {
                return op;
            }
        }
    }

    fn candidate(&mut self, state: &State) -> Option<Op> {
        let paths = state.paths();
        let of = |kind: fn(&Kind) -> bool| -> Vec<&String> {
            paths
                .iter()
                .filter(|(_, id)| kind(&state.nodes[id].kind))
                .map(|(p, _)| p)
                .collect()
        };
        let files = of(|k| matches!(k, Kind::File(_)));
        let dirs = of(|k| matches!(k, Kind::Dir(_)));
        let empty = of(|k| matches!(k, Kind::Dir(e) if e.is_empty()));
        let others = of(|k| !matches!(k, Kind::Dir(_)));
        let any: Vec<&String> = paths.iter().map(|(p, _)| p).collect();
        let room = paths.len() < ENTRIES;
        let op = match self.rng.u8(0..100) {
            0..12 if room => {
                let path = self.new_path(state, &dirs);
                Op::Create {
                    path,
                    mode: *self.rng.choice(&[0o644, 0o600, 0o755])?,
                }
            }
            12..17 if room => Op::Mkdir {
                path: self.new_path(state, &dirs),
                mode: 0o755,
            },
            17..21 if room => {
                let target = "t".repeat(*self.rng.choice(&[5, 59, 60, 200, 900])?);
                Op::Symlink {
                    path: self.new_path(state, &dirs),
                    target,
                }
            }
            21..45 => {
                let path = self.pick(&files)?.clone();
                let size = state.node(&path)?.content()?.data.len() as u64;
                let offset = self.offset(size);
                let len = match self.rng.u8(0..3) {
                    0 => self.rng.usize(1..600),
                    1 => self.rng.usize(1..5) * 4096,
                    _ => self.rng.usize(1..20_000),
                };
                (offset + len as u64 <= FILE_MAX).then(|| Op::Write {
                    path,
                    offset,
                    len,
                    key: self.key(),
                })?
            }
            45..50 => {
                let path = self.pick(&files)?.clone();
                let size = state.node(&path)?.content()?.data.len() as u64;
                Op::Truncate {
                    size: self.offset(size),
                    path,
                }
            }
            50..53 => {
                let path = self.pick(&files)?.clone();
                let size = state.node(&path)?.content()?.data.len() as u64;
                let len = self.rng.u64(1..12_000);
                let offset = self.rng.u64(0..=size);
                match self.rng.u8(0..3) {
                    0 => Op::Punch { path, offset, len },
                    1 => Op::Zero { path, offset, len },
                    _ => Op::Allocate { path, offset, len },
                }
            }
            53..57 => Op::Unlink {
                path: self.pick(&others)?.clone(),
            },
            57..58 => Op::HoldUnlink {
                path: self.pick(&files)?.clone(),
            },
            58..61 => Op::Rmdir {
                path: self.pick(&empty)?.clone(),
            },
            61..64 if room => Op::Link {
                from: self.pick(&others)?.clone(),
                to: self.new_path(state, &dirs),
            },
            64..69 => self.rename(state, &any, &dirs)?,
            69..71 => {
                let (a, b) = (self.pick(&any)?.clone(), self.pick(&any)?.clone());
                let below = |a: &str, b: &str| a.starts_with(&format!("{b}/"));
                let free = state.find(&a) != state.find(&b) && !below(&a, &b) && !below(&b, &a);
                free.then_some(Op::Exchange { a, b })?
            }
            71..73 => {
                let path = self.pick(&files)?.clone();
                Op::Chmod {
                    path,
                    mode: *self.rng.choice(&[0o640, 0o444, 0o700])?,
                }
            }
            73..75 => {
                let path = self.pick(&any)?.clone();
                Op::Chown {
                    path,
                    uid: self.rng.u32(0..100_000),
                    gid: self.rng.u32(0..10),
                }
            }
            75..79 => {
                let path = self.pick(&files)?.clone();
                let name = format!("user.{}", self.rng.choice(&["a", "bb", "ccc"])?);
                let len = *self.rng.choice(&[0, 10, 40, 300])?;
                Op::SetXattr {
                    path,
                    name,
                    key: self.key(),
                    len,
                }
            }
            79..81 => {
                let path = self.pick(&files)?.clone();
                let name = state.node(&path)?.xattrs.keys().next()?.clone();
                Op::RemoveXattr { path, name }
            }
            81..90 => Op::Fsync {
                path: self.pick(&files)?.clone(),
            },
            90..94 => Op::Fdatasync {
                path: self.pick(&files)?.clone(),
            },
            94..97 => Op::Fsync {
                path: self.pick(&dirs).cloned().unwrap_or_default(),
            },
            97..98 => Op::SyncAll,
            _ => return None,
        };
        Some(op)
    }

    fn rename(&mut self, state: &State, any: &[&String], dirs: &[&String]) -> Option<Op> {
        let from = self.pick(any)?.clone();
        let to = if self.rng.bool() {
            self.new_path(state, dirs)
        } else {
            self.pick(any)?.clone()
        };
        let into_itself =
            to.starts_with(&format!("{from}/")) || from.starts_with(&format!("{to}/"));
        let fits = match (state.node(&from), state.node(&to)) {
            (Some(_), None) => true,
            (Some(a), Some(b)) if state.find(&from) != state.find(&to) => {
                a.is_dir() == b.is_dir() && !matches!(&b.kind, Kind::Dir(e) if !e.is_empty())
            }
            _ => false,
        };
        (fits && !into_itself).then_some(Op::Rename { from, to })
    }
}
