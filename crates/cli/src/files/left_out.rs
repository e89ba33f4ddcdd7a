//! Attributes and files that a copy leaves out, because they would have power on the host or are
//! not permitted.

use std::ops::AddAssign;

use serde_json::{Value, json};

/// Counts of what a copy left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Files without their set-user-id, set-group-id or sticky bits.
    pub(super) bits: u64,
    /// Devices, and pipes and sockets that could not be made.
    pub(super) nodes: u64,
    /// Files that do not belong to the intended owner.
    pub(super) owners: u64,
    /// Extended attributes.
    pub(super) attributes: u64,
    /// Files without some of their flags (chattr).
    pub(super) flags: u64,
}

impl AddAssign for LeftOut {
    fn add_assign(&mut self, more: LeftOut) {
        self.bits += more.bits;
        self.nodes += more.nodes;
        self.owners += more.owners;
        self.attributes += more.attributes;
        self.flags += more.flags;
    }
}

impl LeftOut {
    /// As a message; `None` if nothing was left out.
    pub(super) fn said(&self) -> Option<String> {
        let all = [
            (
                self.bits,
                "set-user-id, set-group-id or sticky bits of",
                "file",
            ),
            (self.nodes, "", "special file"),
            (self.owners, "owners of", "file"),
            (self.attributes, "", "extended attribute"),
            (self.flags, "flags of", "file"),
        ];
        let said: Vec<String> = all
            .into_iter()
            .filter(|(n, ..)| *n > 0)
            .map(|(n, of, what)| {
                let (space, s) = (
                    if of.is_empty() { "" } else { " " },
                    if n == 1 { "" } else { "s" },
                );
                format!("{of}{space}{n} {what}{s}")
            })
            .collect();
        (!said.is_empty()).then(|| format!("left out: {}", said.join(", ")))
    }

    pub(super) fn to_json(self) -> Value {
        json!({
            "bits": self.bits,
            "nodes": self.nodes,
            "owners": self.owners,
            "attributes": self.attributes,
            "flags": self.flags,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_said_in_one_sentence() {
        assert_eq!(LeftOut::default().said(), None);
        let some = LeftOut {
            bits: 2,
            nodes: 1,
            ..LeftOut::default()
        };
        let said = "left out: set-user-id, set-group-id or sticky bits of 2 files, 1 special file";
        assert_eq!(some.said().as_deref(), Some(said));
    }
}
