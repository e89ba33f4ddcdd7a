//! The plan of a sync: one function decides what a sync of a file has to do.

use stetfs_sync::timed::atomic::{AtomicU64, Ordering};

/// The reason why a file was synced by a commit although files have records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncReason {
    /// A directory, or another inode that is no regular file.
    Kind,
    /// The file, or a directory that leads to it, was linked, renamed or unlinked.
    Name,
    /// Its extended attributes are in a block of their own, and changed.
    Attributes,
    /// The volume counts usage, which records do not hold.
    Quota,
    /// Its data goes through the journal although the preset's data does not.
    Journaled,
    /// The change is too large for a record.
    Large,
    /// The lane is full.
    Full,
    /// The volume is full: a recovery might lack blocks to apply a record (replay.A3).
    Space,
    /// The inode left memory since it changed.
    Forgotten,
    /// Other threads write to it all the time.
    Busy,
    /// It changed together with others in an atomic group.
    Group,
    /// Its map changed its form (extents or block map).
    Map,
    /// Many files are synced at once with little dirty data: one commit is less work.
    Crowd,
}

impl SyncReason {
    const ALL: [(SyncReason, &'static str); 13] = [
        (SyncReason::Kind, "kind"),
        (SyncReason::Name, "name"),
        (SyncReason::Attributes, "attributes"),
        (SyncReason::Quota, "quota"),
        (SyncReason::Journaled, "journaled"),
        (SyncReason::Large, "large"),
        (SyncReason::Full, "full"),
        (SyncReason::Space, "space"),
        (SyncReason::Forgotten, "forgotten"),
        (SyncReason::Busy, "busy"),
        (SyncReason::Group, "group"),
        (SyncReason::Map, "map"),
        (SyncReason::Crowd, "crowd"),
    ];
}

/// Counts of syncs by commit, by reason.
#[derive(Debug, Default)]
pub(crate) struct SyncReasons([AtomicU64; SyncReason::ALL.len()]);

impl SyncReasons {
    /// Counts one sync.
    pub(crate) fn count(&self, reason: SyncReason) {
        let at = SyncReason::ALL.iter().position(|(r, _)| *r == reason);
        if let Some(count) = at.and_then(|at| self.0.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each reason's name with its count.
    pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
        let all = SyncReason::ALL.iter().zip(&self.0);
        all.map(|((_, name), n)| (*name, n.load(Ordering::Relaxed)))
            .collect()
    }
}

/// The state of a file's ledgers when it is to be synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The reason why only a commit can make the file durable, independent of the size of the
    /// change ([`needs_commit`](super::MetadataLedger::needs_commit)).
    pub(crate) needs_commit: Option<SyncReason>,
    /// Metadata that this sync must make durable changed ([`any`](super::MetadataLedger::any)).
    pub(crate) changed: bool,
    /// The reason why a record cannot contain the change.
    pub(crate) refuses_record: Option<SyncReason>,
    /// Number of data blocks that no record holds; `None`: more than fit into a record.
    pub(crate) data: Option<usize>,
    /// Blocks that are not dirty and of which a record holds an older state.
    pub(crate) stale: usize,
    /// An older record holds outdated content: the next record must supersede it.
    pub(crate) superseding: bool,
    /// Data was written back since the device was last flushed.
    pub(crate) unflushed: bool,
}

/// The present limits of records.
pub(crate) struct Room<S: Fn() -> bool> {
    /// The most data blocks in one record.
    pub(crate) most: usize,
    /// The same limit while log space is short.
    pub(crate) short: usize,
    /// Whether log space is short.
    pub(crate) is_short: S,
    /// A record costs less than writing the data back and flushing the device.
    pub(crate) is_cheap: bool,
}

/// The next step of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Do nothing: all is durable.
    Nothing,
    /// Flush the device: all data is at its home location.
    Flush,
    /// Write the data back and flush the device.
    Home {
        /// There may be more data than fits into a record.
        much: bool,
        /// The sync has to decide again afterwards; otherwise it is complete.
        again: bool,
    },
    /// Write a record.
    Record,
    /// Commit.
    Commit(SyncReason),
}

impl Found {
    /// The step to take, from the first line that applies:
    ///
    /// | state | step |
    /// | --- | --- |
    /// | the change is unknown, was made with other files, or is of the map's form | commit |
    /// | only data changed, and all of it is written back | flush, or nothing |
    /// | only data changed, and a cheap record can hold it | record |
    /// | only data changed | write data back |
    /// | a record cannot contain the change | commit |
    /// | more data than a record holds, and an older record to be superseded | commit |
    /// | more data than a record or the log space holds, or some not flushed | write back, again |
    /// | else | record |
    pub(crate) fn plan<S: Fn() -> bool>(&self, room: &Room<S>) -> Plan {
        if let Some(reason) = self.needs_commit {
            return Plan::Commit(reason);
        }
        let much = self.data.is_none();
        if !self.changed && !self.superseding {
            let by_record = room.is_cheap && !self.unflushed && self.refuses_record.is_none();
            match self.data {
                Some(0) if self.unflushed => return Plan::Flush,
                Some(0) => return Plan::Nothing,
                Some(_) if by_record => {}
                _ => return Plan::Home { much, again: false },
            }
        }
        if let Some(reason) = self.refuses_record {
            return Plan::Commit(reason);
        }
        let home = Plan::Home { much, again: true };
        match self.data.filter(|data| data + self.stale <= room.most) {
            None if self.superseding => Plan::Commit(SyncReason::Large),
            None => home,
            Some(_) if self.unflushed => home,
            Some(data) if data > room.short && !self.superseding && (room.is_short)() => home,
            Some(_) => Plan::Record,
        }
    }
}
