//! The numbers that a client learns from the server's answers.

use std::collections::BTreeSet;

use stetfs_testkit::fuse::{long, op, word};

/// The client's knowledge of the server.
#[derive(Debug, Default)]
pub(in crate::requests) struct Known {
    /// Nodes in answers.
    pub(in crate::requests) nodes: Vec<u64>,
    /// Handles in answers.
    pub(in crate::requests) handles: Vec<u64>,
    /// Nodes that no request may name.
    pub(in crate::requests) apart: BTreeSet<u64>,
    /// Numbers of the requests so far.
    pub(in crate::requests) uniques: Vec<u64>,
    pub(in crate::requests) next: u64,
}

impl Known {
    /// Learns from the answer to `request`.
    pub(in crate::requests) fn learn(&mut self, request: &[u8], answer: &[u8]) {
        let (Some(opcode), Some(0)) = (word(request, 4), word(answer, 4)) else {
            return;
        };
        let body = answer.get(16..).unwrap_or_default();
        let entry = matches!(
            opcode,
            op::LOOKUP | op::SYMLINK | op::MKNOD | op::MKDIR | op::LINK | op::CREATE | op::TMPFILE
        );
        if let (true, Some(node)) = (entry, long(body, 0))
            && node != 0
            && !self.apart.contains(&node)
        {
            self.nodes.push(node);
        }
        let handle = match opcode {
            op::OPEN | op::OPENDIR => long(body, 0),
            op::CREATE | op::TMPFILE => long(body, 128),
            _ => None,
        };
        self.handles.extend(handle.filter(|h| *h != 0));
    }
}
