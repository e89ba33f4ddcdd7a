//! Names of a directory that were added or removed in transactions that are not valid. A record of
//! a file with one of these names must take them into account.

use std::collections::BTreeMap;

use stetfs_journal::CommitPoint;

/// A function that tells whether all transactions of a point are valid.
pub(crate) type Valid<'a> = dyn Fn(&CommitPoint) -> bool + 'a;

/// The most names of a directory that are tracked one by one.
pub(crate) const NAMES: usize = 1024;

/// The names of one directory.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: BTreeMap<Vec<u8>, NameChange>,
    /// Merged transactions of the names that are no longer tracked one by one.
    many: CommitPoint,
}

/// The change of a name.
#[derive(Debug, Default)]
struct NameChange {
    point: CommitPoint,
    /// An inode that had this name lost it.
    gone: bool,
    /// At least one inode that lost the name still had another one, or was renamed.
    moved: bool,
    /// The number of changes of this name so far.
    version: u64,
    /// A durable record says which inode has the name now.
    recorded: bool,
}

/// The former state of a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// No inode lost the name in a transaction that is not durable yet.
    Free,
    /// The inode that had the name was unlinked, and had no other name.
    Unlinked,
    /// Another change of the name, which a record cannot describe: only a commit makes it durable.
    Unclear,
}

impl Names {
    /// Notes that a name was added.
    pub(crate) fn came(&mut self, name: &[u8], point: CommitPoint, valid: &Valid<'_>) {
        self.changed(name, point, valid);
    }

    /// Notes that a name was removed, or leads to another inode.
    pub(crate) fn gone(
        &mut self,
        name: &[u8],
        unlinked: bool,
        point: CommitPoint,
        valid: &Valid<'_>,
    ) {
        let change = self.changed(name, point, valid);
        change.gone = true;
        change.moved |= !unlinked;
    }

    fn changed(&mut self, name: &[u8], point: CommitPoint, valid: &Valid<'_>) -> &mut NameChange {
        if self.names.len() >= NAMES {
            self.names.retain(|_, c| !valid(&c.point));
        }
        if self.names.len() >= NAMES {
            for (_, change) in std::mem::take(&mut self.names) {
                self.many.merge(&change.point);
            }
        }
        let change = self.names.entry(name.to_vec()).or_default();
        change.point.merge(&point);
        change.version += 1;
        change.recorded = false;
        change
    }

    /// The former state of a name, and the number of its last change, for
    /// [`is_recorded`](Self::is_recorded).
    pub(crate) fn before(&self, name: &[u8], valid: &Valid<'_>) -> (Before, u64) {
        if !valid(&self.many) {
            return (Before::Unclear, 0);
        }
        let Some(change) = self.names.get(name) else {
            return (Before::Free, 0);
        };
        let before = match change {
            c if !c.gone || valid(&c.point) => Before::Free,
            c if c.moved => Before::Unclear,
            _ => Before::Unlinked,
        };
        (before, change.version)
    }

    /// Notes that a durable record says which inode has the name, if its last change is still
    /// `version`.
    pub(crate) fn is_recorded(&mut self, name: &[u8], version: u64) {
        if let Some(change) = self.names.get_mut(name).filter(|c| c.version == version) {
            change.recorded = true;
        }
    }

    /// Whether all names are in valid transactions or durable records.
    pub(super) fn are_durable(&self, valid: &Valid<'_>) -> bool {
        let durable = |c: &NameChange| c.recorded || valid(&c.point);
        valid(&self.many) && self.names.values().all(durable)
    }
}
