//! The states that sync records make possible: the state after some operation, with each synced
//! file as it was at its last sync, and with the directories that lead to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::synced::synced;
use crate::workload::model::{Kind, Node, NodeId, State};
use crate::workload::op::Op;
use crate::workload::script::Script;

/// A state with the files of sync records put over it.
pub(super) struct Overlaid {
    /// The tree.
    pub(super) state: State,
    /// Files and directories that come from sync records, with the operation whose state each is
    /// in.
    pub(super) at: BTreeMap<NodeId, usize>,
}

/// The state after operation `k`, with the effects of the syncs up to operation `upto` put over it;
/// a sync after `acked` counts only if it can be done without a commit. With `always` every write
/// is a sync. `None`: a sync up to `acked` needs a commit, so this state cannot come back.
pub(super) fn overlay(
    script: &Script,
    k: usize,
    (acked, upto): (usize, usize),
    always: bool,
) -> Option<Overlaid> {
    let mut over = Overlaid {
        state: script.states[k].clone(),
        at: BTreeMap::new(),
    };
    for (i, op) in script.ops.iter().enumerate().take(upto).skip(k) {
        let (path, only_data) = match op {
            Op::SyncAll | Op::Commit | Op::Freeze | Op::Remount if i < acked => return None,
            _ => match synced(script, i, always) {
                Some(synced) => synced,
                None => continue,
            },
        };
        let j = i + 1;
        let id = script.states[j].find(path);
        let Some(id) = id else { continue };
        if script.states[j].nodes[&id].is_dir() {
            if i < acked && !over.is_synced(script, k, j, id) {
                return None;
            }
            continue;
        }
        let done = over.put(script, k, j, id);
        let needless = only_data && script.states[j].nodes[&id].data_changed <= k;
        if !needless && done.is_none() && i < acked {
            return None;
        }
    }
    Some(over)
}

impl Overlaid {
    /// Whether a directory is as it was when operation `j` synced it. A sync of it needs no commit
    /// if it changed only by names that sync records made.
    fn is_synced(&self, script: &Script, k: usize, j: usize, id: NodeId) -> bool {
        let promised = &script.states[j].nodes[&id];
        if promised.changed <= k {
            return true;
        }
        let same_names = script.links[j].get(&id) == script.links[k].get(&id);
        let as_promised = |now: &Arc<Node>| {
            let entries = |node: &Node| match &node.kind {
                Kind::Dir(entries) => entries.clone(),
                _ => BTreeMap::new(),
            };
            let attributes = |n: &Node| (n.mode, n.uid, n.gid, n.flags, n.xattrs.clone());
            entries(now) == entries(promised) && attributes(now) == attributes(promised)
        };
        (same_names || self.at.contains_key(&id))
            && self.state.nodes.get(&id).is_some_and(as_promised)
    }

    fn put(&mut self, script: &Script, k: usize, j: usize, id: NodeId) -> Option<()> {
        let node = &script.states[j].nodes[&id];
        let Kind::File(_) = node.kind else {
            return None;
        };
        let names = &script.links[j].get(&id);
        let Some(names) = names.filter(|n| !n.is_empty()) else {
            // A file without a name needs a commit if it had one, else nothing of it comes back.
            let had_one = script.links[k].contains_key(&id) || self.at.contains_key(&id);
            return (!had_one).then_some(());
        };
        if script.states[k].nodes.contains_key(&id) {
            if script.links[k].get(&id) != Some(names) {
                return None;
            }
        } else if !self.state.nodes.contains_key(&id) {
            self.make(script, k, j, id)?;
        }
        let links = self.state.nodes.get(&id).map_or(1, |old| old.links);
        let node = Node {
            links,
            ..Node::clone(node)
        };
        self.state.nodes.insert(id, Arc::new(node));
        self.at.insert(id, j);
        Some(())
    }

    /// Adds a file or directory that was created since, under the only name that it ever had, with
    /// the directories that lead to it.
    fn make(&mut self, script: &Script, k: usize, j: usize, id: NodeId) -> Option<()> {
        let names = script.links[j].get(&id)?;
        let [(parent, name)] = &names[..] else {
            return None;
        };
        let always = (k + 1..j).all(|m| script.links[m].get(&id).is_none_or(|n| n == names));
        if !always {
            return None;
        }
        if !self.state.nodes.contains_key(parent) {
            self.make(script, k, j, *parent)?;
        }
        let mut node = Node::clone(&script.states[j].nodes[&id]);
        if let Kind::Dir(entries) = &mut node.kind {
            entries.clear();
        }
        let dir = Arc::make_mut(self.state.nodes.get_mut(parent)?);
        let Kind::Dir(entries) = &mut dir.kind else {
            return None;
        };
        let before = entries.insert(name.clone(), id);
        self.state.nodes.insert(id, Arc::new(node));
        self.at.insert(id, j);
        let Some(before) = before else {
            return Some(());
        };
        // The former owner of the name was unlinked; otherwise the sync would have needed a commit.
        let named = script.links[j].get(&before).is_some_and(|n| !n.is_empty());
        let old = self.state.nodes.get_mut(&before)?;
        if named || old.is_dir() {
            return None;
        }
        let old = Arc::make_mut(old);
        old.links -= 1;
        if old.links == 0 {
            self.state.nodes.remove(&before);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use stetfs::low::DataMode;

    use super::*;
    use crate::workload::text;

    fn script(text: &str) -> Script {
        let ops = text::parse(text).expect("a script").swap_remove(0);
        Script::of(ops, 4096, DataMode::Ordered)
    }

    fn names(over: Option<Overlaid>) -> Option<Vec<String>> {
        let mut names: Vec<String> = over?.state.paths().into_iter().map(|(p, _)| p).collect();
        names.sort();
        Some(names)
    }

    #[test]
    fn synced_files_come_back_with_what_leads_to_them() {
        let s = script("mkdir d\nmkdir d/e\ncreate d/e/f\ncreate g\nfsync d/e/f\ncreate h\n");
        let all = s.ops.len();
        let expected = ["d", "d/e", "d/e/f"].map(String::from).to_vec();
        assert_eq!(names(overlay(&s, 0, (all, all), false)), Some(expected));
        assert_eq!(names(overlay(&s, 0, (4, 4), false)), Some(Vec::new()));
    }

    #[test]
    fn what_takes_a_commit_leaves_no_older_state() {
        for change in ["rename f g", "link f g", "sync"] {
            let s = script(
                &format!("create f\nfsync f\n{change}\nfsync g\n").replace("sync\nfsync g", "sync"),
            );
            let all = s.ops.len();
            assert!(overlay(&s, 1, (all, all), false).is_none(), "{change}");
            assert!(overlay(&s, all, (all, all), false).is_some(), "{change}");
        }
    }

    #[test]
    fn a_synced_directory_has_the_names_that_records_made() {
        let s = script("mkdir d\nsync\ncreate d/f\nfsync d/f\nfsync d\n");
        let all = s.ops.len();
        let over = overlay(&s, 2, (all, all), false);
        assert_eq!(names(over), Some(["d", "d/f"].map(String::from).to_vec()));
        assert!(
            overlay(&s, 2, (all, 3), false).is_some(),
            "if the sync did not return"
        );
        for change in ["create d/g", "mkdir d/e", "chmod d 700", "unlink d/f"] {
            let s = script(&format!(
                "mkdir d\nsync\ncreate d/f\nfsync d/f\n{change}\nfsync d\n"
            ));
            let all = s.ops.len();
            assert!(overlay(&s, 2, (all, all), false).is_none(), "{change}");
            assert!(overlay(&s, 5, (all, all), false).is_some(), "{change}");
        }
    }

    #[test]
    fn a_new_file_takes_the_name_of_an_unlinked_one() {
        let s = script("create f\nsync\nunlink f\ncreate f\nwrite f 0 10\nfsync f\n");
        let all = s.ops.len();
        let over = overlay(&s, 2, (all, all), false).expect("it can be");
        assert_eq!(
            over.state
                .node("f")
                .and_then(|n| n.content())
                .map(|c| c.data.len()),
            Some(10)
        );
        assert_eq!(over.state.nodes.len(), 2);
    }
}
