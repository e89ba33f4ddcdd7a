//! What a sync of a file has to do, decided in one place.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a file was synced by a commit, although files have records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncReason {
    /// A directory, or another inode that is no regular file.
    Kind,
    /// It, or a directory that leads to it, was linked, renamed or unlinked.
    Name,
    /// Its extended attributes are in a block of their own, and changed.
    Attributes,
    /// The volume counts usage, which records do not hold.
    Quota,
    /// Its data goes through the journal although the preset's does not.
    Journaled,
    /// Too much changed for a record.
    Large,
    /// The lane is full.
    Full,
    /// The volume is: a recovery might lack blocks to apply a record (replay.A3).
    Space,
    /// It was out of memory for a while since it changed.
    Forgotten,
    /// Others write to it all the time.
    Busy,
    /// It changed with others in an atomic group.
    Group,
    /// Its map took on its other form, extents or block numbers.
    Map,
    /// Many files are synced at once, and little is dirty: one commit is less work.
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

/// How often files were synced by a commit, by reason.
#[derive(Debug, Default)]
pub(crate) struct SyncReasons([AtomicU64; SyncReason::ALL.len()]);

impl SyncReasons {
    /// Counts one.
    pub(crate) fn count(&self, reason: SyncReason) {
        let at = SyncReason::ALL.iter().position(|(r, _)| *r == reason);
        if let Some(count) = at.and_then(|at| self.0.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each with its name.
    pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
        let all = SyncReason::ALL.iter().zip(&self.0);
        all.map(|((_, name), n)| (*name, n.load(Ordering::Relaxed)))
            .collect()
    }
}

/// What the ledgers of a file say when it is to be synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Why only a commit can say it, however little changed
    /// ([`needs_commit`](super::MetadataLedger::names_changed)).
    pub(crate) needs_commit: Option<SyncReason>,
    /// Metadata changed that this sync is for ([`any`](super::MetadataLedger::any)).
    pub(crate) changed: bool,
    /// Why a record cannot say what changed.
    pub(crate) refuses_record: Option<SyncReason>,
    /// Blocks of data that no record holds; `None`: more than a record does.
    pub(crate) data: Option<usize>,
    /// Blocks that a record holds as they were and that are not dirty.
    pub(crate) stale: usize,
    /// An older record holds what is not so any more: the next has to be newer.
    pub(crate) superseding: bool,
    /// Data went home since the device was last flushed.
    pub(crate) unflushed: bool,
}

/// What records of files can do now.
pub(crate) struct Room<S: Fn() -> bool> {
    /// Blocks of data in one, at most.
    pub(crate) most: usize,
    /// The same while room is short.
    pub(crate) short: usize,
    /// Whether it is.
    pub(crate) is_short: S,
    /// A record costs less than to write its data home and to flush the device.
    pub(crate) is_cheap: bool,
}

/// What a sync has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing: it is durable.
    Nothing,
    /// The device is flushed: all is there.
    Flush,
    /// Its data goes home, and the device is flushed.
    Home {
        /// That may be more than a record holds.
        much: bool,
        /// Then a sync has to look again; else that is all.
        again: bool,
    },
    /// A record of it is written.
    Record,
    /// A commit.
    Commit(SyncReason),
}

impl Found {
    /// What to do, from the first line that applies:
    ///
    /// | what is so | what is done |
    /// | --- | --- |
    /// | it is not known what changed, it changed with others, or its map is another | commit |
    /// | nothing but data changed, and all of it is at home | flush, or nothing |
    /// | nothing but data changed, and a cheap record can hold it | record |
    /// | nothing but data changed | data home |
    /// | a record cannot say what changed | commit |
    /// | more data than a record holds, and an older record to be superseded | commit |
    /// | more data than a record holds, or than the room there is, or some not flushed | data home, then again |
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
