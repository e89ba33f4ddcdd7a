//! What a directory tree must look like after each operation of a script.

mod allows;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::op::{Op, bytes, held_number};

/// A file of the model, whatever its names. Never used twice.
pub type NodeId = usize;

/// The names of each file: directory and name.
pub type Links = BTreeMap<NodeId, Vec<(NodeId, String)>>;

/// The directory that a script works in.
pub const ROOT: NodeId = 0;

/// A regular file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// All bytes.
    pub data: Arc<Vec<u8>>,
    /// Blocks that hold written data, and the operation that made them do so.
    pub born: Arc<BTreeMap<u64, usize>>,
}

impl Content {
    fn empty() -> Content {
        Content {
            data: Arc::default(),
            born: Arc::default(),
        }
    }
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File(Content),
    /// A directory.
    Dir(BTreeMap<String, NodeId>),
    /// A symbolic link and its target.
    Symlink(String),
}

/// A file of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is, and holds.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of a file.
    pub links: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// It never had a name, so linkat(2) may give it one.
    pub nameless: bool,
    /// The last operation that an fsync of it makes durable.
    pub changed: usize,
    /// The last operation that an fdatasync of it makes durable.
    pub data_changed: usize,
}

impl Node {
    fn new(kind: Kind, mode: u32, at: usize) -> Node {
        Node {
            kind,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
            xattrs: BTreeMap::new(),
            nameless: false,
            changed: at,
            data_changed: at,
        }
    }

    /// What a regular file holds.
    pub fn content(&self) -> Option<&Content> {
        match &self.kind {
            Kind::File(content) => Some(content),
            _ => None,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Dir(_))
    }
}

/// The tree at one moment.
#[derive(Clone, Debug)]
pub struct State {
    /// All files that have a name, or are held open.
    pub nodes: BTreeMap<NodeId, Arc<Node>>,
    /// The files that are held open, by number.
    pub held: BTreeMap<u32, NodeId>,
    /// The files of the open atomic group, as the group has them.
    group: Option<BTreeMap<NodeId, Arc<Node>>>,
    next: NodeId,
    block: u64,
    /// Data is journaled: then each write is part of what a sync commits.
    journaled: bool,
    frozen: bool,
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl State {
    /// An empty directory on a volume with blocks of `block` bytes.
    pub fn new(block: u64, journaled: bool) -> State {
        let root = Node::new(Kind::Dir(BTreeMap::new()), 0o755, 0);
        State {
            nodes: BTreeMap::from([(ROOT, Arc::new(root))]),
            held: BTreeMap::new(),
            group: None,
            next: ROOT + 1,
            block,
            journaled,
            frozen: false,
        }
    }

    /// What a path leads to.
    pub fn find(&self, path: &str) -> Option<NodeId> {
        if let Some(held) = held_number(path) {
            return self.held.get(&held).copied();
        }
        let mut at = ROOT;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            match &self.nodes.get(&at)?.kind {
                Kind::Dir(entries) => at = *entries.get(name)?,
                _ => return None,
            }
        }
        Some(at)
    }

    /// The same, itself.
    pub fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(&self.find(path)?).map(|n| &**n)
    }

    /// All paths below the root with their nodes.
    pub fn paths(&self) -> Vec<(String, NodeId)> {
        let mut out = Vec::new();
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, id)) = todo.pop() {
            if let Kind::Dir(entries) = &self.nodes[&id].kind {
                for (name, child) in entries {
                    let path = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}/{name}")
                    };
                    todo.push((path.clone(), *child));
                    out.push((path, *child));
                }
            }
        }
        out
    }

    /// The names of each file.
    pub fn links(&self) -> Links {
        let mut links = Links::new();
        for (dir, node) in &self.nodes {
            if let Kind::Dir(entries) = &node.kind {
                for (name, child) in entries {
                    links.entry(*child).or_default().push((*dir, name.clone()));
                }
            }
        }
        links
    }

    fn edit(&mut self, id: NodeId) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&id).expect("the node exists"))
    }

    fn expect(&self, path: &str) -> NodeId {
        self.find(path)
            .unwrap_or_else(|| panic!("{path} exists in the model"))
    }

    fn enter(&mut self, path: &str, id: NodeId, at: usize) {
        let (dir, name) = split(path);
        let dir = self.expect(dir);
        let dir = self.edit(dir);
        (dir.changed, dir.data_changed) = (at, at);
        match &mut dir.kind {
            Kind::Dir(entries) => {
                assert!(entries.insert(name.into(), id).is_none(), "{path} is new")
            }
            _ => panic!("{path} lies in a directory"),
        }
    }

    /// Takes a name away, and one link of what it named.
    fn leave(&mut self, path: &str, at: usize) -> NodeId {
        let (dir, name) = split(path);
        let dir = self.expect(dir);
        let dir = self.edit(dir);
        (dir.changed, dir.data_changed) = (at, at);
        match &mut dir.kind {
            Kind::Dir(entries) => entries.remove(name).expect("the name exists"),
            _ => panic!("{path} lies in a directory"),
        }
    }

    fn drop_link(&mut self, id: NodeId, at: usize) {
        let node = self.edit(id);
        node.changed = at;
        node.links -= 1;
        self.drop_unused(id);
    }

    /// A file without name and user is gone.
    fn drop_unused(&mut self, id: NodeId) {
        let held = self.held.values().any(|h| *h == id);
        if !held && self.nodes.get(&id).is_some_and(|n| n.links == 0) {
            self.nodes.remove(&id);
        }
    }

    fn insert(&mut self, node: Node) -> NodeId {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Arc::new(node));
        id
    }

    fn add(&mut self, path: &str, node: Node, at: usize) {
        let id = self.insert(node);
        self.enter(path, id, at);
    }

    /// A number under which no file is held.
    pub fn free_number(&self) -> u32 {
        self.held
            .last_key_value()
            .map_or(1, |(n, _)| n.saturating_add(1))
    }

    /// Does operation number `at`, which [`State::allows`] allowed.
    ///
    /// # Panics
    /// If it cannot succeed.
    pub fn apply(&mut self, op: &Op, at: usize) {
        match op {
            Op::Write { path, .. } | Op::Truncate { path, .. } | Op::Punch { path, .. } => {
                let id = self.expect(path);
                let group = self.group.as_mut();
                if let Some(node) = group.and_then(|g| g.get_mut(&id)).cloned() {
                    // It changes what the group has, and nothing else.
                    let own = self.nodes.insert(id, node);
                    self.change_tree(op, at);
                    let changed = self.nodes.get(&id).cloned();
                    self.nodes.extend(own.map(|own| (id, own)));
                    self.group.iter_mut().for_each(|group| {
                        group.extend(changed.clone().map(|changed| (id, changed)));
                    });
                    return;
                }
            }
            _ => {}
        }
        self.change_tree(op, at);
    }

    fn change_tree(&mut self, op: &Op, at: usize) {
        match op {
            Op::Create { path, mode } => {
                self.add(path, Node::new(Kind::File(Content::empty()), *mode, at), at);
            }
            Op::Mkdir { path, mode } => {
                self.add(path, Node::new(Kind::Dir(BTreeMap::new()), *mode, at), at)
            }
            Op::Symlink { path, target } => {
                self.add(
                    path,
                    Node::new(Kind::Symlink(target.clone()), 0o777, at),
                    at,
                );
            }
            Op::Unlink { path } | Op::Rmdir { path } => {
                let id = self.leave(path, at);
                self.drop_link(id, at);
            }
            Op::Hold { path, held } => {
                let id = self.expect(path);
                self.held.insert(*held, id);
            }
            Op::HoldUnlink { path, held } => {
                let id = self.leave(path, at);
                self.held.insert(*held, id);
                self.drop_link(id, at);
            }
            Op::Tmpfile { held, mode } => {
                let mut node = Node::new(Kind::File(Content::empty()), *mode, at);
                (node.links, node.nameless) = (0, true);
                let id = self.insert(node);
                self.held.insert(*held, id);
            }
            Op::Close { held } => {
                if let Some(id) = self.held.remove(held) {
                    self.drop_unused(id);
                }
            }
            Op::Link { from, to } => {
                let id = self.expect(from);
                self.enter(to, id, at);
                let node = self.edit(id);
                node.links += 1;
                node.nameless = false;
                node.changed = at;
            }
            Op::Rename { from, to } => {
                let id = self.leave(from, at);
                if self.find(to).is_some() {
                    let victim = self.leave(to, at);
                    self.drop_link(victim, at);
                }
                self.enter(to, id, at);
                self.edit(id).changed = at;
            }
            Op::Exchange { a, b } => {
                let (x, y) = (self.leave(a, at), self.leave(b, at));
                self.enter(a, y, at);
                self.enter(b, x, at);
                self.edit(x).changed = at;
                self.edit(y).changed = at;
            }
            Op::Chmod { path, mode } => self.change(path, at).mode = *mode,
            Op::Chown { path, uid, gid } => {
                let node = self.change(path, at);
                (node.uid, node.gid) = (*uid, *gid);
            }
            Op::SetXattr {
                path,
                name,
                key,
                len,
            } => {
                let value = bytes(*key, *len);
                // ext4 does nothing where the value stays, so there is nothing that a sync could
                // make durable.
                if self.node(path).and_then(|n| n.xattrs.get(name)) != Some(&value) {
                    self.change(path, at).xattrs.insert(name.clone(), value);
                }
            }
            Op::RemoveXattr { path, name } => {
                assert!(self.change(path, at).xattrs.remove(name).is_some());
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
            } => self.write(path, *offset, &bytes(*key, *len), at),
            Op::Truncate { path, size } => {
                let block = self.block;
                let content = self.content(path, at);
                Arc::make_mut(&mut content.data).resize(*size as usize, 0);
                Arc::make_mut(&mut content.born).retain(|b, _| b * block < *size);
            }
            Op::Punch { path, offset, len } => self.zero(path, *offset, *len, at, false),
            Op::Zero {
                path,
                offset,
                len,
                keep,
            } => self.zero(path, *offset, *len, at, !keep),
            Op::Allocate {
                path,
                offset,
                len,
                keep,
            } => {
                let content = self.content(path, at);
                let end = (offset + len) as usize;
                if content.data.len() < end && !keep {
                    Arc::make_mut(&mut content.data).resize(end, 0);
                }
            }
            Op::Atomic { paths } => {
                let ids = paths.iter().map(|path| self.expect(path));
                self.group = Some(ids.map(|id| (id, self.nodes[&id].clone())).collect());
            }
            Op::Abort => self.group = None,
            Op::Commit => self.commit_group(at),
            Op::Freeze => self.frozen = true,
            Op::Thaw => self.frozen = false,
            Op::Early | Op::Fsync { .. } | Op::Fdatasync { .. } | Op::SyncAll => {}
        }
    }

    fn commit_group(&mut self, at: usize) {
        for (id, node) in self.group.take().into_iter().flatten() {
            if let Some(own) = self.nodes.get_mut(&id)
                && own.kind != node.kind
            {
                let own = Arc::make_mut(own);
                own.kind = node.kind.clone();
                (own.changed, own.data_changed) = (at, at);
            }
        }
    }

    fn change(&mut self, path: &str, at: usize) -> &mut Node {
        let id = self.expect(path);
        let node = self.edit(id);
        node.changed = at;
        node
    }

    fn content(&mut self, path: &str, at: usize) -> &mut Content {
        let node = self.change(path, at);
        node.data_changed = at;
        match &mut node.kind {
            Kind::File(content) => content,
            _ => panic!("{path} is a file"),
        }
    }

    fn write(&mut self, path: &str, offset: u64, new: &[u8], at: usize) {
        let (block, journaled) = (self.block, self.journaled);
        let id = self.expect(path);
        let node = self.edit(id);
        let Kind::File(content) = &mut node.kind else {
            panic!("{path} is a file");
        };
        let end = offset as usize + new.len();
        let mut allocates = content.data.len() < end;
        let born = Arc::make_mut(&mut content.born);
        for b in offset / block..(end as u64).div_ceil(block) {
            born.entry(b).or_insert_with(|| {
                allocates = true;
                at
            });
        }
        let data = Arc::make_mut(&mut content.data);
        if data.len() < end {
            data.resize(end, 0);
        }
        data[offset as usize..end].copy_from_slice(new);
        // An overwrite in place may leave the inode alone (its mtime has the kernel's coarse
        // clock).
        if allocates || journaled {
            (node.changed, node.data_changed) = (at, at);
        }
    }

    fn zero(&mut self, path: &str, offset: u64, len: u64, at: usize, grows: bool) {
        let block = self.block;
        let content = self.content(path, at);
        let end = offset + len;
        let data = Arc::make_mut(&mut content.data);
        if grows && (data.len() as u64) < end {
            data.resize(end as usize, 0);
        }
        let size = data.len() as u64;
        data[offset.min(size) as usize..end.min(size) as usize].fill(0);
        let whole = offset.div_ceil(block)..end / block;
        Arc::make_mut(&mut content.born).retain(|b, _| !whole.contains(b));
    }
}

impl State {
    /// Bytes in a block of the volume.
    pub fn block_size(&self) -> u64 {
        self.block
    }

    /// Whether the script holds the volume frozen.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether a file without a name is held open.
    pub fn has_nameless(&self) -> bool {
        self.nodes.values().any(|node| node.links == 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_attribute_that_gets_the_value_it_has_is_no_change() {
        let mut state = State::new(1024, false);
        let set = |key| Op::SetXattr {
            path: "f".into(),
            name: "user.a".into(),
            key,
            len: 5,
        };
        let create = Op::Create {
            path: "f".into(),
            mode: 0o600,
        };
        for (at, op) in [create, set(1), set(1)].iter().enumerate() {
            state.apply(op, at + 1);
        }
        assert_eq!(state.node("f").unwrap().changed, 2);
        state.apply(&set(2), 4);
        assert_eq!(state.node("f").unwrap().changed, 4);
    }
}
