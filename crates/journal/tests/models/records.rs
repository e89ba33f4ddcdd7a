//! Models of a file that is overwritten in place and synced by records, beside commits of two lanes
//! (record.F1, record.F3, record.F4).
//!
//! The whole journal runs. The file system is one file with one block of data, which does what
//! `ext4/data/syncs/record.rs` and `dirty.rs` do. A writer holds the file's lock. A sync writes a
//! record with the data, unless only the data changed and no record with older data is alive. Data
//! is written home when the journal asks for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use stetfs_block::{BlockDevice, WriteList};
use stetfs_cache::Page;
use stetfs_journal::{
    Canary, CommitPoint, FileState, FlushMark, Ino, JournalError, Result, Stamp, Submit,
};
use stetfs_sync::plain::{Mutex, MutexGuard};

use super::common::{BS, block};
use super::explore::{fails_with, holds, with};
use super::volume::{Volume, on, sync, together};

const INO: Ino = 7;
/// The block of the first file's data; `INODE` is the block that a handle changes for its times.
const DATA: u64 = 600;
const INODE: u64 = 310;
/// The first of the blocks that others change.
const OTHER: u64 = 320;

pub struct File {
    pub v: Arc<Volume>,
    /// The number of the file on the volume.
    n: u32,
    /// The version of the content, and that of the times.
    body: Mutex<(u8, u8)>,
    /// Held while data is written home.
    flush: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Transactions that hold changes of the times.
    times: CommitPoint,
    /// The transactions that a sync by commit has to commit.
    sync: CommitPoint,
    version: u8,
    dirty: bool,
    /// The record that holds data of the block, and whether that is the present data.
    logged: Option<(Stamp, bool)>,
    unflushed: Option<FlushMark>,
}

impl FileState for File {
    fn hand_out(&self, inos: &[Ino], send: &mut Submit<'_>) -> Result<()> {
        if !inos.contains(&self.ino()) {
            return Ok(());
        }
        let _flush = self.flush.lock();
        let taken = {
            let mut s = self.state.lock();
            std::mem::take(&mut s.dirty).then_some(s.version)
        };
        if let Some(version) = taken {
            let page = [version; BS];
            let mut list = WriteList::new();
            list.push(self.data() * BS as u64, &page);
            send(&list)?;
            self.state.lock().unflushed = Some(self.v.journal.flush_mark());
        }
        Ok(())
    }

    fn aborted(&self, why: &JournalError) {
        panic!("the journal stops: {why}");
    }
}

enum Step {
    Done { flush: bool },
    Home { again: bool },
    Record { data: bool },
}

impl File {
    /// A file on a new volume. Version 1 of it is durable.
    pub fn new(canary: Canary) -> Arc<File> {
        File::on(Volume::new(2, 1, canary))
    }

    /// A file on this volume. Version 1 of it is durable.
    pub fn on(volume: Arc<Volume>) -> Arc<File> {
        let file = Arc::new(File::part(volume, 0));
        let state: Weak<File> = Arc::downgrade(&file);
        file.v.journal.attach(state);
        file.begin();
        file.v.disk.begin();
        file
    }

    /// File `n` of a volume, without content.
    pub fn part(volume: Arc<Volume>, n: u32) -> File {
        File {
            v: volume,
            n,
            body: Mutex::new((0, 0)),
            flush: Mutex::new(()),
            state: Mutex::default(),
        }
    }

    /// Makes version 1 durable.
    pub fn begin(&self) {
        self.write(true);
        self.by_commit(true);
        self.v.journal.flush_shared().unwrap();
    }

    fn ino(&self) -> Ino {
        INO + self.n
    }

    fn data(&self) -> u64 {
        DATA + u64::from(self.n)
    }

    fn inode(&self) -> u64 {
        INODE + u64::from(self.n)
    }

    /// Overwrites the content; with `times` these change, too.
    pub fn write(&self, times: bool) {
        let mut body = self.body.lock();
        body.0 += 1;
        {
            let mut s = self.state.lock();
            (s.version, s.dirty) = (body.0, true);
            s.logged = s.logged.map(|(stamp, _)| (stamp, false));
        }
        if times {
            self.touch(&mut body);
        }
    }

    /// Changes the times.
    fn touch(&self, body: &mut (u8, u8)) {
        let handle = self.v.journal.begin(1).unwrap();
        body.1 = self.v.raise(&handle, self.inode());
        let point = handle.stop();
        let mut s = self.state.lock();
        s.times.merge(&point);
        s.sync.merge(&point);
    }

    fn step(&self, _locked: &MutexGuard<'_, (u8, u8)>) -> Step {
        let journal = &self.v.journal;
        let _flush = self.flush.lock();
        let mut s = self.state.lock();
        s.logged = s.logged.filter(|(stamp, _)| journal.is_alive(*stamp));
        s.unflushed = s.unflushed.filter(|mark| !journal.is_flushed(*mark));
        let (superseding, current) = match s.logged {
            Some((_, current)) => (!current, current),
            None => (false, false),
        };
        if journal.is_valid(&s.times) && !superseding {
            let cheap = journal.records().unwrap().is_cheap();
            match s.dirty && !current {
                true if cheap && s.unflushed.is_none() => Step::Record { data: true },
                true => Step::Home { again: false },
                false => Step::Done {
                    flush: s.unflushed.is_some(),
                },
            }
        } else if s.unflushed.is_some() {
            Step::Home { again: true }
        } else {
            Step::Record {
                data: superseding || (s.dirty && !current),
            }
        }
    }

    /// Makes the file durable, by a record if one is needed.
    pub fn sync(&self) {
        loop {
            let body = self.body.lock();
            let now = *body;
            match self.step(&body) {
                Step::Done { flush } => {
                    drop(body);
                    if flush {
                        self.v.journal.flush_shared().unwrap();
                    }
                    return self.synced(now);
                }
                Step::Home { again } => {
                    drop(body);
                    self.hand_out(&[self.ino()], &mut |list| list.submit(&*self.v.disk))
                        .unwrap();
                    self.v.journal.flush_shared().unwrap();
                    if !again {
                        return self.synced(now);
                    }
                }
                Step::Record { data } => {
                    let page = Arc::new(Page::copy_of(&[now.0; BS]));
                    let pages: Vec<_> = data.then_some((self.data(), page)).into_iter().collect();
                    let data_of = data.then_some(self.ino());
                    let place = self
                        .v
                        .journal
                        .records()
                        .unwrap()
                        .reserve(1, pages.len(), data_of);
                    let place = place.expect("room for a record");
                    let point = self.v.journal.records().unwrap().superseding();
                    {
                        let mut s = self.state.lock();
                        s.sync.merge(&point);
                        if data {
                            s.logged = Some((place.stamp(), true));
                        }
                    }
                    drop(body);
                    let written = self.v.journal.records().unwrap().write(
                        &place,
                        &[now.1, self.n as u8],
                        &pages,
                    );
                    written.unwrap();
                    return self.synced(now);
                }
            }
        }
    }

    /// Makes the file durable by a commit.
    pub fn by_commit(&self, here: bool) {
        let now = *self.body.lock();
        let (point, data) = {
            let s = self.state.lock();
            let data = s.dirty.then_some(self.ino());
            (s.sync.clone(), data.into_iter().collect())
        };
        sync(&self.v.journal, point, data, here).unwrap();
        self.synced(now);
    }

    fn synced(&self, (version, times): (u8, u8)) {
        self.v.acks.give(self.data(), version);
        self.v.acks.give(self.inode(), times);
    }

    /// Changes another block, and commits it.
    pub fn other(&self, lane: u16, all: bool) {
        on(lane);
        let handle = self.v.journal.begin(1).unwrap();
        let nr = OTHER + u64::from(lane);
        let version = self.v.raise(&handle, nr);
        let point = handle.stop();
        match all {
            true => self.v.journal.commit_all().unwrap(),
            false => sync(&self.v.journal, point, Vec::new(), true).unwrap(),
        }
        self.v.acks.give(nr, version);
    }

    pub fn judge(&self) {
        judge(&self.v);
    }
}

/// Checks that all promised content is there, for all files of a volume.
pub fn judge(v: &Volume) {
    for (device, found, promise) in v.cuts() {
        let mut times = BTreeMap::new();
        for record in &found.records {
            let [version, n] = record.body[..] else {
                panic!("lost: a record of {:?}", record.body)
            };
            times.insert(INODE + u64::from(n), version);
            for (nr, page) in &record.pages {
                device.write(nr * BS as u64, page).unwrap();
            }
        }
        for (nr, version) in promise {
            let home = || block(&*device, nr)[0];
            let is = times.get(&nr).copied().unwrap_or_else(home);
            assert!(is >= version, "lost: block {nr} is {is}, not {version}");
        }
    }
}

/// Each write is synced by a record or otherwise, beside commits of both lanes.
fn synced(canary: Canary) {
    let file = File::new(canary);
    let works: [fn(&File); 3] = [
        |f| {
            f.write(true);
            f.sync();
            f.write(false);
            f.sync();
        },
        |f| {
            f.other(0, true);
            f.other(0, false);
        },
        |f| f.other(1, false),
    ];
    together(&file, works);
    file.judge();
}

/// The second write is synced by a commit.
fn committed(canary: Canary) {
    let file = File::new(canary);
    let works: [fn(&File); 3] = [
        |f| {
            f.write(true);
            f.sync();
            f.write(false);
            f.by_commit(true);
        },
        |f| f.other(0, true),
        |f| f.other(1, false),
    ];
    together(&file, works);
    file.judge();
}

/// Only the times change.
fn touched() {
    let file = File::new(Canary::default());
    let works: [fn(&File); 2] = [
        |f| {
            f.touch(&mut f.body.lock());
            f.sync();
            f.touch(&mut f.body.lock());
            f.by_commit(true);
        },
        |f| f.other(1, false),
    ];
    together(&file, works);
    file.judge();
}

#[test]
fn times_that_were_committed_are_not_taken_back() {
    holds("records-touched", touched);
}

#[test]
fn a_file_synced_beside_commits_keeps_what_was_synced() {
    holds("records", || synced(Canary::default()));
}

#[test]
fn a_commit_ends_the_records_of_the_file_it_syncs() {
    holds("records-committed", || committed(Canary::default()));
}

/// Without record.F4.
#[test]
fn data_that_is_left_to_its_record_is_found() {
    let model = || synced(with(|canary| canary.leave_recorded = true));
    fails_with("leave-recorded", model, &["lost"]);
}

#[test]
fn a_record_that_is_forgotten_too_early_is_found() {
    let model = || synced(with(|canary| canary.forget_records = true));
    fails_with("forget-records", model, &["lost"]);
}

/// The note is made after the stamp is drawn, not under one lock with it (record.F4).
#[test]
fn a_note_that_comes_after_its_stamp_is_found() {
    let model = || synced(with(|canary| canary.note_late = true));
    fails_with("note-late", model, &["lost"]);
}

/// Without record.F1: a transaction that has its snapshot is taken for one that supersedes a later
/// record.
#[test]
fn a_commit_that_does_not_end_the_record_is_found() {
    let model = || committed(with(|canary| canary.supersede_early = true));
    fails_with("supersede-early", model, &["lost"]);
}
