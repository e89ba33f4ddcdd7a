//! What of an inode is in no valid transaction yet, and in no record: what a file-level record of
//! it must say.

use std::collections::BTreeMap;

use stetfs_journal::{CommitPoint, Journal};

use crate::types::Ino;

/// More ranges than this become one that covers them all.
const RANGES: usize = 64;
/// More names than this are not told apart.
const NAMES: usize = 1024;

/// Where the inode hangs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By what is durable.
    #[default]
    Durable,
    /// It was made here.
    Made {
        parent: Ino,
        name: Vec<u8>,
        /// In this transaction.
        point: CommitPoint,
    },
    /// It was linked, renamed or unlinked: more than one file changed, so only a commit will do.
    NeedsCommit(CommitPoint),
}

/// Changes since the last record, of transactions that are not valid.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// File blocks whose mapping, or journaled content, changed: first and one past the last.
    ranges: Vec<(u64, u64, CommitPoint)>,
    /// The inode itself.
    inode: CommitPoint,
    /// What of it is needed to find the data.
    needed: CommitPoint,
    name: Naming,
    /// The block of extended attributes.
    attributes: CommitPoint,
    /// It changed together with other files, in an atomic group: a record would tell of it alone.
    group: CommitPoint,
    /// Before the inode was loaded there may have been changes in these transactions.
    forgotten: CommitPoint,
    /// Of a directory: names that came or went.
    names: BTreeMap<Vec<u8>, NameChange>,
    /// As `names`, for too many.
    many_names: CommitPoint,
}

/// What became of a name.
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

/// What became of a directory's name before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// No inode lost the name in a transaction that is not durable yet.
    Free,
    /// The inode that had the name was unlinked, and had no other name.
    Unlinked,
    /// Something else happened to the name, so a record cannot say what: only a commit can.
    Unclear,
}

impl Changes {
    /// Of an inode that is loaded again: what it had may be in these transactions.
    pub(crate) fn after(forgotten: CommitPoint) -> Changes {
        Changes {
            forgotten,
            ..Changes::default()
        }
    }

    /// The inode changed.
    pub(crate) fn touched(&mut self, point: CommitPoint) {
        self.inode.merge(&point);
    }

    /// The inode changed in what is needed to find its data.
    pub(crate) fn needed(&mut self, point: CommitPoint) {
        self.needed.merge(&point);
    }

    /// `count` file blocks from `first` on got another place, or other journaled content.
    pub(crate) fn moved(&mut self, first: u32, count: u32, point: CommitPoint) {
        let (first, end) = (u64::from(first), u64::from(first) + u64::from(count));
        if let Some((from, to, last)) = self.ranges.last_mut()
            && first <= *to
            && *from <= end
        {
            (*from, *to) = (first.min(*from), end.max(*to));
            last.merge(&point);
            return;
        }
        self.ranges.push((first, end, point));
        if self.ranges.len() > RANGES {
            let mut all = self.ranges.swap_remove(0);
            for (from, to, point) in self.ranges.drain(..) {
                (all.0, all.1) = (all.0.min(from), all.1.max(to));
                all.2.merge(&point);
            }
            self.ranges.push(all);
        }
    }

    /// It was made under this name.
    pub(crate) fn made(&mut self, parent: Ino, name: &[u8], point: CommitPoint) {
        self.name = Naming::Made {
            parent,
            name: name.to_vec(),
            point,
        };
    }

    /// Its names changed in another way.
    pub(crate) fn entangled(&mut self, mut point: CommitPoint) {
        if let Naming::Made { point: made, .. } | Naming::NeedsCommit(made) = &self.name {
            point.merge(made);
        }
        self.name = Naming::NeedsCommit(point);
    }

    /// It changed together with other files.
    pub(crate) fn grouped(&mut self, point: CommitPoint) {
        self.group.merge(&point);
    }

    /// Its block of extended attributes changed.
    pub(crate) fn attributes(&mut self, point: CommitPoint) {
        self.attributes.merge(&point);
    }

    /// Of a directory: a name came.
    pub(crate) fn name_came(&mut self, name: &[u8], point: CommitPoint, journal: &Journal) {
        self.name_changed(name, point, journal);
    }

    /// Of a directory: a name went, or leads elsewhere.
    pub(crate) fn name_gone(
        &mut self,
        name: &[u8],
        unlinked: bool,
        point: CommitPoint,
        journal: &Journal,
    ) {
        let change = self.name_changed(name, point, journal);
        change.gone = true;
        change.moved |= !unlinked;
    }

    fn name_changed(
        &mut self,
        name: &[u8],
        point: CommitPoint,
        journal: &Journal,
    ) -> &mut NameChange {
        if self.names.len() >= NAMES {
            self.names.retain(|_, c| !journal.is_valid(&c.point));
        }
        if self.names.len() >= NAMES {
            for (_, change) in std::mem::take(&mut self.names) {
                self.many_names.merge(&change.point);
            }
        }
        let change = self.names.entry(name.to_vec()).or_default();
        change.point.merge(&point);
        change.version += 1;
        change.recorded = false;
        change
    }

    /// Of a directory: what became of a name, and the number of its last change, for
    /// [`name_is_recorded`](Self::name_is_recorded).
    pub(crate) fn before(&self, name: &[u8], journal: &Journal) -> (Before, u64) {
        if !journal.is_valid(&self.many_names) {
            return (Before::Unclear, 0);
        }
        let Some(change) = self.names.get(name) else {
            return (Before::Free, 0);
        };
        let before = match change {
            c if !c.gone || journal.is_valid(&c.point) => Before::Free,
            c if c.moved => Before::Unclear,
            _ => Before::Unlinked,
        };
        (before, change.version)
    }

    /// Of a directory: a record that is durable says what has the name, if it did not change since
    /// it had this number.
    pub(crate) fn name_is_recorded(&mut self, name: &[u8], version: u64) {
        if let Some(change) = self.names.get_mut(name).filter(|c| c.version == version) {
            change.recorded = true;
        }
    }

    /// Whether a sync of this directory has nothing to do: all that changed are names, and records
    /// that are durable hold them. After [`prune`](Self::prune).
    pub(crate) fn names_are_durable(&self, journal: &Journal) -> bool {
        let durable = |c: &NameChange| c.recorded || journal.is_valid(&c.point);
        !self.any(false) && journal.is_valid(&self.many_names) && self.names.values().all(durable)
    }

    /// Forgets what has become valid.
    pub(crate) fn prune(&mut self, journal: &Journal) {
        self.ranges.retain(|(.., point)| !journal.is_valid(point));
        let points = [
            &mut self.inode,
            &mut self.needed,
            &mut self.attributes,
            &mut self.group,
            &mut self.forgotten,
        ];
        for point in points {
            if journal.is_valid(point) {
                *point = CommitPoint::none();
            }
        }
        if let Naming::Made { point, .. } | Naming::NeedsCommit(point) = &self.name
            && journal.is_valid(point)
        {
            self.name = Naming::Durable;
        }
    }

    /// Whether a sync has to do something about the inode; with `datasync`, about what is needed to
    /// find its data. After [`prune`](Self::prune), as the others below.
    pub(crate) fn any(&self, datasync: bool) -> bool {
        !self.ranges.is_empty()
            || !self.needed.is_none()
            || self.name != Naming::Durable
            || !self.forgotten.is_none()
            || !self.group.is_none()
            || !(datasync || (self.inode.is_none() && self.attributes.is_none()))
    }

    /// Whether what changed is not known here.
    pub(crate) fn is_forgotten(&self) -> bool {
        !self.forgotten.is_none()
    }

    /// Whether it changed together with other files, in a transaction that is not valid.
    pub(crate) fn is_grouped(&self) -> bool {
        !self.group.is_none()
    }

    /// Whether its block of extended attributes changed.
    pub(crate) fn has_attributes(&self) -> bool {
        !self.attributes.is_none()
    }

    /// Where it hangs.
    pub(crate) fn naming(&self) -> &Naming {
        &self.name
    }

    /// The ranges, ascending, none over another: first file block and one past the last.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> = self.ranges.iter().map(|(a, b, _)| (*a, *b)).collect();
        all.sort_unstable();
        all.dedup_by(|next, last| {
            let over = next.0 <= last.1;
            if over {
                last.1 = last.1.max(next.1);
            }
            over
        });
        all
    }

    /// A record says all of it from here on, but for the directories that lead to the file.
    pub(crate) fn recorded(&mut self) {
        self.ranges.clear();
        self.inode = CommitPoint::none();
        self.needed = CommitPoint::none();
        self.name = Naming::Durable;
    }

    /// A record that is durable says where this directory hangs, if it is still there.
    pub(crate) fn name_recorded(&mut self, naming: &Naming) {
        if self.name == *naming {
            self.name = Naming::Durable;
        }
    }
}
