//! The effect of each operation on a state.

use std::collections::BTreeMap;
use std::sync::Arc;

use stetfs::low::FileType;

use super::volume::inherited;
use super::{Content, Kind, Node, NodeId, ROOT, State, split};
use crate::workload::op::{Op, bytes};

impl State {
    /// Applies operation number `at`, which [`State::allows`] allowed.
    ///
    /// # Panics
    /// The operation cannot succeed.
    pub fn apply(&mut self, op: &Op, at: usize) {
        match op {
            Op::Write { path, .. } | Op::Truncate { path, .. } | Op::Punch { path, .. } => {
                let id = self.expect(path);
                let group = self.group.as_mut();
                if let Some(node) = group.and_then(|g| g.get_mut(&id)).cloned() {
                    // The operation changes only the group's version of the file.
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
            Op::Create { path, mode } => self.add(path, Kind::File(Content::empty()), *mode, at),
            Op::Mkdir { path, mode } => self.add(path, Kind::Dir(BTreeMap::new()), *mode, at),
            Op::Symlink { path, target } => {
                self.add(path, Kind::Symlink(target.clone()), 0o777, at);
            }
            Op::Unlink { path } | Op::Rmdir { path } => self.remove(path, at),
            Op::Hold { path, held } => self.hold(path, *held),
            Op::HoldUnlink { path, held } => {
                self.hold(path, *held);
                self.remove(path, at);
            }
            Op::Tmpfile { held, mode } => self.add_nameless(*held, *mode, at),
            Op::Close { held } => self.close(*held),
            Op::Link { from, to } => self.link(from, to, at),
            Op::Rename { from, to } => self.rename(from, to, at),
            Op::Exchange { a, b } => self.exchange(a, b, at),
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
            } => self.set_xattr(path, name, bytes(*key, *len), at),
            Op::RemoveXattr { path, name } => self.remove_xattr(path, name, at),
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
            Op::Truncate { path, size } => self.truncate(path, *size, at),
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
            } => self.allocate(path, offset + len, *keep, at),
            Op::Chattr { path, flag, on } => self.set_flag(path, *flag, *on, at),
            Op::Mkfifo { path, mode } => self.add(path, Kind::Special(FileType::Fifo), *mode, at),
            Op::RenameNew { from, to } => self.rename(from, to, at),
            Op::Whiteout { from, to } => self.whiteout(from, to, at),
            Op::Copy {
                from,
                offset,
                to,
                at: to_at,
                len,
            } => self.copy(from, *offset, (to, *to_at), *len, at),
            Op::SetAcl { path, user, perms } => self.set_acl(path, *user, *perms, at),
            Op::Act { uid, gid } => self.owner = (*uid, *gid),
            Op::Remount => self.remount(),
            Op::Atomic { paths } => self.begin_group(paths),
            Op::Abort => self.group = None,
            Op::Commit => self.commit_group(at),
            Op::Freeze => self.frozen = true,
            Op::Thaw => self.frozen = false,
            // These do not change the tree.
            Op::Early | Op::Trim | Op::Fsync { .. } | Op::Fdatasync { .. } | Op::SyncAll => {}
            Op::Limit { .. } | Op::Project { .. } | Op::Memory { .. } | Op::Refused { .. } => {}
        }
    }
}

/// Helpers for nodes.
impl State {
    fn edit(&mut self, id: NodeId) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&id).expect("the node exists"))
    }

    fn expect(&self, path: &str) -> NodeId {
        self.find(path)
            .unwrap_or_else(|| panic!("{path} exists in the model"))
    }

    pub(super) fn change(&mut self, path: &str, at: usize) -> &mut Node {
        let id = self.expect(path);
        let node = self.edit(id);
        node.changed = at;
        node
    }

    /// Inserts a new node, with the owner and the flags that the directory `dir` gives it.
    fn insert(&mut self, mut node: Node, dir: NodeId) -> NodeId {
        (node.uid, node.gid) = self.owner;
        node.flags = inherited(self.nodes[&dir].flags, &node.kind);
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Arc::new(node));
        id
    }

    /// Removes a file that has no name and is not open.
    fn drop_unused(&mut self, id: NodeId) {
        let held = self.held.values().any(|h| *h == id);
        if !held && self.nodes.get(&id).is_some_and(|n| n.links == 0) {
            self.nodes.remove(&id);
        }
    }
}

/// Operations on names.
impl State {
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

    /// Removes a name, and one link of the file that it named.
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

    pub(super) fn add(&mut self, path: &str, kind: Kind, mode: u32, at: usize) {
        let dir = self.expect(split(path).0);
        let id = self.insert(Node::new(kind, mode, at), dir);
        self.enter(path, id, at);
    }

    fn remove(&mut self, path: &str, at: usize) {
        let id = self.leave(path, at);
        self.drop_link(id, at);
    }

    fn link(&mut self, from: &str, to: &str, at: usize) {
        let id = self.expect(from);
        self.enter(to, id, at);
        let node = self.edit(id);
        node.links += 1;
        node.nameless = false;
        node.changed = at;
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, at: usize) {
        let id = self.leave(from, at);
        if self.find(to).is_some() {
            self.remove(to, at);
        }
        self.enter(to, id, at);
        self.edit(id).changed = at;
    }

    fn exchange(&mut self, a: &str, b: &str, at: usize) {
        let (x, y) = (self.leave(a, at), self.leave(b, at));
        self.enter(a, y, at);
        self.enter(b, x, at);
        self.edit(x).changed = at;
        self.edit(y).changed = at;
    }
}

/// Operations on files that are held open.
impl State {
    fn hold(&mut self, path: &str, held: u32) {
        let id = self.expect(path);
        self.held.insert(held, id);
    }

    fn add_nameless(&mut self, held: u32, mode: u32, at: usize) {
        let mut node = Node::new(Kind::File(Content::empty()), mode, at);
        (node.links, node.nameless) = (0, true);
        let id = self.insert(node, ROOT);
        self.held.insert(held, id);
    }

    pub(super) fn close(&mut self, held: u32) {
        if let Some(id) = self.held.remove(&held) {
            self.drop_unused(id);
        }
    }
}

/// Operations on extended attributes.
impl State {
    fn set_xattr(&mut self, path: &str, name: &str, value: Vec<u8>, at: usize) {
        // ext4 does nothing if the value stays the same, so there is nothing for a sync to make
        // durable.
        if self.node(path).and_then(|n| n.xattrs.get(name)) != Some(&value) {
            self.change(path, at).xattrs.insert(name.into(), value);
        }
    }

    fn remove_xattr(&mut self, path: &str, name: &str, at: usize) {
        assert!(self.change(path, at).xattrs.remove(name).is_some());
    }
}

/// Operations on atomic groups.
impl State {
    fn begin_group(&mut self, paths: &[String]) {
        let ids = paths.iter().map(|path| self.expect(path));
        self.group = Some(ids.map(|id| (id, self.nodes[&id].clone())).collect());
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
}

/// Operations on content.
impl State {
    fn content(&mut self, path: &str, at: usize) -> &mut Content {
        let node = self.change(path, at);
        node.data_changed = at;
        match &mut node.kind {
            Kind::File(content) => content,
            _ => panic!("{path} is a file"),
        }
    }

    fn truncate(&mut self, path: &str, size: u64, at: usize) {
        let block = self.block;
        let content = self.content(path, at);
        Arc::make_mut(&mut content.data).resize(size as usize, 0);
        Arc::make_mut(&mut content.born).retain(|b, _| b * block < size);
    }

    /// Allocates blocks up to `end`; without `keep` the file grows to there.
    fn allocate(&mut self, path: &str, end: u64, keep: bool, at: usize) {
        let content = self.content(path, at);
        let end = end as usize;
        if content.data.len() < end && !keep {
            Arc::make_mut(&mut content.data).resize(end, 0);
        }
    }

    pub(super) fn write(&mut self, path: &str, offset: u64, new: &[u8], at: usize) {
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
        // An overwrite in place may leave the inode unchanged (its mtime has the kernel's coarse
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
