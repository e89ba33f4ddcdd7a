//! Operations by system calls on a mounted directory, and the tree of such a directory.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, XattrFlags};
use stetfs::low::{FileType, Ino, ROOT_INO};

use super::mapped;
use crate::tree::{Seen, SeenNode, readable};
use crate::workload::op::{Op, bytes, held_number};

/// A user of a mounted directory, who may hold files open.
pub struct PosixSession {
    root: PathBuf,
    held: BTreeMap<u32, File>,
}

impl PosixSession {
    /// A session in the directory `root`.
    pub fn new(root: &Path) -> PosixSession {
        PosixSession {
            root: root.into(),
            held: BTreeMap::new(),
        }
    }

    /// The path in the host's tree; for a held file its link in /proc, which works even if the file
    /// has no name.
    fn at(&self, path: &str) -> PathBuf {
        match self.held(path) {
            Some(file) => format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
            None => self.root.join(path),
        }
    }

    fn held(&self, path: &str) -> Option<&File> {
        self.held.get(&held_number(path)?)
    }

    fn open(&self, path: &str) -> io::Result<File> {
        if let Some(file) = self.held(path) {
            return file.try_clone();
        }
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.at(path))
    }

    /// Opens a file or directory to sync it.
    fn open_to_sync(&self, path: &str) -> io::Result<File> {
        match self.held(path) {
            Some(file) => file.try_clone(),
            None => File::open(self.at(path)),
        }
    }

    /// Runs an operation; on return it is acknowledged.
    ///
    /// # Errors
    /// That of the system call.
    pub fn run(&mut self, op: &Op) -> io::Result<()> {
        match op {
            Op::Create { path, mode } => self.create(path, *mode),
            Op::Mkdir { path, mode } => self.mkdir(path, *mode),
            Op::Symlink { path, target } => symlink(target, self.at(path)),
            Op::Write {
                path,
                offset,
                len,
                key,
            } => self.open(path)?.write_all_at(&bytes(*key, *len), *offset),
            Op::MapWrite {
                path,
                offset,
                len,
                key,
            } => mapped::write(&self.open(path)?, *offset, &bytes(*key, *len)),
            Op::Truncate { path, size } => self.open(path)?.set_len(*size),
            Op::Punch { path, offset, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                self.fallocate(path, flags, *offset, *len)
            }
            Op::Zero {
                path,
                offset,
                len,
                keep: k,
            } => self.fallocate(path, FallocateFlags::ZERO_RANGE | keep(*k), *offset, *len),
            Op::Allocate {
                path,
                offset,
                len,
                keep: k,
            } => self.fallocate(path, keep(*k), *offset, *len),
            Op::Unlink { path } => fs::remove_file(self.at(path)),
            Op::Hold { path, held } => self.hold(path, *held),
            Op::HoldUnlink { path, held } => {
                self.hold(path, *held)?;
                fs::remove_file(self.at(path))
            }
            Op::Tmpfile { held, mode } => self.tmpfile(*held, *mode),
            Op::Close { held } => {
                drop(self.held.remove(held));
                Ok(())
            }
            Op::Rmdir { path } => fs::remove_dir(self.at(path)),
            Op::Link { from, to } => self.link(from, to),
            Op::Rename { from, to } => fs::rename(self.at(from), self.at(to)),
            Op::Exchange { a, b } => self.exchange(a, b),
            Op::Chmod { path, mode } => fs::set_permissions(self.at(path), permissions(*mode)),
            Op::Chown { path, uid, gid } => self.chown(path, *uid, *gid),
            Op::SetXattr {
                path,
                name,
                key,
                len,
            } => self.set_xattr(path, name, &bytes(*key, *len)),
            Op::RemoveXattr { path, name } => self.remove_xattr(path, name),
            // No flag is changed, because the kernel does not survive fast commits of files with
            // block maps.
            Op::Chattr { .. } => Ok(()),
            Op::Fsync { path } => self.open_to_sync(path)?.sync_all(),
            Op::Fdatasync { path } => self.open_to_sync(path)?.sync_data(),
            Op::SyncAll => sync_fs(&self.root),
            // Only the library has these; the swarm uses them.
            Op::Mkfifo { .. } | Op::RenameNew { .. } | Op::Whiteout { .. } => unsupported(),
            Op::Copy { .. } | Op::SetAcl { .. } | Op::Limit { .. } => unsupported(),
            Op::Project { .. } | Op::Memory { .. } | Op::Trim => unsupported(),
            Op::Remount | Op::Act { .. } | Op::Refused { .. } => unsupported(),
            // A mount has only atomic groups of one file, by descriptor; FUSE has no freezing.
            Op::Atomic { .. } | Op::Early | Op::Commit | Op::Abort => unsupported(),
            Op::Freeze | Op::Thaw => unsupported(),
        }
    }
}

fn unsupported() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// Operations on names.
impl PosixSession {
    fn create(&self, path: &str, mode: u32) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(self.at(path))?;
        file.set_permissions(permissions(mode))
    }

    fn mkdir(&self, path: &str, mode: u32) -> io::Result<()> {
        fs::create_dir(self.at(path))?;
        fs::set_permissions(self.at(path), permissions(mode))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let follow = match self.held(from) {
            Some(_) => AtFlags::SYMLINK_FOLLOW,
            None => AtFlags::empty(),
        };
        let (from, to) = (self.at(from), self.at(to));
        Ok(rustix::fs::linkat(CWD, from, CWD, to, follow)?)
    }

    fn exchange(&self, a: &str, b: &str) -> io::Result<()> {
        let (a, b) = (self.at(a), self.at(b));
        let flags = RenameFlags::EXCHANGE;
        Ok(rustix::fs::renameat_with(CWD, a, CWD, b, flags)?)
    }
}

/// Operations on files that are held open.
impl PosixSession {
    fn hold(&mut self, path: &str, held: u32) -> io::Result<()> {
        let file = self.open(path)?;
        self.held.insert(held, file);
        Ok(())
    }

    fn tmpfile(&mut self, held: u32, mode: u32) -> io::Result<()> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .open(&self.root)?;
        file.set_permissions(permissions(mode))?;
        self.held.insert(held, file);
        Ok(())
    }
}

/// Operations on blocks and attributes.
impl PosixSession {
    fn fallocate(
        &self,
        path: &str,
        flags: FallocateFlags,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        Ok(rustix::fs::fallocate(self.open(path)?, flags, offset, len)?)
    }

    fn chown(&self, path: &str, uid: u32, gid: u32) -> io::Result<()> {
        match self.held(path) {
            Some(file) => std::os::unix::fs::fchown(file, Some(uid), Some(gid)),
            None => std::os::unix::fs::lchown(self.at(path), Some(uid), Some(gid)),
        }
    }

    fn set_xattr(&self, path: &str, name: &str, value: &[u8]) -> io::Result<()> {
        let flags = XattrFlags::empty();
        match self.held(path) {
            Some(file) => rustix::fs::fsetxattr(file, name, value, flags)?,
            None => rustix::fs::lsetxattr(self.at(path), name, value, flags)?,
        }
        Ok(())
    }

    fn remove_xattr(&self, path: &str, name: &str) -> io::Result<()> {
        match self.held(path) {
            Some(file) => rustix::fs::fremovexattr(file, name)?,
            None => rustix::fs::lremovexattr(self.at(path), name)?,
        }
        Ok(())
    }
}

fn permissions(mode: u32) -> Permissions {
    Permissions::from_mode(mode)
}

fn keep(size: bool) -> FallocateFlags {
    if size {
        FallocateFlags::KEEP_SIZE
    } else {
        FallocateFlags::empty()
    }
}

/// Runs syncfs(2).
///
/// # Errors
/// That of the system call.
pub fn sync_fs(dir: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?.as_fd())?)
}

/// Makes an empty directory of root with mode 755.
///
/// # Errors
/// That of the system call.
pub fn make_dir(path: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    chown(path, Some(0), Some(0))?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

/// The entry of the root directory that is not part of the workload.
const NOT_OURS: &str = "lost+found";

/// The tree of a mounted directory.
///
/// # Errors
/// The file or directory that cannot be read.
pub fn capture(root: &Path) -> Result<Seen, String> {
    let mut seen = Seen {
        nodes: BTreeMap::new(),
    };
    let mut numbers: BTreeMap<u64, Ino> = BTreeMap::new();
    let mut todo = vec![(root.to_owned(), ROOT_INO)];
    while let Some((path, ino)) = todo.pop() {
        let said = |e: io::Error| format!("{}: {e}", path.display());
        let meta = fs::symlink_metadata(&path).map_err(said)?;
        let kind = meta.file_type();
        let mut node = SeenNode {
            kind: if kind.is_dir() {
                FileType::Directory
            } else if kind.is_symlink() {
                FileType::Symlink
            } else {
                FileType::Regular
            },
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            flags: 0,
            nlink: meta.nlink() as u32,
            size: meta.size(),
            blocks: meta.blocks(),
            xattrs: xattrs(&path).map_err(said)?,
            content: Vec::new(),
            target: Vec::new(),
            entries: BTreeMap::new(),
        };
        if kind.is_symlink() {
            node.target = fs::read_link(&path)
                .map_err(said)?
                .as_os_str()
                .as_bytes()
                .to_vec();
        } else if kind.is_file() {
            node.content = fs::read(&path).map_err(said)?;
        } else if kind.is_dir() {
            for entry in fs::read_dir(&path).map_err(said)? {
                let entry = entry.map_err(said)?;
                let name = readable(entry.file_name().as_bytes());
                if name == NOT_OURS {
                    continue;
                }
                let meta = fs::symlink_metadata(entry.path()).map_err(said)?;
                let next = 1000 + numbers.len() as Ino;
                let new = !numbers.contains_key(&meta.ino());
                let child = *numbers.entry(meta.ino()).or_insert(next);
                node.entries.insert(name, child);
                if new {
                    todo.push((entry.path(), child));
                }
            }
        }
        seen.nodes.insert(ino, node);
    }
    Ok(seen)
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut names = vec![0u8; 65_536];
    let path = CString::new(path.as_os_str().as_bytes())?;
    let n = rustix::fs::llistxattr(path.as_c_str(), &mut names)?;
    let mut out = BTreeMap::new();
    for name in names
        .get(..n)
        .unwrap_or_default()
        .split(|b| *b == 0)
        .filter(|n| n.starts_with(b"user."))
    {
        let mut value = vec![0u8; 65_536];
        let n = rustix::fs::lgetxattr(path.as_c_str(), name, &mut value)?;
        value.truncate(n);
        out.insert(readable(name), value);
    }
    Ok(out)
}
