//! `MetadataLedger`: the transactions that hold changes of an inode's metadata, and the changes
//! that a record would have to contain.

use stetfs_journal::CommitPoint;

use super::names::{Names, Valid};
use super::plan::SyncReason;
use crate::types::Ino;

/// The most ranges; when there are more, one range that covers all replaces them.
pub(super) const RANGES: usize = 64;

/// The state of the inode's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The names are durable.
    #[default]
    Durable,
    /// The inode was made with this name.
    Made {
        parent: Ino,
        name: Vec<u8>,
        /// The transaction that made it.
        point: CommitPoint,
    },
    /// The inode was linked, renamed or unlinked: more than one file changed, so only a commit can
    /// make it durable.
    NeedsCommit(CommitPoint),
}

/// The ledger of one inode's metadata. The module documentation lists its verbs.
#[derive(Debug, Default)]
pub(crate) struct MetadataLedger {
    /// The newest transactions with any change of the inode, in each lane: what fsync commits.
    changed: CommitPoint,
    /// The newest transactions with a change that is needed to read the data back (size, extents):
    /// what fdatasync commits.
    needed: CommitPoint,
    /// Changes since the last record; empty where files have no records.
    unrecorded: Unrecorded,
    /// For a directory: names that were added or removed.
    pub(crate) names: Names,
}

/// Changes since the last record, of transactions that are not valid.
#[derive(Debug, Default)]
struct Unrecorded {
    /// File blocks whose mapping or journaled content changed: the first and one past the last.
    ranges: Vec<(u64, u64, CommitPoint)>,
    /// Changes of the inode itself.
    inode: CommitPoint,
    /// Changes of the inode that are needed to find the data.
    needed: CommitPoint,
    name: Naming,
    /// Changes of the block of extended attributes.
    attributes: CommitPoint,
    /// Changes together with other files, in an atomic group: a record would contain only this
    /// file.
    group: CommitPoint,
    /// Changes of the map's form (extents or block map). A record is applied to the durable form.
    form: CommitPoint,
    /// Transactions that may hold changes from before the inode was loaded.
    forgotten: CommitPoint,
}

impl MetadataLedger {
    /// The ledger of an inode that is made in a transaction. The data cannot be read back without
    /// the inode, so fdatasync waits for it, too, as in the kernel; `lax` is a deliberate fault.
    pub(crate) fn made_in(point: CommitPoint, lax: bool) -> MetadataLedger {
        MetadataLedger {
            needed: if lax {
                CommitPoint::none()
            } else {
                point.clone()
            },
            changed: point,
            ..MetadataLedger::default()
        }
    }

    /// The ledger of an inode that is loaded again: `forgotten` names the transactions that may
    /// hold changes of it.
    pub(crate) fn after(forgotten: CommitPoint) -> MetadataLedger {
        MetadataLedger {
            changed: forgotten.clone(),
            needed: forgotten.clone(),
            unrecorded: Unrecorded {
                forgotten,
                ..Unrecorded::default()
            },
            ..MetadataLedger::default()
        }
    }

    /// Notes a change of the inode, or of a directory's names: fsync commits this transaction.
    pub(crate) fn changed(&mut self, point: &CommitPoint) {
        self.changed.merge(point);
    }

    /// Notes a change that is needed to find the data: fdatasync commits it.
    pub(crate) fn needed(&mut self, point: &CommitPoint) {
        self.needed.merge(point);
    }

    /// The transactions that a sync has to commit: all changes, or those needed to read the data
    /// back.
    pub(crate) fn upto(&self, all: bool) -> &CommitPoint {
        match all {
            true => &self.changed,
            false => &self.needed,
        }
    }

    /// Notes that a record would have to contain the inode.
    pub(crate) fn touched(&mut self, point: CommitPoint) {
        self.unrecorded.inode.merge(&point);
    }

    /// Notes that a record would have to contain what is needed to find the data.
    pub(crate) fn unrecorded_need(&mut self, point: CommitPoint) {
        self.unrecorded.needed.merge(&point);
    }

    /// Notes that `count` file blocks from `first` on have a new place, or new journaled content.
    /// Each range belongs to one transaction and is forgotten as a whole when that is `valid`. The
    /// first range of a new transaction removes ranges that have become valid.
    pub(crate) fn moved(&mut self, first: u32, count: u32, point: CommitPoint, valid: &Valid<'_>) {
        let ranges = &mut self.unrecorded.ranges;
        let (first, end) = (u64::from(first), u64::from(first) + u64::from(count));
        match ranges.last_mut() {
            Some((from, to, last)) if *last == point && first <= *to && *from <= end => {
                (*from, *to) = (first.min(*from), end.max(*to));
                return;
            }
            Some((.., last)) if *last != point => ranges.retain(|(.., point)| !valid(point)),
            _ => {}
        }
        ranges.push((first, end, point));
        if ranges.len() > RANGES {
            let mut all = ranges.swap_remove(0);
            for (from, to, point) in ranges.drain(..) {
                (all.0, all.1) = (all.0.min(from), all.1.max(to));
                all.2.merge(&point);
            }
            ranges.push(all);
        }
    }

    /// Notes that the inode was made under this name.
    pub(crate) fn made(&mut self, parent: Ino, name: &[u8], point: CommitPoint) {
        self.unrecorded.name = Naming::Made {
            parent,
            name: name.to_vec(),
            point,
        };
    }

    /// Notes another change of its names.
    pub(crate) fn names_changed(&mut self, mut point: CommitPoint) {
        let name = &mut self.unrecorded.name;
        if let Naming::Made { point: made, .. } | Naming::NeedsCommit(made) = name {
            point.merge(made);
        }
        *name = Naming::NeedsCommit(point);
    }

    /// Notes a change together with other files.
    pub(crate) fn grouped(&mut self, point: CommitPoint) {
        self.unrecorded.group.merge(&point);
    }

    /// Notes that the map changed its form.
    pub(crate) fn reformed(&mut self, point: CommitPoint) {
        self.unrecorded.form.merge(&point);
    }

    /// Notes a change of its block of extended attributes.
    pub(crate) fn attributes(&mut self, point: CommitPoint) {
        self.unrecorded.attributes.merge(&point);
    }

    /// Notes that a record now contains all changes, except the directories that lead to the file
    /// and what records cannot contain. The record ends with the transactions `superseding`, so a
    /// sync by commit commits these.
    pub(crate) fn recorded(&mut self, superseding: &CommitPoint) {
        self.changed.merge(superseding);
        self.needed.merge(superseding);
        let unrecorded = &mut self.unrecorded;
        unrecorded.ranges.clear();
        unrecorded.inode = CommitPoint::none();
        unrecorded.needed = CommitPoint::none();
        unrecorded.name = Naming::Durable;
    }

    /// Notes that a durable record contains this directory's name, if the name is still the same.
    pub(crate) fn name_recorded(&mut self, naming: &Naming) {
        if self.unrecorded.name == *naming {
            self.unrecorded.name = Naming::Durable;
        }
    }

    /// Forgets changes that have become valid.
    pub(crate) fn prune(&mut self, valid: &Valid<'_>) {
        let unrecorded = &mut self.unrecorded;
        unrecorded.ranges.retain(|(.., point)| !valid(point));
        let points = [
            &mut unrecorded.inode,
            &mut unrecorded.needed,
            &mut unrecorded.attributes,
            &mut unrecorded.group,
            &mut unrecorded.form,
            &mut unrecorded.forgotten,
        ];
        for point in points {
            if valid(point) {
                *point = CommitPoint::none();
            }
        }
        if let Naming::Made { point, .. } | Naming::NeedsCommit(point) = &unrecorded.name
            && valid(point)
        {
            unrecorded.name = Naming::Durable;
        }
    }

    /// Whether a sync has to make a change of the inode durable; with `datasync`, only changes
    /// needed to find its data. Called after [`prune`](Self::prune), as the functions below.
    pub(crate) fn any(&self, datasync: bool) -> bool {
        let unrecorded = &self.unrecorded;
        !unrecorded.ranges.is_empty()
            || !unrecorded.needed.is_none()
            || unrecorded.name != Naming::Durable
            || !unrecorded.forgotten.is_none()
            || !unrecorded.group.is_none()
            || !unrecorded.form.is_none()
            || !(datasync || (unrecorded.inode.is_none() && unrecorded.attributes.is_none()))
    }

    /// Whether a sync of this directory has nothing to do: only names changed, and durable records
    /// hold them.
    pub(crate) fn names_are_durable(&self, valid: &Valid<'_>) -> bool {
        !self.any(false) && self.names.are_durable(valid)
    }

    /// Whether unknown changes may not be durable.
    pub(crate) fn is_forgotten(&self) -> bool {
        !self.unrecorded.forgotten.is_none()
    }

    /// Whether its block of extended attributes changed.
    pub(crate) fn has_attributes(&self) -> bool {
        !self.unrecorded.attributes.is_none()
    }

    /// The reason why only a commit can make the inode durable, independent of the size of the
    /// change.
    pub(crate) fn needs_commit(&self) -> Option<SyncReason> {
        let unrecorded = &self.unrecorded;
        let reasons = [
            (&unrecorded.forgotten, SyncReason::Forgotten),
            (&unrecorded.group, SyncReason::Group),
            (&unrecorded.form, SyncReason::Map),
        ];
        let mut found = reasons.into_iter().filter(|(point, _)| !point.is_none());
        found.next().map(|(_, reason)| reason)
    }

    /// The reason why a record cannot contain the changes of an inode with `links` names and
    /// perhaps a block of attributes.
    pub(crate) fn refuses_record(&self, links: u32, has_acl: bool) -> Option<SyncReason> {
        let is_made = matches!(self.naming(), Naming::Made { .. });
        if matches!(self.naming(), Naming::NeedsCommit(_)) || links == 0 {
            return Some(SyncReason::Name);
        }
        let attributes = self.has_attributes() || (is_made && has_acl);
        attributes.then_some(SyncReason::Attributes)
    }

    /// The state of its names.
    pub(crate) fn naming(&self) -> &Naming {
        &self.unrecorded.name
    }

    /// The changed ranges, ascending and disjoint: first file block and one past the last.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let ranges = self.unrecorded.ranges.iter();
        let mut all: Vec<(u64, u64)> = ranges.map(|(a, b, _)| (*a, *b)).collect();
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
}
