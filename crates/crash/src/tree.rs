//! The tree of a volume: a walk over everything that a name leads to, with consistency checks.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::workload::op::KEPT_FLAGS;
use stetfs::low::{Ctx, FileType, Fs, FsError, Ino, OpenRef, ROOT_INO};

/// One inode as the walk sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenNode {
    /// Type.
    pub kind: FileType,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Flags of chattr(1), only those that the model keeps.
    pub flags: u32,
    /// Hard links by the inode's count.
    pub nlink: u32,
    /// Size, bytes.
    pub size: u64,
    /// Space used, 512-byte units.
    pub blocks: u64,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Content of a regular file.
    pub content: Vec<u8>,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Entries of a directory, without `.` and `..`.
    pub entries: BTreeMap<String, Ino>,
}

/// All inodes that a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The inodes by number.
    pub nodes: BTreeMap<Ino, SeenNode>,
}

/// Bytes read of a file at most.
pub(crate) const READ_MAX: u64 = 4 << 20;
/// Most entries of a directory; a listing with more is taken to be endless.
const ENTRIES_MAX: usize = 1 << 17;

/// Reads a directory; its entries are in order of their cookies.
///
/// # Errors
/// The volume's, and a listing without an end.
pub fn entries(fs: &Fs, dir: &OpenRef) -> Result<Vec<stetfs::low::DirEntry>, FsError> {
    let mut all = Vec::new();
    let mut cookie = 0;
    loop {
        let before = all.len();
        fs.readdir(dir, cookie, &mut |entry| {
            cookie = entry.next;
            all.push(entry);
            all.len() - before < 500
        })?;
        if all.len() == before {
            return Ok(all);
        }
        if all.len() > ENTRIES_MAX {
            return Err(FsError::corrupt(
                "directory",
                0,
                "the directory listing is endless (circular cookies)",
            ));
        }
    }
}

/// Reads a file of `size` bytes, at most the first 4 MiB.
///
/// # Errors
/// The volume's.
pub fn read(fs: &Fs, file: &OpenRef, size: u64) -> Result<Vec<u8>, FsError> {
    let mut content = vec![0; size.min(READ_MAX) as usize];
    let mut at = 0;
    while at < content.len() {
        match fs.read(file, at as u64, &mut content[at..])? {
            0 => break,
            n => at += n,
        }
    }
    content.truncate(at);
    Ok(content)
}

fn xattrs(fs: &Fs, ino: Ino) -> Result<BTreeMap<String, Vec<u8>>, FsError> {
    let list = fs.listxattr(ino)?;
    list.split(|b| *b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| Ok((readable(name), fs.getxattr(ino, name)?)))
        .collect()
}

/// Reads one inode; with `content` also the content of a regular file.
///
/// # Errors
/// The volume's.
pub fn look(fs: &Fs, ino: Ino, content: bool) -> Result<SeenNode, FsError> {
    let attr = fs.getattr(ino)?;
    let mut node = SeenNode {
        kind: attr.kind,
        mode: attr.mode & 0o7777,
        uid: attr.uid,
        gid: attr.gid,
        flags: attr.flags & KEPT_FLAGS,
        nlink: attr.nlink,
        size: attr.size,
        blocks: attr.blocks,
        xattrs: xattrs(fs, ino)?,
        content: Vec::new(),
        target: Vec::new(),
        entries: BTreeMap::new(),
    };
    match attr.kind {
        FileType::Regular if content => {
            // Reading must not change the access time.
            let file = fs.open_inode(&Ctx::default(), ino, libc::O_RDONLY | libc::O_NOATIME)?;
            node.content = read(fs, &file, attr.size)?;
        }
        FileType::Symlink => node.target = fs.readlink(ino)?,
        _ => {}
    }
    Ok(node)
}

impl Seen {
    /// Walks the whole volume.
    ///
    /// # Errors
    /// The first inconsistency, in words.
    pub fn capture(fs: &Arc<Fs>) -> Result<Seen, String> {
        Seen::walk(fs, true)
    }

    /// Walks the whole volume without reading files.
    ///
    /// # Errors
    /// The first inconsistency, in words.
    pub fn capture_without_content(fs: &Arc<Fs>) -> Result<Seen, String> {
        Seen::walk(fs, false)
    }

    fn walk(fs: &Arc<Fs>, content: bool) -> Result<Seen, String> {
        let mut seen = Seen {
            nodes: BTreeMap::new(),
        };
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut todo = vec![(ROOT_INO, ROOT_INO)];
        while let Some((ino, parent)) = todo.pop() {
            let mut node = look(fs, ino, content).map_err(|e| format!("inode {ino}: {e}"))?;
            if content
                && node.kind == FileType::Regular
                && node.content.len() as u64 != node.size.min(READ_MAX)
            {
                return Err(format!(
                    "inode {ino}: size {}, but {} bytes to read",
                    node.size,
                    node.content.len()
                ));
            }
            if node.kind == FileType::Directory {
                let listed = list(fs, ino, parent).map_err(|e| format!("directory {ino}: {e}"))?;
                for (name, child, kind) in listed {
                    *names.entry(child).or_default() += 1;
                    if kind == FileType::Directory {
                        todo.push((child, ino));
                    } else if let Entry::Vacant(place) = seen.nodes.entry(child) {
                        let file = look(fs, child, content)
                            .map_err(|e| format!("{name:?}, inode {child}: {e}"))?;
                        place.insert(file);
                    }
                    node.entries.insert(name, child);
                }
            }
            if seen.nodes.insert(ino, node).is_some() && ino != ROOT_INO {
                return Err(format!("directory {ino} is reached twice"));
            }
        }
        seen.check_links(&names)?;
        Ok(seen)
    }

    fn check_links(&self, names: &BTreeMap<Ino, u32>) -> Result<(), String> {
        for (ino, node) in &self.nodes {
            let want = match node.kind {
                FileType::Directory => {
                    2 + node
                        .entries
                        .values()
                        .filter(|i| self.nodes[*i].kind == FileType::Directory)
                        .count() as u32
                }
                _ => names.get(ino).copied().unwrap_or(0),
            };
            if node.nlink != want {
                return Err(format!(
                    "inode {ino}: {} links, but {want} names lead to it",
                    node.nlink
                ));
            }
        }
        Ok(())
    }

    /// The inode at a path below the volume's root.
    pub fn find(&self, path: &str) -> Option<Ino> {
        path.split('/')
            .filter(|n| !n.is_empty())
            .try_fold(ROOT_INO, |at, name| {
                self.nodes.get(&at)?.entries.get(name).copied()
            })
    }

    /// The blocks that the files use, and the number of inodes.
    pub fn usage(&self, block: u64) -> (u64, u64) {
        let sectors: u64 = self.nodes.values().map(|n| n.blocks).sum();
        (sectors * 512 / block, self.nodes.len() as u64)
    }
}

/// A printable name, distinct for distinct names: bytes that are no UTF-8 are written as escapes.
pub(crate) fn readable(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("\u{fffd}{}", name.escape_ascii()),
    }
}

/// The entries of a directory, checked against lookups and the inodes that they name.
fn list(fs: &Arc<Fs>, dir: Ino, parent: Ino) -> Result<Vec<(String, Ino, FileType)>, String> {
    let open = fs
        .open_inode(&Ctx::default(), dir, libc::O_RDONLY | libc::O_DIRECTORY)
        .map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in entries(fs, &open).map_err(|e| e.to_string())? {
        let name = readable(&entry.name);
        if !seen.insert(entry.name.clone()) {
            return Err(format!("{name:?} is there twice"));
        }
        let found = fs
            .lookup(dir, &entry.name)
            .map_err(|e| format!("{name:?} is listed, but lookup says: {e}"))?;
        fs.forget(found.ino, 1);
        if found.ino != entry.ino || entry.kind.is_some_and(|k| k != found.kind) {
            return Err(format!(
                "{name:?} is listed as {entry:?}, but looked up as {found:?}"
            ));
        }
        match name.as_str() {
            "." if entry.ino == dir => {}
            ".." if entry.ino == parent => {}
            "." | ".." => return Err(format!("{name} leads to {}", entry.ino)),
            _ => out.push((name, entry.ino, found.kind)),
        }
    }
    if seen.len() != out.len() + 2 {
        return Err("`.` or `..` is missing".into());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use stetfs::low::preset;

    use super::*;
    use crate::volume::{base, options};

    #[test]
    fn names_that_are_no_text_are_told_apart() {
        let device = Arc::new(base(1024).unwrap().image.fork());
        let fs = Fs::open(device, options(preset::ORDERED)).unwrap();
        let before = Seen::capture(&fs).unwrap().nodes.len();
        let names: [&[u8]; 4] = [b"\xff\xfe", b"\xff\x90", "ü".as_bytes(), b"\xfc"];
        for name in names {
            let dir = fs.mkdir(&Ctx::default(), ROOT_INO, name, 0o755, 0).unwrap();
            fs.forget(dir.ino, 1);
        }
        let seen = Seen::capture(&fs).unwrap();
        assert_eq!(seen.nodes.len(), before + names.len());
        fs.unmount().unwrap();
    }
}
