//! The operations that change a tree.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, RenameFlags, Timespec, Timestamps, XattrFlags, fallocate,
    lremovexattr, lsetxattr, renameat_with, utimensat,
};
use serde::{Deserialize, Serialize};

use super::bytes::Bytes;
use crate::tree::Time;

/// A change. Paths are relative to the workload's directory; content is given by the key from which
/// [`Bytes`] makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
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
        key: u64,
        length: usize,
    },
    Zero {
        path: String,
        offset: u64,
        length: usize,
    },
    Punch {
        path: String,
        offset: u64,
        length: usize,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Unlink {
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
        length: usize,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    SetTimes {
        path: String,
        mtime: Time,
    },
    Fsync {
        path: String,
    },
    SyncFs,
}

impl Op {
    /// The paths that it names.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::Link { from, to } | Self::Rename { from, to } => vec![from, to],
            Self::Exchange { a, b } => vec![a, b],
            Self::SyncFs => vec![],
            Self::Create { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Symlink { path, .. }
            | Self::Write { path, .. }
            | Self::Zero { path, .. }
            | Self::Punch { path, .. }
            | Self::Truncate { path, .. }
            | Self::Unlink { path }
            | Self::Rmdir { path }
            | Self::Chmod { path, .. }
            | Self::Chown { path, .. }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::SetTimes { path, .. }
            | Self::Fsync { path } => vec![path],
        }
    }

    /// Runs the operation below `root`.
    pub fn apply(&self, root: &Path, bytes: &Bytes) -> Result<()> {
        self.perform(root, bytes)
            .with_context(|| format!("{self:?}"))
    }

    fn perform(&self, root: &Path, bytes: &Bytes) -> Result<()> {
        let p = |path: &str| below(root, path);
        let open = |path: &str| OpenOptions::new().write(true).open(p(path));
        match self {
            Self::Create { path, mode } => create(&p(path), *mode)?,
            Self::Mkdir { path, mode } => mkdir(&p(path), *mode)?,
            Self::Symlink { path, target } => symlink(target, p(path))?,
            Self::Write {
                path,
                offset,
                key,
                length,
            } => open(path)?.write_all_at(&bytes.get(*key, *length), *offset)?,
            Self::Zero {
                path,
                offset,
                length,
            } => {
                let flags = FallocateFlags::ZERO_RANGE;
                fallocate(open(path)?, flags, *offset, *length as u64)?;
            }
            Self::Punch {
                path,
                offset,
                length,
            } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(open(path)?, flags, *offset, *length as u64)?;
            }
            Self::Truncate { path, size } => open(path)?.set_len(*size)?,
            Self::Unlink { path } => fs::remove_file(p(path))?,
            Self::Rmdir { path } => fs::remove_dir(p(path))?,
            Self::Link { from, to } => fs::hard_link(p(from), p(to))?,
            Self::Rename { from, to } => fs::rename(p(from), p(to))?,
            Self::Exchange { a, b } => renameat_with(CWD, p(a), CWD, p(b), RenameFlags::EXCHANGE)?,
            Self::Chmod { path, mode } => fs::set_permissions(p(path), permissions(*mode))?,
            Self::Chown { path, uid, gid } => lchown(p(path), Some(*uid), Some(*gid))?,
            Self::SetXattr {
                path,
                name,
                key,
                length,
            } => {
                let value = bytes.get(*key, *length);
                lsetxattr(p(path), name.as_str(), &value, XattrFlags::empty())?;
            }
            Self::RemoveXattr { path, name } => lremovexattr(p(path), name.as_str())?,
            Self::SetTimes { path, mtime } => set_times(&p(path), *mtime)?,
            Self::Fsync { path } => File::open(p(path))?.sync_all()?,
            Self::SyncFs => rustix::fs::syncfs(File::open(root)?)?,
        }
        Ok(())
    }
}

fn below(root: &Path, path: &str) -> PathBuf {
    if path.is_empty() {
        root.to_owned()
    } else {
        root.join(path)
    }
}

fn permissions(mode: u32) -> fs::Permissions {
    fs::Permissions::from_mode(mode)
}

/// Creates a file with this mode, whatever the umask.
fn create(path: &Path, mode: u32) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.set_permissions(permissions(mode))
}

/// Creates a directory with this mode, whatever the umask.
fn mkdir(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir(path)?;
    fs::set_permissions(path, permissions(mode))
}

/// Sets both times; of a symbolic link its own.
fn set_times(path: &Path, mtime: Time) -> io::Result<()> {
    let time = Timespec {
        tv_sec: mtime.0,
        tv_nsec: mtime.1,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
