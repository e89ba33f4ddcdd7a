//! A walk over a volume that continues after errors.

use std::collections::BTreeSet;
use std::sync::Arc;

use stetfs::low::{Ctx, FileType, Fs, FsError, Ino, ROOT_INO, SeekWhat};

/// The results of a walk.
#[derive(Debug, Default)]
pub struct Found {
    /// Directories.
    pub dirs: Vec<Ino>,
    /// Regular files.
    pub files: Vec<Ino>,
    /// A directory and a name in it.
    pub names: Vec<(Ino, Vec<u8>)>,
    /// The errors, in words.
    pub errors: Vec<String>,
}

/// Most inodes to look at.
const INODES: usize = 2000;
/// Most names to look at in one directory.
const NAMES: usize = 1500;

impl Found {
    fn note<T>(&mut self, what: &str, ino: Ino, result: Result<T, FsError>) -> Option<T> {
        result
            .map_err(|e| self.errors.push(format!("{what} of inode {ino}: {e}")))
            .ok()
    }
}

/// Walks over all names that can be reached, and reads the files that they name.
pub fn wander(fs: &Arc<Fs>, rng: &mut fastrand::Rng) -> Found {
    let mut found = Found::default();
    let mut todo = vec![ROOT_INO];
    let mut known = BTreeSet::from([ROOT_INO]);
    while let Some(ino) = todo.pop() {
        let attr = fs.getattr(ino);
        let Some(attr) = found.note("attributes", ino, attr) else {
            continue;
        };
        let list = fs.listxattr(ino);
        for name in found
            .note("xattr names", ino, list)
            .unwrap_or_default()
            .split(|b| *b == 0)
            .take(100)
        {
            if !name.is_empty() {
                let value = fs.getxattr(ino, name);
                found.note("xattr", ino, value);
            }
        }
        match attr.kind {
            FileType::Directory => {
                found.dirs.push(ino);
                for (name, child) in names(fs, ino, &mut found) {
                    if known.len() < INODES && known.insert(child) {
                        todo.push(child);
                    }
                    found.names.push((ino, name));
                }
            }
            FileType::Regular => {
                found.files.push(ino);
                read_parts(fs, ino, attr.size, &mut found, rng);
            }
            FileType::Symlink => {
                let target = fs.readlink(ino);
                found.note("target", ino, target);
            }
            _ => {}
        }
    }
    fs.statfs();
    found
}

fn names(fs: &Arc<Fs>, dir: Ino, found: &mut Found) -> Vec<(Vec<u8>, Ino)> {
    let open = fs.open_inode(&Ctx::default(), dir, libc::O_RDONLY);
    let Some(open) = found.note("open", dir, open) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    let mut cookie = 0;
    loop {
        let before = all.len();
        let result = fs.readdir(&open, cookie, &mut |entry| {
            cookie = entry.next;
            all.push((entry.name, entry.ino));
            all.len() - before < 200
        });
        if found.note("entries", dir, result).is_none() || all.len() == before || all.len() > NAMES
        {
            break;
        }
    }
    all.retain(|(name, _)| name != b"." && name != b"..");
    for (name, _) in &all {
        let looked_up = fs.lookup(dir, name);
        if let Some(attr) = found.note("lookup", dir, looked_up) {
            fs.forget(attr.ino, 1);
        }
    }
    for name in [&b".."[..], b"no such name"] {
        if let Ok(attr) = fs.lookup(dir, name) {
            fs.forget(attr.ino, 1);
        }
    }
    all
}

fn read_parts(fs: &Arc<Fs>, ino: Ino, size: u64, found: &mut Found, rng: &mut fastrand::Rng) {
    let file = fs.open_inode(&Ctx::default(), ino, libc::O_RDONLY);
    let Some(file) = found.note("open", ino, file) else {
        return;
    };
    let mut buf = vec![0; 64 << 10];
    for at in [0, size.saturating_sub(5000), rng.u64(0..=size), rng.u64(..)] {
        let read = fs.read(&file, at, &mut buf);
        found.note("content", ino, read);
    }
    let mut at = 0;
    for _ in 0..50 {
        match fs
            .seek(&file, at, SeekWhat::Data)
            .and_then(|at| fs.seek(&file, at, SeekWhat::Hole))
        {
            Ok(hole) if hole > at => at = hole,
            Err(FsError::Errno(libc::ENXIO)) | Ok(_) => break,
            Err(e) => {
                found.errors.push(format!("extents of inode {ino}: {e}"));
                break;
            }
        }
    }
}
