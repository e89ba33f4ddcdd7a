//! The damage of a crash to a tree, measured in ways that fit any file system.
//!
//! * lost: a file that was synced, and not renamed or removed since, is gone, or holds a sector
//!   that it did not hold since its sync;
//! * names: the names are not those of any single moment;
//! * versions: the content of a file is none that its path ever had.

use std::collections::BTreeMap;

use stetfs::low::FileType;

use crate::tree::{Seen, SeenNode};
use crate::workload::model::{Kind, NodeId, State};
use crate::workload::op::Op;
use crate::workload::script::{Progress, Script};

/// The damage to a tree; `None`: none of that kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Broken {
    /// Synced data or names are gone.
    pub lost: Option<String>,
    /// The names are not those of any single moment.
    pub names: Option<String>,
    /// A file has content that it never had.
    pub versions: Option<String>,
}

/// Classifies the directory `dir` of a recovered tree.
pub fn classify(seen: &Seen, dir: &str, script: &Script, progress: Progress) -> Broken {
    let find = |path: &str| {
        let ino = seen.find(&format!("{dir}/{path}"))?;
        seen.nodes.get(&ino)
    };
    Broken {
        lost: lost(&find, script, progress),
        names: names(seen, dir, script, progress),
        versions: versions(seen, dir, script, progress),
    }
}

/// The names of a node, sorted.
fn paths_of(state: &State, id: NodeId) -> Vec<String> {
    let mut paths: Vec<String> = state
        .paths()
        .into_iter()
        .filter(|(_, i)| *i == id)
        .map(|(p, _)| p)
        .collect();
    paths.sort_unstable();
    paths
}

fn lost<'s>(
    find: &dyn Fn(&str) -> Option<&'s SeenNode>,
    script: &Script,
    progress: Progress,
) -> Option<String> {
    let mut synced: BTreeMap<NodeId, usize> = BTreeMap::new();
    for (i, op) in script.ops.iter().enumerate().take(progress.acked) {
        let state = &script.states[i + 1];
        match op {
            Op::Fsync { path } | Op::Fdatasync { path } => {
                synced.extend(state.find(path).map(|id| (id, i + 1)));
            }
            Op::SyncAll | Op::Freeze => synced.extend(state.nodes.keys().map(|id| (*id, i + 1))),
            _ => {}
        }
    }
    for (id, at) in synced {
        let states = script.states.get(at..=progress.begun)?;
        let paths = paths_of(states.first()?, id);
        // The sync of a directory does not cover the directory's own name.
        let alone = matches!(states.first()?.nodes.get(&id)?.kind, Kind::File(_));
        if !alone || states.iter().any(|s| paths_of(s, id) != paths) {
            continue;
        }
        for path in &paths {
            let Some(node) = find(path) else {
                return Some(format!("/{path} was synced by operation {at} and is gone"));
            };
            if let Some(why) = content_lost(node, states, id) {
                return Some(format!("/{path} was synced by operation {at}: {why}"));
            }
        }
    }
    None
}

/// The sector that is lost from a file with these versions since its sync.
fn content_lost(node: &SeenNode, states: &[State], id: NodeId) -> Option<String> {
    let versions: Vec<&[u8]> = states
        .iter()
        .filter_map(|s| Some(s.nodes.get(&id)?.content()?.data.as_slice()))
        .collect();
    let shortest = versions.iter().map(|v| v.len()).min()?;
    let longest = versions.iter().map(|v| v.len()).max()?;
    if node.size < shortest as u64 || node.size > longest as u64 {
        return Some(format!("{} bytes, not {shortest} to {longest}", node.size));
    }
    for (i, is) in node.content.chunks(512).enumerate() {
        let start = i * 512;
        let zero = is.iter().all(|b| *b == 0);
        let fits = versions.iter().any(|v| {
            let part = v.get(start.min(v.len())..).unwrap_or_default();
            let part = part.get(..is.len()).unwrap_or(part);
            let (head, tail) = is.split_at(part.len().min(is.len()));
            head == part && tail.iter().all(|b| *b == 0)
        });
        // A range behind the end of some version may be zeroes until the data is written home.
        let unwritten = zero && start + is.len() > shortest;
        if !fits && !unwritten {
            return Some(format!(
                "the sector at {start} has no content that the file had since then"
            ));
        }
    }
    None
}

fn names(seen: &Seen, dir: &str, script: &Script, progress: Progress) -> Option<String> {
    let Some(root) = seen.find(dir) else {
        return Some("the directory of the workload is gone".into());
    };
    let mut is: Vec<(String, FileType)> = Vec::new();
    let mut todo = vec![(String::new(), root)];
    while let Some((path, ino)) = todo.pop() {
        for (name, child) in &seen.nodes.get(&ino)?.entries {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}/{name}")
            };
            let kind = seen.nodes.get(child)?.kind;
            if kind == FileType::Directory {
                todo.push((path.clone(), *child));
            }
            is.push((path, kind));
        }
    }
    is.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let moment = script.states.iter().take(progress.begun + 1).any(|state| {
        let mut was: Vec<(String, FileType)> = state
            .paths()
            .into_iter()
            .filter_map(|(path, id)| {
                let kind = state.nodes.get(&id)?.file_type();
                Some((path, kind))
            })
            .collect();
        was.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        was == is
    });
    (!moment).then(|| format!("{} names that were never there together", is.len()))
}

fn versions(seen: &Seen, dir: &str, script: &Script, progress: Progress) -> Option<String> {
    let states = script.states.get(..=progress.begun)?;
    let mut paths: Vec<String> = states
        .iter()
        .flat_map(|s| s.paths().into_iter().map(|(p, _)| p))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let Some(node) = seen
            .find(&format!("{dir}/{path}"))
            .and_then(|ino| seen.nodes.get(&ino))
            .filter(|n| n.kind == FileType::Regular)
        else {
            continue;
        };
        let was = states.iter().any(|s| {
            s.node(&path)
                .and_then(|n| n.content())
                .is_some_and(|c| *c.data == node.content)
        });
        if !was {
            return Some(format!(
                "/{path} has {} bytes that it never held",
                node.content.len()
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::workload::text;
    use stetfs::low::DataMode;

    fn script(text: &str) -> Script {
        Script::of(
            text::parse(text).unwrap().remove(0),
            4096,
            DataMode::Ordered,
        )
    }

    /// The tree that a crash at a state leaves.
    fn shown(state: &State) -> Seen {
        let node = |kind, content: Vec<u8>, entries| SeenNode {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            flags: 0,
            nlink: 1,
            size: content.len() as u64,
            blocks: 0,
            xattrs: BTreeMap::new(),
            content,
            target: Vec::new(),
            entries,
        };
        let mut nodes = BTreeMap::new();
        let ino = |id: NodeId| id as u32 + 10;
        for (id, n) in &state.nodes {
            let entries = |e: &BTreeMap<String, NodeId>| {
                e.iter().map(|(n, i)| (n.clone(), ino(*i))).collect()
            };
            nodes.insert(
                ino(*id),
                match &n.kind {
                    Kind::File(c) => node(FileType::Regular, c.data.to_vec(), BTreeMap::new()),
                    Kind::Dir(e) => node(FileType::Directory, Vec::new(), entries(e)),
                    _ => node(n.file_type(), Vec::new(), BTreeMap::new()),
                },
            );
        }
        let root = BTreeMap::from([("w0".to_owned(), ino(0))]);
        nodes.insert(
            stetfs::low::ROOT_INO,
            node(FileType::Directory, Vec::new(), root),
        );
        Seen { nodes }
    }

    #[test]
    fn each_measure_tells_what_it_is_for() {
        let script = script(
            "create a\nwrite a 0 3000 1\nfsync a\nwrite a 0 512 2\nwrite a 512 512 3\ncreate b\ncreate c",
        );
        let progress = Progress { begun: 7, acked: 7 };
        let judge = |seen: &Seen| classify(seen, "w0", &script, progress);
        for state in &script.states[3..] {
            assert_eq!(judge(&shown(state)), Broken::default());
        }
        assert!(
            judge(&shown(&script.states[0]))
                .lost
                .unwrap()
                .contains("is gone")
        );
        // The second write without the first: each sector was there at some time, but the whole
        // never was.
        let mut seen = shown(&script.states[3]);
        let later = shown(&script.states[5]);
        let a = seen.find("w0/a").unwrap();
        let new = later.nodes[&a].content[512..1024].to_vec();
        seen.nodes.get_mut(&a).unwrap().content[512..1024].copy_from_slice(&new);
        let broken = judge(&seen);
        assert!(broken.lost.is_none() && broken.names.is_none() && broken.versions.is_some());
        seen.nodes.get_mut(&a).unwrap().content[5] ^= 1;
        assert!(judge(&seen).lost.is_some());
        // A name without the name that was made before it.
        let mut seen = shown(&script.states[7]);
        let dir = seen.find("w0").unwrap();
        seen.nodes.get_mut(&dir).unwrap().entries.remove("b");
        let broken = judge(&seen);
        assert!(broken.names.is_some() && broken.lost.is_none() && broken.versions.is_none());
    }
}
