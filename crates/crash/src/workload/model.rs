//! The model: the directory tree after each operation of a script.

mod allows;
mod apply;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use stetfs::low::FileType;

pub use self::volume::{ACL, access_list};
use super::op::held_number;

/// The number of a file in the model, whatever its names; never reused.
pub type NodeId = usize;

/// The names of each file, as directory and name.
pub type Links = BTreeMap<NodeId, Vec<(NodeId, String)>>;

/// The directory that a script works in.
pub const ROOT: NodeId = 0;

/// A regular file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// All bytes.
    pub data: Arc<Vec<u8>>,
    /// Blocks that hold written data, each with the operation that first wrote it.
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

/// The type of a node, with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File(Content),
    /// A directory.
    Dir(BTreeMap<String, NodeId>),
    /// A symbolic link and its target.
    Symlink(String),
    /// A file of another type, which has no content.
    Special(FileType),
}

/// A file of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its type and content.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub links: u32,
    /// Flags, of [`KEPT_FLAGS`](super::op::KEPT_FLAGS).
    pub flags: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Whether it never had a name, so that linkat(2) may give it one.
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
            flags: 0,
            xattrs: BTreeMap::new(),
            nameless: false,
            changed: at,
            data_changed: at,
        }
    }

    /// The content of a regular file.
    pub fn content(&self) -> Option<&Content> {
        match &self.kind {
            Kind::File(content) => Some(content),
            _ => None,
        }
    }

    /// The file type.
    pub fn file_type(&self) -> FileType {
        match self.kind {
            Kind::File(_) => FileType::Regular,
            Kind::Dir(_) => FileType::Directory,
            Kind::Symlink(_) => FileType::Symlink,
            Kind::Special(kind) => kind,
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
    /// All files that have a name or are held open.
    pub nodes: BTreeMap<NodeId, Arc<Node>>,
    /// The files that are held open, by their number.
    pub held: BTreeMap<u32, NodeId>,
    /// The files of the open atomic group, as the group sees them.
    group: Option<BTreeMap<NodeId, Arc<Node>>>,
    next: NodeId,
    block: u64,
    /// Whether data is journaled; then a sync commits each write.
    journaled: bool,
    frozen: bool,
    owner: (u32, u32),
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
            owner: (0, 0),
        }
    }

    /// The number of the file at a path.
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

    /// The node of the file at a path.
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

    /// A number under which no file is held.
    pub fn free_number(&self) -> u32 {
        self.held
            .last_key_value()
            .map_or(1, |(n, _)| n.saturating_add(1))
    }

    /// Bytes in a block of the volume.
    pub fn block_size(&self) -> u64 {
        self.block
    }

    /// Whether the script holds the volume frozen.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether a file without a name is open, in the tree or in the open group.
    pub fn has_nameless(&self) -> bool {
        let is_named = |id: &NodeId| self.nodes.get(id).is_some_and(|node| node.links > 0);
        let grouped = self.group.iter().flat_map(BTreeMap::keys);
        !self.nodes.keys().chain(grouped).all(is_named)
    }
}
