//! Which transactions hold what of an inode's metadata, and what of it a record would have to say.

use stetfs_journal::CommitPoint;

use super::names::{Names, Valid};
use super::plan::SyncReason;
use crate::types::Ino;

/// More ranges than this become one that covers them all.
pub(super) const RANGES: usize = 64;

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

/// The ledger of one inode's metadata. See the module for its verbs.
#[derive(Debug, Default)]
pub(crate) struct MetadataLedger {
    /// The newest transactions with any change of the inode, in each lane: what fsync commits.
    changed: CommitPoint,
    /// The newest with a change needed to read its data back (size, extents): what fdatasync
    /// commits.
    needed: CommitPoint,
    /// What changed since the last record; nothing where files have none.
    unrecorded: Unrecorded,
    /// Of a directory: names that came or went.
    pub(crate) names: Names,
}

/// Changes since the last record, of transactions that are not valid.
#[derive(Debug, Default)]
struct Unrecorded {
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
    /// Its map took on its other form, and a record is applied to the one that is durable.
    form: CommitPoint,
    /// Before the inode was loaded there may have been changes in these transactions.
    forgotten: CommitPoint,
}

impl MetadataLedger {
    /// Of an inode that is made in a transaction. Its data cannot be read back without it, so
    /// fdatasync waits for it, too, as in the kernel; `lax` is a deliberate fault.
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

    /// Of an inode that is loaded again: what it had may be in these transactions.
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

    /// The inode, or a directory's list of names, changed: fsync commits this transaction.
    pub(crate) fn changed(&mut self, point: &CommitPoint) {
        self.changed.merge(point);
    }

    /// So did what is needed to find its data: fdatasync commits it.
    pub(crate) fn needed(&mut self, point: &CommitPoint) {
        self.needed.merge(point);
    }

    /// What a sync has to commit; `all` of it, else what is needed to read the data back.
    pub(crate) fn upto(&self, all: bool) -> &CommitPoint {
        match all {
            true => &self.changed,
            false => &self.needed,
        }
    }

    /// A record would have to say the inode.
    pub(crate) fn touched(&mut self, point: CommitPoint) {
        self.unrecorded.inode.merge(&point);
    }

    /// A record would have to say what is needed to find its data.
    pub(crate) fn unrecorded_need(&mut self, point: CommitPoint) {
        self.unrecorded.needed.merge(&point);
    }

    /// `count` file blocks from `first` on got another place, or other journaled content. A range
    /// is of one transaction, so that all of it is forgotten when that is valid; with a new
    /// one, what has become `valid` is.
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

    /// It was made under this name.
    pub(crate) fn made(&mut self, parent: Ino, name: &[u8], point: CommitPoint) {
        self.unrecorded.name = Naming::Made {
            parent,
            name: name.to_vec(),
            point,
        };
    }

    /// Its names changed in another way.
    pub(crate) fn names_changed(&mut self, mut point: CommitPoint) {
        let name = &mut self.unrecorded.name;
        if let Naming::Made { point: made, .. } | Naming::NeedsCommit(made) = name {
            point.merge(made);
        }
        *name = Naming::NeedsCommit(point);
    }

    /// It changed together with other files.
    pub(crate) fn grouped(&mut self, point: CommitPoint) {
        self.unrecorded.group.merge(&point);
    }

    /// Its map took on its other form.
    pub(crate) fn reformed(&mut self, point: CommitPoint) {
        self.unrecorded.form.merge(&point);
    }

    /// Its block of extended attributes changed.
    pub(crate) fn attributes(&mut self, point: CommitPoint) {
        self.unrecorded.attributes.merge(&point);
    }

    /// A record says all of it from here on, but for the directories that lead to the file and for
    /// what records cannot say. The record ends with these transactions: whoever syncs by a commit
    /// commits them.
    pub(crate) fn recorded(&mut self, superseding: &CommitPoint) {
        self.changed.merge(superseding);
        self.needed.merge(superseding);
        let unrecorded = &mut self.unrecorded;
        unrecorded.ranges.clear();
        unrecorded.inode = CommitPoint::none();
        unrecorded.needed = CommitPoint::none();
        unrecorded.name = Naming::Durable;
    }

    /// A record that is durable says where this directory hangs, if it is still there.
    pub(crate) fn name_recorded(&mut self, naming: &Naming) {
        if self.unrecorded.name == *naming {
            self.unrecorded.name = Naming::Durable;
        }
    }

    /// Forgets what has become valid.
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

    /// Whether a sync has to do something about the inode; with `datasync`, about what is needed to
    /// find its data. After [`prune`](Self::prune), as the others below.
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

    /// Whether a sync of this directory has nothing to do: all that changed are names, and records
    /// that are durable hold them.
    pub(crate) fn names_are_durable(&self, valid: &Valid<'_>) -> bool {
        !self.any(false) && self.names.are_durable(valid)
    }

    /// Whether what changed is not known here.
    pub(crate) fn is_forgotten(&self) -> bool {
        !self.unrecorded.forgotten.is_none()
    }

    /// Whether its block of extended attributes changed.
    pub(crate) fn has_attributes(&self) -> bool {
        !self.unrecorded.attributes.is_none()
    }

    /// Why only a commit can say it, however little changed.
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

    /// Why a record cannot say what changed of an inode that has so many names and perhaps a block
    /// of attributes.
    pub(crate) fn refuses_record(&self, links: u32, has_acl: bool) -> Option<SyncReason> {
        let is_made = matches!(self.naming(), Naming::Made { .. });
        if matches!(self.naming(), Naming::NeedsCommit(_)) || links == 0 {
            return Some(SyncReason::Name);
        }
        let attributes = self.has_attributes() || (is_made && has_acl);
        attributes.then_some(SyncReason::Attributes)
    }

    /// Where it hangs.
    pub(crate) fn naming(&self) -> &Naming {
        &self.unrecorded.name
    }

    /// The ranges, ascending, none over another: first file block and one past the last.
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
