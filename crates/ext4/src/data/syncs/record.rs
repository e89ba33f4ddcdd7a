//! Syncs by record: a file is made durable by a record of its own, in the thread that asks, while
//! the running transaction stays open (iJournaling, §5; the rules are in
//! `journal/src/records.rs`).
//!
//! A change that a record cannot describe safely is left to a commit, and counted.

use std::sync::Arc;

use stetfs_cache::PageRef;
use stetfs_journal::{BlockNr, JournalError, RecordPlace, Records, Wait};
use stetfs_ondisk::stet::record::{FileRecord, MAX_RUNS, Name, Node, Range, Run};
use stetfs_sync::MutexGuard;

use crate::data::maps::map::Mapping;
use crate::data::store::DataStore;
use crate::data::writeback::precedence::WritebackPriority;
use crate::durability::{Before, Found, Naming, Plan, Room, SyncReason, Unlogged};
use crate::error::Result;
use crate::inode::{Inode, InodeBody};
use crate::types::{FileType, Ino};
use stetfs_ondisk::num::bounded32;

/// The most dirty data in a record, bytes; more is written back first.
const LOGGED_BYTES: usize = 128 << 10;
/// The same limit while room for records is short, bytes.
const SHORT_BYTES: usize = 16 << 10;
/// The most uncommitted directories that lead to the file.
const DEPTH: usize = 32;
/// The most write-backs before a record while other threads write more.
const TRIES: usize = 4;

/// The result of an attempt to sync a file without a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncOutcome {
    /// The file is durable.
    Synced,
    /// Only a commit can do it.
    NeedsCommit,
    /// There is more to write than a record holds, and the calling thread is not to write it.
    TooLarge,
}

/// The next step of a sync.
enum Step {
    Plan(Plan),
    /// Write this record.
    Record(Box<Ready>),
}

impl Step {
    fn commit(reason: SyncReason) -> Step {
        Step::Plan(Plan::Commit(reason))
    }
}

/// A record with its place in the log.
struct Ready {
    place: RecordPlace,
    bytes: Vec<u8>,
    pages: Vec<(BlockNr, PageRef)>,
    /// The directories that it makes.
    dirs: Vec<(Arc<Inode>, Naming)>,
    /// The names that it makes.
    names: Vec<MadeName>,
}

/// A name that a record makes.
struct MadeName {
    dir: Arc<Inode>,
    name: Name,
    /// The number of the name's last change.
    version: u64,
}

/// The uncommitted directories that lead to a file.
#[derive(Default)]
struct Chain {
    /// From the file's directory upwards.
    dirs: Vec<(Arc<Inode>, Naming)>,
    nodes: Vec<Node>,
    names: Vec<MadeName>,
}

impl DataStore {
    /// Counts of syncs by commit although files have records, by reason.
    pub(crate) fn sync_reasons(&self) -> Vec<(&'static str, u64)> {
        self.state.reasons.all()
    }

    /// Makes a file durable without a commit, with the file's turn held. With [`Wait::Inline`] it
    /// writes no more than a record holds.
    ///
    /// # Errors
    /// Errors of the journal and the device; the journal has stopped then.
    pub(in crate::data) fn sync_alone(
        &self,
        inode: &Inode,
        datasync: bool,
        _turn: MutexGuard<'_, ()>,
        wait: Wait,
    ) -> Result<SyncOutcome, JournalError> {
        if inode.kind == FileType::Directory && self.names_are_durable(inode) {
            return Ok(SyncOutcome::Synced);
        }
        if inode.kind != FileType::Regular {
            self.state.reasons.count(SyncReason::Kind);
            return Ok(SyncOutcome::NeedsCommit);
        }
        let _sync = self.state.precedence.begin();
        for _ in 0..TRIES {
            match self.next_sync_step(inode, datasync) {
                Step::Plan(Plan::Nothing) => return Ok(SyncOutcome::Synced),
                Step::Plan(Plan::Flush) => {
                    self.vol.journal.flush_shared()?;
                    return Ok(SyncOutcome::Synced);
                }
                Step::Plan(Plan::Home { much: true, .. }) if wait == Wait::Inline => {
                    return Ok(SyncOutcome::TooLarge);
                }
                Step::Plan(Plan::Home { again, .. }) => {
                    self.data_durable(inode)?;
                    if !again {
                        return Ok(SyncOutcome::Synced);
                    }
                }
                Step::Plan(Plan::Commit(reason)) => {
                    self.state.reasons.count(reason);
                    return Ok(SyncOutcome::NeedsCommit);
                }
                Step::Plan(Plan::Record) => {
                    let detail = "internal error: a record was planned for data that records \
                         cannot hold";
                    return Err(JournalError::Aborted(detail.into()));
                }
                Step::Record(ready) => {
                    self.records()?
                        .write(&ready.place, &ready.bytes, &ready.pages)?;
                    if let Some(proof) = self.vol.sb.proof.get() {
                        proof();
                    }
                    for (dir, naming) in &ready.dirs {
                        dir.metadata.lock().name_recorded(naming);
                    }
                    for made in &ready.names {
                        let mut metadata = made.dir.metadata.lock();
                        metadata.names.is_recorded(&made.name.name, made.version);
                    }
                    return Ok(SyncOutcome::Synced);
                }
            }
        }
        self.state.reasons.count(SyncReason::Busy);
        Ok(SyncOutcome::NeedsCommit)
    }

    /// Whether only names changed in a directory, and durable records hold them.
    fn names_are_durable(&self, dir: &Inode) -> bool {
        let mut metadata = dir.metadata.lock();
        metadata.prune(&self.vol.valid());
        metadata.names_are_durable(&self.vol.valid())
    }

    /// The most data blocks in one record.
    fn logged_blocks(&self) -> usize {
        LOGGED_BYTES / self.vol.geo.block_size as usize
    }

    fn data_durable(&self, inode: &Inode) -> Result<(), JournalError> {
        self.write_home(&[inode.ino], WritebackPriority::Awaited)?;
        self.vol.journal.flush_shared()
    }

    fn next_sync_step(&self, inode: &Inode, datasync: bool) -> Step {
        // A directory is locked before its entries, so the directories are read first. The file's
        // own name cannot change under its lock; a rename before that leads to a commit.
        let chain = match self.chain(inode) {
            Ok(chain) => chain,
            Err(reason) => return Step::commit(reason),
        };
        let body = inode.body.read();
        // For a file with journaled data a record holds all changes since the last record or
        // commit, by either path. The record ends with the commit that writes the data home.
        let mut unlogged = match self.journals_data(&body) {
            true => self.unlogged_of_journaled(inode),
            false => self.unlogged(inode, self.logged_blocks()),
        };
        let canary = &self.vol.opts.canary;
        if canary.trust_older_record {
            unlogged.superseding = false;
            unlogged.stale.clear();
        }
        if canary.record_dataless {
            unlogged.pages = Some(Vec::new());
            unlogged.unflushed = false;
        }
        let found = self.found(inode, &body, &unlogged, datasync);
        let records = self.records();
        let room = Room {
            most: self.logged_blocks(),
            short: SHORT_BYTES / self.vol.geo.block_size as usize,
            is_short: || records.as_ref().is_ok_and(Records::is_room_short),
            is_cheap: records.as_ref().is_ok_and(Records::is_cheap),
        };
        let plan = found.plan(&room);
        let (Plan::Record, Some(pages)) = (plan, unlogged.pages) else {
            return Step::Plan(plan);
        };
        let built = self
            .stale_pages(inode, &body, &unlogged.stale)
            .and_then(|stale| self.record_of(inode, &body, chain, [pages, stale].concat()));
        match built {
            Ok(step) => step,
            Err(e) => {
                // The commit finds it, too.
                self.vol.report(&e);
                Step::commit(SyncReason::Large)
            }
        }
    }

    /// The state of a file's ledgers, read under its lock.
    fn found(&self, inode: &Inode, body: &InodeBody, unlogged: &Unlogged, datasync: bool) -> Found {
        let quota = self.inodes.quotas().map(|_| SyncReason::Quota);
        let is_journaled = self.journals_data(body) && !self.vol.opts.journal.data().keeps_whole();
        let journaled = is_journaled.then_some(SyncReason::Journaled);
        let mut metadata = inode.metadata.lock();
        metadata.prune(&self.vol.valid());
        let needs_commit = metadata.needs_commit();
        let trusts =
            self.vol.opts.canary.record_of_group && needs_commit == Some(SyncReason::Group);
        let refuses = metadata.refuses_record(body.links().into(), body.file_acl() != 0);
        Found {
            needs_commit: needs_commit.filter(|_| !trusts),
            changed: metadata.any(datasync),
            refuses_record: refuses.or(quota).or(journaled),
            data: unlogged.pages.as_ref().map(Vec::len),
            stale: unlogged.stale.len(),
            superseding: unlogged.superseding,
            unflushed: unlogged.unflushed,
        }
    }

    /// The content of blocks of the file that are not dirty.
    fn stale_pages(
        &self,
        inode: &Inode,
        body: &InodeBody,
        blocks: &[u32],
    ) -> Result<Vec<(u32, BlockNr, PageRef)>> {
        let mut pages = Vec::new();
        for lblk in blocks.iter().filter(|_| !body.is_inline()) {
            // A block that is not mapped any more is skipped: the record says so elsewhere.
            if let Mapping::Mapped {
                start,
                unwritten: false,
                ..
            } = self.map(inode, body, *lblk, 1)?
                && let Some(page) = self.vol.cache.read(start)?.page()
            {
                pages.push((*lblk, start, page));
            }
        }
        Ok(pages)
    }

    /// The records of files. The caller knows that there are some.
    fn records(&self) -> Result<Records<'_>, JournalError> {
        let none = || {
            JournalError::Aborted("internal error: a file record for a log without records".into())
        };
        self.vol.journal.records().ok_or_else(none)
    }

    /// Builds the record and reserves its place, under the inode's lock.
    fn record_of(
        &self,
        inode: &Inode,
        body: &InodeBody,
        chain: Chain,
        mut pages: Vec<(u32, BlockNr, PageRef)>,
    ) -> Result<Step> {
        let journaled = self.journals_data(body);
        let (ranges, name) = {
            let metadata = inode.metadata.lock();
            (metadata.ranges(), metadata.naming().clone())
        };
        let made = match self.name_of(&name) {
            Ok(made) => made,
            Err(reason) => return Ok(Step::commit(reason)),
        };
        let Some(ranges) = self.ranges_of(inode, body, &ranges)? else {
            return Ok(Step::commit(SyncReason::Large));
        };
        if journaled {
            let most = self.logged_blocks();
            for run in ranges.iter().flat_map(|r| &r.runs).filter(|r| !r.unwritten) {
                if pages.len() + run.len as usize > most {
                    return Ok(Step::commit(SyncReason::Large));
                }
                for i in 0..run.len {
                    let block = self.vol.cache.read(run.start + u64::from(i))?;
                    if let Some(page) = block.page() {
                        pages.push((run.lblk + i, block.nr(), page));
                    }
                }
            }
        }
        let mut dirs = chain.nodes;
        dirs.reverse();
        let record = FileRecord {
            dirs,
            file: Node {
                ino: inode.ino,
                inode: body.bytes().to_vec(),
                name: made
                    .as_ref()
                    .filter(|_| !self.vol.opts.canary.forget_name)
                    .map(|made| made.name.clone()),
            },
            ranges,
            pages: pages.iter().map(|(lblk, ..)| *lblk).collect(),
        };
        let bytes = record.encode();
        let space = self.redo_space(body, &record);
        let Some(promise) = self.space.promise_redo(space) else {
            return Ok(Step::commit(SyncReason::Space));
        };
        // Data that is written back outside the journal must be home before the transaction that
        // supersedes the record counts.
        let is_written_home = !journaled || self.new_goes_home(body);
        let data_of = (is_written_home && !pages.is_empty()).then_some(inode.ino);
        let records = self.records()?;
        let Some(place) = records.reserve(bytes.len(), pages.len(), data_of) else {
            return Ok(Step::commit(SyncReason::Full));
        };
        self.space.keep_redo_promise(promise, place.stamp());
        // A sync by commit ends the record: at least the file's inode is in the transaction.
        inode.metadata.lock().recorded(&records.superseding());
        if data_of.is_some() {
            let blocks = pages.iter().map(|(lblk, ..)| *lblk);
            self.logged(inode, journaled, blocks, place.stamp());
        }
        Ok(Step::Record(Box::new(Ready {
            place,
            bytes,
            pages: pages.into_iter().map(|(_, nr, page)| (nr, page)).collect(),
            dirs: chain.dirs,
            names: chain.names.into_iter().chain(made).collect(),
        })))
    }

    /// The mappings of the ranges; `None` if they are too many for a record.
    fn ranges_of(
        &self,
        inode: &Inode,
        body: &InodeBody,
        changed: &[(u64, u64)],
    ) -> Result<Option<Vec<Range>>> {
        let mut ranges = Vec::with_capacity(changed.len());
        if body.is_inline() {
            // All content is in the inode.
            return Ok(Some(ranges));
        }
        let mut count = 0;
        for (from, to) in changed {
            let (from, to) = (*from, (*to).min(u64::from(u32::MAX)));
            let mut range = Range {
                first: bounded32(from),
                count: bounded32(to.saturating_sub(from)),
                runs: Vec::new(),
            };
            let mut at = from;
            while at < to {
                let lblk = bounded32(at);
                let len = match self.map(inode, body, lblk, bounded32(to - at))? {
                    Mapping::Hole { len } => len,
                    Mapping::Mapped {
                        start,
                        len,
                        unwritten,
                    } => {
                        range.runs.push(Run {
                            lblk,
                            len,
                            start,
                            unwritten,
                        });
                        len
                    }
                };
                count += 1;
                if count > MAX_RUNS {
                    return Ok(None);
                }
                at += u64::from(len);
            }
            ranges.push(range);
        }
        Ok(Some(ranges))
    }

    /// The name that the record must make again, if it is not committed.
    fn name_of(&self, naming: &Naming) -> Result<Option<MadeName>, SyncReason> {
        let (parent, name) = match naming {
            Naming::Durable => return Ok(None),
            Naming::NeedsCommit(_) => return Err(SyncReason::Name),
            Naming::Made { parent, name, .. } => (*parent, name),
        };
        let dir = self.inodes.iget(parent).map_err(|_| SyncReason::Name)?;
        let (before, version) = {
            let mut metadata = dir.metadata.lock();
            metadata.prune(&self.vol.valid());
            if metadata.is_forgotten() {
                return Err(SyncReason::Forgotten);
            }
            metadata.names.before(name, &self.vol.valid())
        };
        if before == Before::Unclear {
            return Err(SyncReason::Name);
        }
        Ok(Some(MadeName {
            dir,
            name: Name {
                parent,
                name: name.clone(),
                replaces: before == Before::Unlinked,
            },
            version,
        }))
    }

    fn dir_naming(&self, ino: Ino) -> Result<(Arc<Inode>, Naming), SyncReason> {
        let dir = self.inodes.iget(ino).map_err(|_| SyncReason::Name)?;
        let naming = {
            let mut metadata = dir.metadata.lock();
            metadata.prune(&self.vol.valid());
            if metadata.is_forgotten() {
                return Err(SyncReason::Forgotten);
            }
            metadata.naming().clone()
        };
        Ok((dir, naming))
    }

    /// The uncommitted directories that lead to the file.
    fn chain(&self, inode: &Inode) -> Result<Chain, SyncReason> {
        let mut chain = Chain::default();
        let mut naming = {
            let mut metadata = inode.metadata.lock();
            metadata.prune(&self.vol.valid());
            metadata.naming().clone()
        };
        while let Naming::Made { parent, .. } = naming {
            let (dir, next) = self.dir_naming(parent)?;
            if !self.redo_has_room(&dir.body.read()) {
                return Err(SyncReason::Large);
            }
            if next == Naming::Durable {
                break;
            }
            if chain.dirs.len() >= DEPTH {
                return Err(SyncReason::Large);
            }
            let made = self.name_of(&next)?;
            let body = dir.body.read();
            if body.file_acl() != 0 || body.is_inline() || dir.metadata.lock().has_attributes() {
                return Err(SyncReason::Attributes);
            }
            let inode = body.bytes().to_vec();
            drop(body);
            chain.nodes.push(Node {
                ino: dir.ino,
                inode,
                name: made.as_ref().map(|made| made.name.clone()),
            });
            chain.names.extend(made);
            chain.dirs.push((dir, next.clone()));
            naming = next;
        }
        if matches!(naming, Naming::NeedsCommit(_)) {
            return Err(SyncReason::Name);
        }
        Ok(chain)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::fs::Fs;

    use stetfs_testkit::Mkfs;

    use super::*;
    use crate::testing::{fsync, mkfs};
    use crate::types::{Ctx, FsOptions, ROOT_INO};

    /// A record holds a page; then newer data of its block is written back for a transaction that
    /// never becomes valid, so the record stays alive. The next sync must write a newer record.
    #[test]
    fn data_that_went_home_by_itself_is_synced_over_an_older_record() {
        for datasync in [false, true] {
            let device = mkfs(32, &Mkfs::blocks(4096));
            let opts = FsOptions {
                commit_secs: 3600,
                journal: "ordered,records=1".parse().unwrap(),
                ..FsOptions::default()
            };
            let fs = Fs::open(device.clone(), opts).unwrap();
            let (attr, file) = fs
                .create(&Ctx::ROOT, ROOT_INO, b"file", 0o600, 0, libc::O_RDWR)
                .unwrap();
            let sync = || fsync(&fs, &file, datasync);
            fs.write(&Ctx::ROOT, &file, 0, &[1; 4096], false).unwrap();
            sync();
            fs.write(&Ctx::ROOT, &file, 0, &[2; 4096], false).unwrap();
            let inode = fs.inodes.iget(attr.ino).unwrap();
            fs.data.write_back_files(&[&inode]).unwrap();
            sync();
            let crashed = Arc::new(device.fork());

            let again = Fs::open(crashed, FsOptions::default()).unwrap();
            let ino = again.lookup(ROOT_INO, b"file").unwrap().ino;
            let file = again.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
            let mut data = vec![0; 4096];
            again.read(&file, 0, &mut data).unwrap();
            assert!(data.iter().all(|b| *b == 2), "{:?}", &data[..4]);
        }
    }

    /// Content that moves out of the inode is in the record, whatever moved it.
    #[test]
    fn what_was_inline_is_in_the_record() {
        for journal in ["ordered,records=1", "data,records=1", "stet"] {
            let image =
                stetfs_testkit::Image::make(32 << 20, &Mkfs::blocks(4096).feature("inline_data"));
            let (image, content) = (image.unwrap(), tempfile::NamedTempFile::new().unwrap());
            std::fs::write(content.path(), [7; 50]).unwrap();
            let write = format!("write {} file", content.path().display());
            image.debugfs_write(&write).unwrap();
            let device = stetfs_block::MemDevice::load(image.path()).unwrap();
            let device = Arc::new(device);
            let opts = FsOptions {
                commit_secs: 3600,
                journal: journal.parse().unwrap(),
                ..FsOptions::default()
            };
            let fs = Fs::open(device.clone(), opts).unwrap();
            let ino = fs.lookup(ROOT_INO, b"file").unwrap().ino;
            let file = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap();
            assert!(file.inode.body.read().is_inline());
            let keep = crate::types::FallocateMode::Allocate { keep_size: true };
            fs.fallocate(&Ctx::ROOT, &file, keep, 8192, 4096).unwrap();
            assert!(!file.inode.body.read().is_inline());
            fsync(&fs, &file, false);
            let again = Fs::open(Arc::new(device.fork()), FsOptions::default()).unwrap();
            let ino = again.lookup(ROOT_INO, b"file").unwrap().ino;
            let file = again.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
            let mut data = vec![0; 4096];
            let n = again.read(&file, 0, &mut data).unwrap();
            assert_eq!(&data[..n], &[7; 50], "{journal}");
        }
    }

    /// A file of one block, durable by a commit, on a volume with records.
    struct Synced {
        device: Arc<stetfs_block::MemDevice>,
        fs: Arc<Fs>,
        file: crate::ops::inodes::OpenRef,
    }

    impl Synced {
        fn new(journal: &str, canary: stetfs_journal::Canary) -> Synced {
            Synced::with(journal, canary, 3600)
        }

        fn with(journal: &str, canary: stetfs_journal::Canary, commit_secs: u32) -> Synced {
            let device = mkfs(32, &Mkfs::blocks(4096));
            let opts = FsOptions {
                commit_secs,
                dirty_expire: std::time::Duration::from_secs(3600),
                journal: journal.parse().unwrap(),
                canary,
                ..FsOptions::default()
            };
            let fs = Fs::open(device.clone(), opts).unwrap();
            let (_, file) = fs
                .create(&Ctx::ROOT, ROOT_INO, b"file", 0o600, 0, libc::O_RDWR)
                .unwrap();
            let v = Synced { device, fs, file };
            v.write(1);
            v.fs.data.write_back_files(&[&v.file.inode]).unwrap();
            v.fs.vol.journal.commit_all().unwrap();
            // Otherwise the next sync would write data back first.
            v.fs.vol.journal.flush_shared().unwrap();
            v
        }

        fn write(&self, value: u8) {
            // Until its times have changed, too, so that a sync has a change for a record.
            loop {
                self.fs
                    .write(&Ctx::ROOT, &self.file, 0, &[value; 4096], false)
                    .unwrap();
                let mut metadata = self.file.inode.metadata.lock();
                metadata.prune(&self.fs.vol.valid());
                if metadata.any(false) {
                    return;
                }
            }
        }

        fn sync(&self, datasync: bool) {
            fsync(&self.fs, &self.file, datasync);
        }

        /// Makes the transactions commit, and syncs the file when their snapshots are taken and the
        /// next ones have not begun.
        fn sync_beside_a_commit(&self) {
            let held = self.fs.vol.journal.hold("snapshots-taken");
            std::thread::scope(|scope| {
                let commit = scope.spawn(|| self.fs.vol.journal.commit_all());
                held.await_one();
                self.sync(false);
                drop(held);
                commit.join().unwrap().unwrap();
            });
        }

        /// The content of the block after a power cut now.
        fn cut(&self) -> u8 {
            let crashed = Arc::new(self.device.fork());
            let again = Fs::open(crashed, FsOptions::default()).unwrap();
            let ino = again.lookup(ROOT_INO, b"file").unwrap().ino;
            let file = again.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
            let mut data = vec![0; 4096];
            again.read(&file, 0, &mut data).unwrap();
            assert!(data.iter().all(|b| *b == data[0]));
            data[0]
        }
    }

    const WITH_RECORDS: [&str; 3] = ["ijournal", "writeback,sync=file", "ordered,records=1"];

    /// A record is written while a transaction commits that does not hold the record's changes but
    /// seems to be still running. The next transaction ends the record: the record's data must be
    /// home by then (record.F4).
    #[test]
    fn data_synced_beside_a_commit_outlives_the_next() {
        let after_next = |journal: &str, canary| {
            let v = Synced::new(journal, canary);
            v.write(2);
            v.sync_beside_a_commit();
            assert_eq!(v.cut(), 2, "{journal}: the record is there");
            v.fs.create(&Ctx::ROOT, ROOT_INO, b"other", 0o600, 0, libc::O_RDWR)
                .unwrap();
            v.fs.vol.journal.commit_all().unwrap();
            v.cut()
        };
        for journal in WITH_RECORDS {
            assert_eq!(after_next(journal, Default::default()), 2, "{journal}");
        }
        let canary = stetfs_journal::Canary {
            leave_recorded: true,
            ..Default::default()
        };
        assert_eq!(after_next("ijournal", canary), 1, "it was lost");
    }

    /// The same record, after the transaction has become valid that does not supersede it: the
    /// record is alive, and newer data is not written back without a newer record.
    #[test]
    fn data_synced_after_that_is_not_taken_back() {
        let after_newer = |journal: &str, canary| {
            let v = Synced::new(journal, canary);
            v.write(2);
            v.sync_beside_a_commit();
            v.write(3);
            v.sync(true);
            v.cut()
        };
        for journal in WITH_RECORDS {
            assert_eq!(after_newer(journal, Default::default()), 3, "{journal}");
        }
        let canary = stetfs_journal::Canary {
            forget_records: true,
            ..Default::default()
        };
        assert_eq!(after_newer("ijournal", canary), 2, "it was taken back");
    }

    /// Only data was synced: a commit still ends the record in time.
    #[test]
    fn records_of_data_alone_are_ended_by_a_commit() {
        let v = Synced::with("ijournal", Default::default(), 1);
        v.write(3);
        v.sync(false);
        let before = v.fs.vol.journal.horizon();
        let late = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while v.fs.vol.journal.horizon() == before {
            assert!(std::time::Instant::now() < late, "no commit came");
            std::thread::yield_now();
        }
        assert_eq!(v.cut(), 3);
    }
}
