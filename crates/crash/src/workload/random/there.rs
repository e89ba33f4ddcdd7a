//! The files of a state, sorted by what can be done to them.

use crate::workload::model::{Kind, NodeId, State};
use crate::workload::op::Op;

/// Most files that are held open.
const HELD: usize = 8;

/// The paths of a state, by the operations that are possible on them.
pub(super) struct There<'a> {
    pub(super) state: &'a State,
    /// Regular files that have a name.
    pub(super) files: Vec<&'a String>,
    /// Directories.
    pub(super) dirs: Vec<&'a String>,
    /// Directories without an entry.
    pub(super) empty: Vec<&'a String>,
    /// All named files but directories.
    pub(super) others: Vec<&'a String>,
    /// All named files.
    pub(super) any: Vec<&'a String>,
    /// Files that are held open.
    pub(super) held: &'a [String],
    /// The files whose content and attributes are to be changed: the named ones, or the held ones.
    pub(super) content: Vec<&'a String>,
}

impl<'a> There<'a> {
    /// Sorts the paths of a state. With `of_held` the held files are to be changed, if there are
    /// any.
    pub(super) fn new(
        state: &'a State,
        paths: &'a [(String, NodeId)],
        held: &'a [String],
        of_held: bool,
    ) -> There<'a> {
        let of = |kind: fn(&Kind) -> bool| -> Vec<&'a String> {
            paths
                .iter()
                .filter(|(_, id)| kind(&state.nodes[id].kind))
                .map(|(p, _)| p)
                .collect()
        };
        let files = of(|k| matches!(k, Kind::File(_)));
        let content = match of_held && !held.is_empty() {
            true => held.iter().collect(),
            false => files.clone(),
        };
        There {
            state,
            files,
            dirs: of(|k| matches!(k, Kind::Dir(_))),
            empty: of(|k| matches!(k, Kind::Dir(e) if e.is_empty())),
            others: of(|k| !matches!(k, Kind::Dir(_))),
            any: of(|_| true),
            held,
            content,
        }
    }

    /// Restricts changes of content to files of the open group.
    pub(super) fn keep_grouped(&mut self) {
        let state = self.state;
        self.content.retain(|path| state.grouped(path).is_some());
    }

    /// Whether one more file may be held open.
    pub(super) fn may_hold(&self) -> bool {
        self.held.len() < HELD
    }

    /// Holds a new file without a name.
    pub(super) fn tmpfile(&self) -> Op {
        Op::Tmpfile {
            held: self.state.free_number(),
            mode: 0o600,
        }
    }

    /// Size of a regular file in bytes.
    pub(super) fn size(&self, path: &str) -> Option<u64> {
        Some(self.state.node(path)?.content()?.data.len() as u64)
    }
}
