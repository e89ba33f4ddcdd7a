//! The operations of a script that make a file durable.

use crate::workload::op::{Flag, Op};
use crate::workload::script::Script;

/// The file that operation number `i` makes durable, and whether only its data: a sync of it, or a
/// write to a synchronous file (by `always`, or by its flag). Other changes of such files make a
/// whole transaction durable.
pub(super) fn synced(script: &Script, i: usize, always: bool) -> Option<(&str, bool)> {
    let state = &script.states[i + 1];
    let is_synchronous = |path: &str| {
        let flags = state.node(path).map_or(0, |node| node.flags);
        state.grouped(path).is_none() && (always || flags & Flag::Synchronous.bit() != 0)
    };
    match &script.ops[i] {
        Op::Fsync { path } => Some((path, false)),
        Op::Fdatasync { path } => Some((path, true)),
        Op::Write { path, .. } | Op::MapWrite { path, .. } | Op::Copy { to: path, .. }
            if is_synchronous(path) =>
        {
            Some((path, true))
        }
        _ => None,
    }
}
