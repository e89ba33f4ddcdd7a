//! The model: the expected tree after a list of operations.

use std::collections::{BTreeMap, BTreeSet};

use super::Bytes;
use super::op::Op;
use crate::tree::{Entry, Kind, Time, Tree, content_hash, escape, xattr_value};

#[derive(Clone, Debug)]
enum Content {
    File(Vec<u8>),
    Directory,
    Symlink(String),
}

#[derive(Clone, Debug)]
struct Node {
    content: Content,
    mode: u32,
    uid: u32,
    gid: u32,
    xattrs: BTreeMap<String, Vec<u8>>,
    /// The mtime if it was set explicitly and no later operation used the clock's time.
    mtime: Option<Time>,
}

/// A file system in memory, with names, inodes and content; it applies the same operations as a
/// real one.
#[derive(Clone, Debug)]
pub struct Model {
    bytes: Bytes,
    nodes: BTreeMap<u64, Node>,
    /// The node of each path below the root (`""` is the root). The order makes everything below a
    /// directory a range.
    names: BTreeMap<String, u64>,
    next: u64,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl Model {
    /// An empty root directory; operations take their content from `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        let root = Node {
            content: Content::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            xattrs: BTreeMap::new(),
            mtime: None,
        };
        Self {
            bytes,
            nodes: BTreeMap::from([(0, root)]),
            names: BTreeMap::from([(String::new(), 0)]),
            next: 1,
        }
    }

    /// Paths of regular files, in order.
    pub fn files(&self) -> Vec<&str> {
        self.paths(|n| matches!(n.content, Content::File(_)))
    }

    /// Paths of directories, the root (`""`) first.
    pub fn directories(&self) -> Vec<&str> {
        self.paths(|n| matches!(n.content, Content::Directory))
    }

    /// Paths of everything but the root.
    pub fn all(&self) -> Vec<&str> {
        self.names
            .keys()
            .map(String::as_str)
            .filter(|p| !p.is_empty())
            .collect()
    }

    fn paths(&self, wanted: impl Fn(&Node) -> bool) -> Vec<&str> {
        self.names
            .iter()
            .filter(|(_, id)| self.nodes.get(id).is_some_and(&wanted))
            .map(|(p, _)| p.as_str())
            .collect()
    }

    /// Whether a file has this path.
    pub fn exists(&self, path: &str) -> bool {
        self.names.contains_key(path)
    }

    /// Whether the path is a directory.
    pub fn is_directory(&self, path: &str) -> bool {
        self.node(path)
            .is_some_and(|n| matches!(n.content, Content::Directory))
    }

    /// Whether the path is a symlink.
    pub fn is_symlink(&self, path: &str) -> bool {
        self.node(path)
            .is_some_and(|n| matches!(n.content, Content::Symlink(_)))
    }

    /// Whether both paths name one inode.
    pub fn same_inode(&self, a: &str, b: &str) -> bool {
        self.names
            .get(a)
            .is_some_and(|id| self.names.get(b) == Some(id))
    }

    /// Size of a file in bytes; 0 for anything else.
    pub fn size(&self, path: &str) -> u64 {
        match self.node(path).map(|n| &n.content) {
            Some(Content::File(data)) => data.len() as u64,
            _ => 0,
        }
    }

    /// Names of the extended attributes of a path.
    pub fn xattr_names(&self, path: &str) -> Vec<&str> {
        self.node(path)
            .map(|n| n.xattrs.keys().map(String::as_str).collect())
            .unwrap_or_default()
    }

    /// Paths strictly below a directory.
    pub fn below(&self, dir: &str) -> Vec<String> {
        let prefix = if dir.is_empty() {
            String::new()
        } else {
            format!("{dir}/")
        };
        self.names
            .range(prefix.clone()..)
            .map(|(p, _)| p)
            .take_while(|p| p.starts_with(&prefix))
            .filter(|p| !p.is_empty())
            .cloned()
            .collect()
    }

    fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(self.names.get(path)?)
    }

    fn change(&mut self, path: &str, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.names.get(path).and_then(|id| self.nodes.get_mut(id)) {
            change(node);
        }
    }

    /// The directory that holds `path` gets the clock's time as its mtime.
    fn entry_changed(&mut self, path: &str) {
        self.change(parent(path), |n| n.mtime = None);
    }

    fn add(&mut self, path: &str, content: Content, mode: u32) {
        let node = Node {
            content,
            mode,
            uid: 0,
            gid: 0,
            xattrs: BTreeMap::new(),
            mtime: None,
        };
        self.nodes.insert(self.next, node);
        self.names.insert(path.to_owned(), self.next);
        self.next += 1;
        self.entry_changed(path);
    }

    fn remove(&mut self, path: &str) {
        if let Some(id) = self.names.remove(path)
            && !self.names.values().any(|other| *other == id)
        {
            self.nodes.remove(&id);
        }
        self.entry_changed(path);
    }

    /// Removes a name and everything below it; the nodes stay.
    fn take(&mut self, path: &str) -> Vec<(String, u64)> {
        let mut moved = self.below(path);
        moved.push(path.to_owned());
        moved
            .into_iter()
            .filter_map(|p| Some((p.clone(), self.names.remove(&p)?)))
            .collect()
    }

    fn put(&mut self, taken: Vec<(String, u64)>, from: &str, to: &str) {
        for (path, id) in taken {
            let rest = path.strip_prefix(from).unwrap_or_default();
            self.names.insert(format!("{to}{rest}"), id);
        }
        self.entry_changed(from);
        self.entry_changed(to);
        self.change(to, |n| {
            n.mtime = n.mtime.filter(|_| !matches!(n.content, Content::Directory))
        });
    }

    /// Applies an operation to the model, as [`Op::apply`] does to a directory. The operation must
    /// be one that succeeds.
    pub fn apply(&mut self, op: &Op) {
        let bytes = self.bytes;
        match op {
            Op::Create { path, mode } => self.add(path, Content::File(Vec::new()), *mode),
            Op::Mkdir { path, mode } => self.add(path, Content::Directory, *mode),
            Op::Symlink { path, target } => self.add(path, Content::Symlink(target.clone()), 0o777),
            Op::Write {
                path,
                offset,
                key,
                length,
            } => {
                self.overwrite(path, *offset, &bytes.get(*key, *length), true);
            }
            Op::Zero {
                path,
                offset,
                length,
            } => self.overwrite(path, *offset, &vec![0; *length], true),
            Op::Punch {
                path,
                offset,
                length,
            } => self.overwrite(path, *offset, &vec![0; *length], false),
            Op::Truncate { path, size } => self.change(path, |n| {
                if let Content::File(data) = &mut n.content {
                    data.resize(usize::try_from(*size).unwrap_or(usize::MAX), 0);
                    n.mtime = None;
                }
            }),
            Op::Unlink { path } | Op::Rmdir { path } => self.remove(path),
            Op::Link { from, to } => {
                if let Some(&id) = self.names.get(from) {
                    self.names.insert(to.clone(), id);
                    self.entry_changed(to);
                }
            }
            Op::Rename { from, to } => {
                if !self.same_inode(from, to) {
                    if self.exists(to) {
                        self.remove(to);
                    }
                    let taken = self.take(from);
                    self.put(taken, from, to);
                }
            }
            Op::Exchange { a, b } => {
                let (taken_a, taken_b) = (self.take(a), self.take(b));
                self.put(taken_a, a, b);
                self.put(taken_b, b, a);
            }
            Op::Chmod { path, mode } => self.change(path, |n| n.mode = *mode),
            Op::Chown { path, uid, gid } => self.change(path, |n| (n.uid, n.gid) = (*uid, *gid)),
            Op::SetXattr {
                path,
                name,
                key,
                length,
            } => {
                self.change(path, |n| {
                    drop(n.xattrs.insert(name.clone(), bytes.get(*key, *length)))
                });
            }
            Op::RemoveXattr { path, name } => self.change(path, |n| drop(n.xattrs.remove(name))),
            Op::SetTimes { path, mtime } => self.change(path, |n| n.mtime = Some(*mtime)),
            Op::Fsync { .. } | Op::SyncFs => {}
        }
    }

    fn overwrite(&mut self, path: &str, offset: u64, new: &[u8], grow: bool) {
        self.change(path, |n| {
            let Content::File(data) = &mut n.content else {
                return;
            };
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let end = start.saturating_add(new.len());
            if grow && data.len() < end {
                data.resize(end, 0);
            }
            let end = end.min(data.len());
            if start < end {
                data[start..end].copy_from_slice(&new[..end - start]);
            }
            n.mtime = None;
        });
    }

    /// Every path whose state `op` may change: its own, those below it, other names of the same
    /// inode, and the directory that holds it. Call it before the operation is applied.
    pub fn touched(&self, op: &Op) -> BTreeSet<String> {
        let mut out = BTreeSet::new();
        for path in op.paths() {
            out.insert(path.to_owned());
            out.insert(parent(path).to_owned());
            out.extend(self.below(path));
            if let Some(id) = self.names.get(path) {
                out.extend(
                    self.names
                        .iter()
                        .filter(|(_, other)| *other == id)
                        .map(|(p, _)| p.clone()),
                );
            }
        }
        // Removing a name changes the link count of the inode's other names; a directory below
        // moves with all its names.
        let ids: BTreeSet<u64> = out
            .iter()
            .filter_map(|p| self.names.get(p).copied())
            .collect();
        out.extend(
            self.names
                .iter()
                .filter(|(_, id)| ids.contains(id))
                .map(|(p, _)| p.clone()),
        );
        out
    }

    /// The tree that [`Tree::capture`] must see with its default options (with times only where
    /// they are known).
    pub fn tree(&self) -> Tree {
        let mut names_of: BTreeMap<u64, Vec<&String>> = BTreeMap::new();
        for (path, id) in &self.names {
            names_of.entry(*id).or_default().push(path);
        }
        let mut tree = Tree::default();
        for (path, id) in &self.names {
            let (Some(node), Some(names)) = (self.nodes.get(id), names_of.get(id)) else {
                continue;
            };
            let (kind, size, target, content, nlink) = match &node.content {
                Content::File(data) => {
                    let hash = content_hash(data);
                    (
                        Kind::File,
                        Some(data.len() as u64),
                        None,
                        Some(hash),
                        names.len() as u64,
                    )
                }
                Content::Symlink(t) => (
                    Kind::Symlink,
                    Some(t.len() as u64),
                    Some(escape(t.as_bytes())),
                    None,
                    names.len() as u64,
                ),
                Content::Directory => (
                    Kind::Directory,
                    None,
                    None,
                    None,
                    2 + self.subdirectories(path),
                ),
            };
            tree.entries.insert(
                path.clone(),
                Entry {
                    kind,
                    mode: node.mode,
                    uid: node.uid,
                    gid: node.gid,
                    nlink,
                    size,
                    rdev: None,
                    mtime: node.mtime,
                    ctime: None,
                    atime: None,
                    target,
                    content,
                    xattrs: node
                        .xattrs
                        .iter()
                        .map(|(k, v)| (k.clone(), xattr_value(v)))
                        .collect(),
                    link_of: names
                        .first()
                        .filter(|_| names.len() > 1)
                        .map(|p| (*p).clone()),
                    data: None,
                    blocks: None,
                    inode: None,
                    flags: None,
                },
            );
        }
        tree
    }

    fn subdirectories(&self, dir: &str) -> u64 {
        self.below(dir)
            .iter()
            .filter(|p| parent(p) == dir && self.is_directory(p))
            .count() as u64
    }
}
