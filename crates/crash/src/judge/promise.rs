//! Oracles 2 and 3: check that a crash left one of the states that the user was promised.
//!
//! With one lane for transactions the recovered names and attributes must be those after some
//! operation of the script, with none left out: not before the last change that an acknowledged
//! sync covers, and not after the last operation that was begun. If files are synced by sync
//! records, the state may be older, with each synced file on it as it was at its sync (`records`).
//! File content then depends on the preset:
//! * data: it is exactly the content after that operation;
//! * ordered: each sector was there at some time, not before the last sync of the file, nor (for a
//!   block allocated since) before its first write;
//! * writeback: the same, but a block allocated since the last sync may hold anything.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use stetfs::low::{DataMode, Ino};

use super::left::attributes;
use super::records;
use super::synced::synced;
use crate::tree::{Seen, SeenNode};
use crate::workload::model::{Content, Kind, Node, NodeId, ROOT, State};
use crate::workload::op::Op;
use crate::workload::script::{Progress, Script};

/// The promise that the file system is held to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promise {
    /// Changes that fsync, fdatasync and sync covered stand.
    #[default]
    Synced,
    /// Every operation that returned stands, synced or not. No file system promises that: the lab
    /// must find where it does not hold, which proves that the lab looks.
    Everything,
}

/// The rules that decide what is promised.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The data mode of the journal.
    pub data: DataMode,
    /// Whether files are synced by sync records.
    pub records: bool,
    /// Each change is durable when it returns.
    pub sync: bool,
    /// The promise that the file system is held to.
    pub promise: Promise,
}

/// The promises of the acknowledged syncs.
#[derive(Default)]
struct Promises {
    /// The oldest state that may come back.
    state: usize,
    /// For each file the operation before which its content may not be.
    files: BTreeMap<NodeId, usize>,
    /// The same operation for all files.
    all: usize,
    /// Files of which a sync failed: a later sync does not write the lost data.
    told: BTreeSet<NodeId>,
}

impl Promises {
    fn of(script: &Script, acked: usize, rules: Rules) -> Promises {
        let mut p = Promises::default();
        for (i, op) in script.ops.iter().enumerate().take(acked) {
            let (at, state) = (i + 1, &script.states[i + 1]);
            let lost = script.failure.as_ref().filter(|f| f.loses && at > f.since);
            // The copied data may be lost data.
            if let (Some(_), Op::Copy { to, .. }) = (lost, op) {
                p.told.extend(state.find(to));
            }
            let (path, only_data) = match op {
                Op::SyncAll | Op::Freeze | Op::Remount | Op::Commit => {
                    p.state = at;
                    // The failure may have been reported to another sync.
                    if lost.is_none() {
                        p.all = at;
                    }
                    continue;
                }
                _ => match synced(script, i, rules.sync) {
                    Some(synced) => synced,
                    None => continue,
                },
            };
            let Some(id) = state.find(path) else { continue };
            let node = &state.nodes[&id];
            let since = if only_data {
                node.data_changed
            } else {
                node.changed
            };
            if !rules.records {
                p.state = p.state.max(since);
            }
            match lost {
                Some(failure) if p.told.contains(&id) || failure.failed.contains(&at) => {
                    p.told.insert(id);
                }
                _ => {
                    p.files.insert(id, at);
                }
            }
        }
        if rules.promise == Promise::Everything {
            (p.state, p.all) = (acked, acked);
        }
        p
    }
}

/// The range of states that may come back; moments with the same range are judged alike.
pub fn window(script: &Script, progress: Progress, promise: Promise) -> (usize, usize) {
    let syncs = |i: &usize| script.ops[*i].is_sync() || synced(script, *i, false).is_some();
    let synced = match promise {
        Promise::Everything => progress.acked,
        Promise::Synced => (0..progress.acked).rev().find(syncs).map_or(0, |i| i + 1),
    };
    (synced, progress.begun)
}

/// Checks the directory `dir` of a recovered volume against a script.
///
/// # Errors
/// The promise, and the actual state.
pub fn judge(
    seen: &Seen,
    dir: &str,
    script: &Script,
    progress: Progress,
    rules: Rules,
) -> Result<(), String> {
    let promises = Promises::of(script, progress.acked, rules);
    let mut reasons = Vec::new();
    for k in (promises.state..=progress.begun).rev() {
        // A sync under way may be durable already.
        let ends = match rules.records {
            true if progress.begun > progress.acked => vec![progress.begun, progress.acked],
            _ => vec![progress.acked],
        };
        for end in ends {
            let over = match rules.records {
                true => match records::overlay(script, k, (progress.acked, end), rules.sync) {
                    Some(over) => Some(over),
                    None => continue,
                },
                false => None,
            };
            let case = Case {
                seen,
                script,
                state: over.as_ref().map_or(&script.states[k], |o| &o.state),
                over: over.as_ref().map(|o| &o.at),
                promises: &promises,
                k,
                now: progress.begun,
                data: rules.data,
            };
            match case.check(dir) {
                Ok(()) => return Ok(()),
                Err(why) => reasons.push((k, why)),
            }
        }
    }
    // The states that fit best explain most.
    reasons.sort_by_key(|(k, why)| std::cmp::Reverse((why.fit, *k)));
    let mut told = HashSet::new();
    reasons.retain(|(_, why)| told.insert(why.detail.clone()));
    let lines: Vec<String> = reasons
        .iter()
        .take(4)
        .map(|(k, why)| {
            format!(
                "not the state after operation {k} ({}): {}",
                operation(script, *k),
                why.detail
            )
        })
        .collect();
    Err(format!(
        "{dir}: {progress:?}, promised is the state after operation {} ({}) or later, but it is\n  {}",
        promises.state,
        operation(script, promises.state),
        lines.join("\n  ")
    ))
}

/// The reason why a state is not the recovered one.
struct Mismatch {
    detail: String,
    fit: Fit,
}

/// How far the state fits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Nothing,
    Names,
    Attributes,
}

impl Fit {
    fn but(self, detail: impl Into<String>) -> Mismatch {
        Mismatch {
            detail: detail.into(),
            fit: self,
        }
    }
}

fn operation(script: &Script, k: usize) -> String {
    match k.checked_sub(1) {
        None => "the start".into(),
        Some(i) => format!("{:?}", script.ops[i]),
    }
}

/// One candidate: the state after operation `k`.
struct Case<'a> {
    seen: &'a Seen,
    script: &'a Script,
    state: &'a State,
    /// The files that come from sync records, with the operation whose state each is in.
    over: Option<&'a BTreeMap<NodeId, usize>>,
    promises: &'a Promises,
    k: usize,
    /// The last operation that was begun.
    now: usize,
    data: DataMode,
}

impl Case<'_> {
    fn check(&self, dir: &str) -> Result<(), Mismatch> {
        let root = self
            .seen
            .find(dir)
            .ok_or_else(|| Fit::Nothing.but("the script's directory is gone"))?;
        let mut places = BTreeMap::from([(ROOT, root)]);
        let mut todo = vec![(ROOT, root, String::new())];
        let mut files = Vec::new();
        let mut attributes = Ok(());
        // Content is compared last: the cheap comparisons rule out most states.
        while let Some((id, ino, path)) = todo.pop() {
            let (node, seen) = (&self.state.nodes[&id], &self.seen.nodes[&ino]);
            attributes = attributes.and_then(|()| {
                self.attributes_of(id, node, seen)
                    .map_err(|e| Fit::Names.but(format!("/{path}: {e}")))
            });
            match &node.kind {
                Kind::File(content) => files.push((path, id, content, seen)),
                Kind::Dir(entries) => {
                    let names = |n: Vec<&String>| format!("{n:?}");
                    if entries.keys().ne(seen.entries.keys()) {
                        let missing = names(
                            entries
                                .keys()
                                .filter(|n| !seen.entries.contains_key(*n))
                                .collect(),
                        );
                        let extra = names(
                            seen.entries
                                .keys()
                                .filter(|n| !entries.contains_key(*n))
                                .collect(),
                        );
                        return Err(Fit::Nothing
                            .but(format!("/{path}: missing {missing}, too many {extra}")));
                    }
                    for ((name, child), ino) in entries.iter().zip(seen.entries.values()) {
                        let path = if path.is_empty() {
                            name.clone()
                        } else {
                            format!("{path}/{name}")
                        };
                        match places.insert(*child, *ino) {
                            None => todo.push((*child, *ino, path)),
                            Some(other) if other != *ino => {
                                let detail = format!(
                                    "/{path}: is inode {ino}, but its other name leads to {other}"
                                );
                                return Err(Fit::Nothing.but(detail));
                            }
                            Some(_) => {}
                        }
                    }
                }
                Kind::Symlink(target) => {
                    if target.as_bytes() != seen.target {
                        return Err(Fit::Names.but(format!("/{path}: the link has another target")));
                    }
                }
                Kind::Special(_) => {}
            }
        }
        let mut inos: Vec<Ino> = places.values().copied().collect();
        inos.sort_unstable();
        inos.dedup();
        if inos.len() != places.len() {
            return Err(Fit::Nothing.but("two files of the script are one"));
        }
        attributes?;
        for (path, id, content, seen) in files {
            self.content(id, content, seen)
                .map_err(|e| Fit::Attributes.but(format!("/{path}: {e}")))?;
        }
        Ok(())
    }

    /// The operation whose state the file is in.
    fn at(&self, id: NodeId) -> usize {
        let record = self.over.and_then(|over| over.get(&id));
        record.copied().unwrap_or(self.k)
    }

    /// Compares the attributes of a file. A sync record of an fdatasync may lack attributes that
    /// are not needed to find the data, and one that creates a directory has its attributes of some
    /// later moment; in these cases the attributes of any state up to then are accepted.
    fn attributes_of(&self, id: NodeId, node: &Node, seen: &SeenNode) -> Result<(), String> {
        let exact = attributes(node, seen);
        if exact.is_ok() || self.over.is_none_or(|over| !over.contains_key(&id)) {
            return exact;
        }
        let as_then = (self.k..self.at(id)).any(|v| {
            self.script.states[v].nodes.get(&id).is_some_and(|then| {
                let then = Node {
                    kind: node.kind.clone(),
                    links: node.links,
                    ..Node::clone(then)
                };
                attributes(&then, seen).is_ok()
            })
        });
        let only_data = |id| {
            let op = &self.script.ops[self.at(id) - 1];
            node.is_dir() || !matches!(op, Op::Fsync { .. })
        };
        if as_then && only_data(id) {
            Ok(())
        } else {
            exact
        }
    }

    /// Compares the content of a file whose size is right.
    fn content(&self, id: NodeId, want: &Content, seen: &SeenNode) -> Result<(), String> {
        let version = |v: usize| {
            self.script.states[v]
                .nodes
                .get(&id)
                .and_then(|n| n.content())
        };
        if *want.data == seen.content {
            return Ok(());
        }
        let failure = self.script.failure.as_ref();
        let loses = failure.is_some_and(|f| f.loses && self.now > f.since);
        if self.data.keeps_whole() && !loses {
            let first = want
                .data
                .iter()
                .zip(&seen.content)
                .position(|(a, b)| a != b);
            return Err(format!("content differs from byte {first:?} on"));
        }
        let synced = self
            .promises
            .files
            .get(&id)
            .copied()
            .unwrap_or(0)
            .max(self.promises.all);
        let block = self.state.block_size();
        for (i, is) in seen.content.chunks(512).enumerate() {
            let start = i * 512;
            let Some(born) = want.born.get(&(start as u64 / block)) else {
                if want.data[start..start + is.len()] != *is {
                    return Err(format!(
                        "bytes at {start}, where there is a hole, are not zero"
                    ));
                }
                continue;
            };
            let may_hold_anything = loses || self.data == DataMode::Writeback;
            if may_hold_anything && *born > synced {
                continue;
            }
            // Any part of the later writes may be lost, and the rest of the sector rewritten.
            let at = |v: usize| version(v).and_then(|c| sector(c, start, is.len(), true));
            if loses && (synced..=self.now).any(|v| at(v) != at(synced)) {
                continue;
            }
            let oldest = synced.max(*born);
            let fits = (oldest..=self.now).any(|v| {
                let Some(content) = version(v) else {
                    return false;
                };
                // Bytes behind the end of a version are zero if a later truncation may have zeroed
                // them (shorter or longer: a file also grows over a block that was home already),
                // or if the size may have grown without the data.
                let end = content.data.len().max(start);
                let grown = || {
                    (v + 1..=self.at(id)).any(|later| {
                        version(later)
                            .and_then(|c| c.data.get(end..start + is.len()))
                            .is_some_and(|tail| tail.iter().all(|b| *b == 0))
                    })
                };
                let padded = v > self.at(id)
                    || self.data == DataMode::Writeback
                    || (end < start + is.len() && grown());
                sector(content, start, is.len(), padded).is_some_and(|s| *s == *is)
            });
            if !fits {
                return Err(format!(
                    "the sector at {start} has no content that the file had since operation \
                     {oldest}; {}",
                    self.whose(is)
                ));
            }
        }
        Ok(())
    }

    /// A description of the source of a wrong sector.
    fn whose(&self, is: &[u8]) -> String {
        if is.iter().all(|b| *b == 0) {
            return "it is zero".into();
        }
        for (v, state) in self.script.states.iter().enumerate() {
            for (path, id) in state.paths() {
                let place = state.nodes[&id]
                    .content()
                    .and_then(|c| c.data.chunks(512).position(|s| s == is));
                if let Some(place) = place {
                    return format!(
                        "it is that of /{path} at {} after operation {v}",
                        place * 512
                    );
                }
            }
        }
        format!("it begins {:02x?}", is.get(..16).unwrap_or(is))
    }
}

/// A sector of a version. Behind its end it is filled with zeroes if `padded`, else there is none.
fn sector(content: &Content, start: usize, len: usize, padded: bool) -> Option<Arc<[u8]>> {
    let data = content
        .data
        .get(start.min(content.data.len())..)
        .unwrap_or_default();
    let data = data.get(..len).unwrap_or(data);
    if data.len() < len && !padded {
        return None;
    }
    let mut sector = data.to_vec();
    sector.resize(len, 0);
    Some(sector.into())
}
