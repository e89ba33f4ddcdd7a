//! Making a file durable.

use std::sync::Arc;

use stetfs_journal::{Done as Answer, JournalError, Wait};

use super::failures::Opener;
use super::precedence::WritebackPriority;
use super::record::SyncOutcome;
use super::store::DataStore;
use crate::durability::SyncReason;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, OpenRef};
use crate::types::{Done, FileType};

/// A sync that has so much to write, bytes, is not made by the thread that was asked: what comes to
/// that meanwhile would wait for the device, too.
const MUCH: u64 = 512 << 10;

/// Other syncs under way from which on files are synced by a commit that they share. (With 16
/// threads of a mail server two, four and eight are about as fast. A few programs are to wait for
/// nobody.)
const CROWD: u64 = 4;

impl Fs {
    /// Makes durable what was written to the file and, unless `datasync`, every change of its
    /// inode; `done` is told when it is. With `datasync` a transaction commits only
    /// if the data could not be read back without it. Of a directory it covers the entries.
    ///
    /// `done` gets the error once for every opener after data of the file could not be written
    /// home, also if that was in the background. That data is lost then; what is written later
    /// is not.
    pub fn fsync(&self, f: &OpenRef, datasync: bool, wait: Wait, done: Done) {
        let inode = f.inode.clone();
        let told = f.opener.clone();
        if self.vol.writable().is_err() {
            let failed = inode.dirty.failures.tell_opener(&told);
            return done(failed.map_or_else(|| self.vol.sync_after_end(), Err));
        }
        if !datasync && let Err(e) = self.data.write_lazy_time(&inode) {
            return done(Err(e));
        }
        let data = Arc::clone(&self.data);
        if wait == Wait::Inline && data.writes_much(&inode) {
            let sync = move || data.sync_file(inode, told, datasync, wait, done);
            return self.data.state.syncers.run(sync);
        }
        data.sync_file(inode, told, datasync, wait, done);
    }

    /// What was written to the file last passes the cache by (O_DIRECT): it goes home at once,
    /// without a flush, so that who wrote it is told of a failure. Data that goes through the
    /// journal stays for that, as in the kernel.
    ///
    /// # Errors
    /// The device's. The file and the volume remember it, too.
    pub fn write_through(&self, f: &OpenRef) -> Result<()> {
        if self.data.journals_data(&f.inode.body.read()) {
            return Ok(());
        }
        self.data.flush_files(&[&f.inode])
    }
}

impl DataStore {
    /// Whether a sync of the file by a commit, or without one, has much to write.
    fn writes_much(&self, inode: &Inode) -> bool {
        // What a record does not hold is written by another thread anyway.
        if self.dirty_bytes() < MUCH || self.vol.journal.records().is_some() {
            return false;
        }
        // A commit may have to write what others wrote.
        let commits = !self.vol.journal.is_valid(inode.metadata.lock().upto(false));
        let own = || inode.dirty.ledger.lock().dirty_blocks();
        commits || own() * u64::from(self.vol.geo.block_size) >= MUCH
    }

    /// Whether so many syncs are under way that one commit for them is less work than a record for
    /// each, and does not write much that nobody asked for.
    fn is_crowded(&self) -> bool {
        let journal = &self.vol.journal;
        let crowd = self.state.precedence.running() + journal.waiting();
        let metadata = || journal.running_blocks() * u64::from(self.vol.geo.block_size);
        crowd >= CROWD && self.dirty_bytes() + metadata() < MUCH
    }

    /// Makes a file durable, and tells this opener of data that was lost.
    fn sync_file(
        self: Arc<Self>,
        inode: Arc<Inode>,
        told: Opener,
        datasync: bool,
        wait: Wait,
        done: Done,
    ) {
        if wait == Wait::Inline
            && let Err(e) = self.data_first(&inode, &told)
        {
            return done(Err(e));
        }
        let file = Arc::clone(&inode);
        let answer: Answer = Box::new(move |result| {
            // Looked at after the data went home, so that this very failure is included. It comes
            // first: where it stopped the journal, too, it is the reason.
            let failed = file.dirty.failures.tell_opener(&told);
            drop(file);
            done(failed.map_or(result.map_err(FsError::from), Err));
        });
        let Some(records) = self.vol.journal.records() else {
            return self.sync_by_commit(&inode, datasync, wait, answer);
        };
        if !records.is_cheap() && self.is_crowded() {
            self.state.reasons.count(SyncReason::Crowd);
            return self.sync_by_commit(&inode, datasync, wait, answer);
        }
        // Not where others must end first. Where others sync, too, more of them share a flush if
        // their threads go on, unless there is none to be shared.
        let others = !records.is_cheap() && self.state.precedence.is_running();
        let inline = wait == Wait::Inline && !others;
        let turn = inline.then(|| inode.turn.try_lock()).flatten();
        let synced = turn.map(|turn| self.sync_alone(&inode, datasync, turn, Wait::Inline));
        match synced {
            Some(Ok(SyncOutcome::TooLarge)) | None => {}
            Some(synced) => return self.synced_alone(inode, datasync, synced, answer),
        }
        let data = Arc::clone(&self);
        self.state.syncers.run(move || {
            let synced = data.sync_alone(&inode, datasync, inode.turn.lock(), Wait::Deferred);
            data.synced_alone(inode, datasync, synced, answer);
        });
    }

    /// Of a file that was only written over: writes its data home before its times are committed
    /// and the device is flushed, as the kernel does. A device that takes nothing for a while
    /// then costs the file its data, not the volume its journal, which a flush that fails
    /// stops. Data in new blocks goes with the log.
    ///
    /// # Errors
    /// A failure that this opener was not told of; nothing was committed or flushed.
    fn data_first(&self, inode: &Inode, told: &Opener) -> Result<()> {
        if self.vol.journal.records().is_some() {
            return Ok(());
        }
        if !self.vol.journal.is_valid(inode.metadata.lock().upto(false)) {
            return Ok(());
        }
        let home = match inode.dirty.is_clean() {
            true => Ok(()),
            false => self.write_home(&[inode.ino], WritebackPriority::Awaited),
        };
        let failed = inode.dirty.failures.tell_opener(told);
        failed.map_or(home.map_err(FsError::from), Err)
    }

    /// Answers, or has a commit do what no record could.
    fn synced_alone(
        self: Arc<Self>,
        inode: Arc<Inode>,
        datasync: bool,
        synced: Result<SyncOutcome, JournalError>,
        answer: Answer,
    ) {
        if let Ok(SyncOutcome::NeedsCommit | SyncOutcome::TooLarge) = synced {
            // By a commit of others, if one is under way.
            return self.sync_by_commit(&inode, datasync, Wait::Inline, answer);
        }
        // Whoever hears of it may close the volume at once.
        drop((self, inode));
        answer(synced.map(drop));
    }

    /// Makes a file durable with all that its last transactions hold.
    fn sync_by_commit(&self, inode: &Inode, datasync: bool, wait: Wait, answer: Answer) {
        let upto = {
            // What fdatasync makes readable of a directory is its entries, and they are metadata.
            let is_dir = inode.kind == FileType::Directory && !self.vol.opts.canary.lax_directory;
            inode.metadata.lock().upto(!datasync || is_dir).clone()
        };
        let data = if inode.dirty.is_clean() {
            Vec::new()
        } else {
            vec![inode.ino]
        };
        self.vol.journal.sync(upto, data, wait, answer);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::{TryRecvError, channel};

    use stetfs_block::BlockDevice;
    use stetfs_testkit::Mkfs;

    use super::*;
    use crate::testing::{fsync, mkfs};
    use crate::types::{Ctx, FsOptions, ROOT_INO};

    #[test]
    fn the_calling_thread_syncs_itself_where_nobody_is_in_the_way() {
        let opts = FsOptions {
            journal: "ordered,records=1".parse().unwrap(),
            ..FsOptions::default()
        };
        let fs = Fs::open(mkfs(32, &Mkfs::blocks(4096)), opts).unwrap();
        let (attr, file) = fs
            .create(&Ctx::ROOT, ROOT_INO, b"file", 0o600, 0, libc::O_RDWR)
            .unwrap();
        let sync = || {
            fs.write(&Ctx::ROOT, &file, 0, &[1; 4096], false).unwrap();
            let (done, is_done) = channel();
            fs.fsync(
                &file,
                false,
                Wait::Inline,
                Box::new(move |r| done.send(r).unwrap()),
            );
            is_done
        };
        assert!(sync().try_recv().unwrap().is_ok());
        let inode = fs.inodes.iget(attr.ino).unwrap();
        std::thread::scope(|scope| {
            let (held, is_held) = channel();
            let (go, may_go) = channel::<()>();
            let inode = &inode;
            scope.spawn(move || {
                let _turn = inode.turn.lock();
                held.send(()).unwrap();
                may_go.recv().unwrap();
            });
            is_held.recv().unwrap();
            let waits = sync();
            assert_eq!(waits.try_recv().map(drop), Err(TryRecvError::Empty));
            go.send(()).unwrap();
            assert!(waits.recv().unwrap().is_ok());
        });
    }

    /// Its other requests would wait as long as the device writes.
    #[test]
    fn a_sync_with_much_to_write_leaves_the_calling_thread_alone() {
        let fs = Fs::open(mkfs(32, &Mkfs::blocks(4096)), FsOptions::default()).unwrap();
        let open = |name: &[u8]| {
            let flags = libc::O_RDWR;
            let made = fs.create(&Ctx::ROOT, ROOT_INO, name, 0o600, 0, flags);
            made.unwrap().1
        };
        let (file, other) = (open(b"file"), open(b"other"));
        let is_here = |file: &OpenRef| {
            let (done, is_done) = channel();
            let answer = move |r: Result<()>| done.send((r, std::thread::current().id())).unwrap();
            fs.fsync(file, false, Wait::Inline, Box::new(answer));
            let (synced, by) = is_done.recv().unwrap();
            synced.unwrap();
            by == std::thread::current().id()
        };
        let write = |file: &OpenRef, bytes: u64| {
            let data = vec![1; usize::try_from(bytes).unwrap()];
            fs.write(&Ctx::ROOT, file, 0, &data, false).unwrap();
        };
        write(&file, 4096);
        assert!(is_here(&file));
        // New blocks, which a commit writes, whoever asks for it.
        write(&file, MUCH);
        write(&other, 4096);
        assert!(!is_here(&other));
        // Blocks that are there.
        write(&file, MUCH);
        assert!(!is_here(&file));
        write(&file, MUCH / 2);
        assert!(is_here(&file));
    }

    /// Many syncs at once share a commit, unless that has much to write that they did not ask for.
    #[test]
    fn a_crowd_of_syncs_shares_commits() {
        let opts = FsOptions {
            commit_secs: 3600,
            journal: "ordered,records=1".parse().unwrap(),
            ..FsOptions::default()
        };
        let fs = Fs::open(mkfs(256, &Mkfs::blocks(4096)), opts).unwrap();
        let open = |name: &str| {
            let made = fs.create(
                &Ctx::ROOT,
                ROOT_INO,
                name.as_bytes(),
                0o600,
                0,
                libc::O_RDWR,
            );
            made.unwrap().1
        };
        let file = open("file");
        let mut end = 0;
        // Whether the sync of an append is a record.
        let mut is_record = || {
            let before = fs.stats().journal.file_records;
            fs.write(&Ctx::ROOT, &file, end, &[1; 4096], false).unwrap();
            end += 4096;
            fsync(&fs, &file, false);
            fs.stats().journal.file_records > before
        };
        let precedence = &fs.data.state.precedence;
        let mut others: Vec<_> = (1..CROWD).map(|_| precedence.begin()).collect();
        assert!(is_record(), "few others");
        others.push(precedence.begin());
        assert!(!is_record());
        // Somebody's data, which the commit would write.
        let other = open("other");
        let much = vec![1; usize::try_from(MUCH).unwrap()];
        fs.write(&Ctx::ROOT, &other, 0, &much, false).unwrap();
        assert!(is_record());
        fs.vol.journal.commit_all().unwrap();
        assert!(!is_record());
        // Somebody's names.
        let name = "n".repeat(250);
        for n in 0.. {
            if fs.vol.journal.running_blocks() * 4096 >= MUCH {
                break;
            }
            open(&format!("{name}{n}"));
        }
        assert!(is_record());
    }

    /// A device whose flush fails once: then it has dropped what was written since the last good
    /// one, and says so only when another flush has succeeded.
    struct Drops {
        inner: stetfs_block::MemDevice,
        /// What it keeps.
        kept: stetfs_block::MemDevice,
        state: parking_lot::Mutex<Drop>,
        changed: parking_lot::Condvar,
    }

    #[derive(Default)]
    struct Drop {
        pending: Vec<(u64, Vec<u8>)>,
        /// The next flush fails.
        fails: bool,
        /// The next write flushes first, and that fails.
        fails_within: bool,
        has_failed: bool,
        /// Flushes that succeeded since.
        later: usize,
        /// It does not say so before the other is answered.
        waits: bool,
    }

    impl Drops {
        fn set(&self, change: impl FnOnce(&mut Drop)) {
            change(&mut self.state.lock());
            self.changed.notify_all();
        }

        fn await_that(&self, is: impl Fn(&Drop) -> bool) {
            let mut s = self.state.lock();
            let long = std::time::Duration::from_secs(30);
            while !is(&s) {
                assert!(
                    !self.changed.wait_for(&mut s, long).timed_out(),
                    "nobody came"
                );
            }
        }
    }

    fn eio() -> stetfs_block::BlockError {
        let eio = std::io::Error::from_raw_os_error(libc::EIO);
        stetfs_block::BlockError::io(stetfs_block::Op::Flush, 0, 0, eio)
    }

    impl stetfs_block::Share for Drops {
        fn limits(&self) -> stetfs_block::ShareLimits {
            stetfs_block::ShareLimits::of(&self.inner)
        }

        fn share_batch(&self, pairs: &[stetfs_block::SharePair]) -> stetfs_block::Result<()> {
            stetfs_block::sharing_of(&self.inner)?.share_batch(pairs)
        }
    }

    impl BlockDevice for Drops {
        stetfs_block::shape_of_inner!();

        fn read_batch(&self, reads: &mut [stetfs_block::Read<'_>]) -> stetfs_block::Result<()> {
            self.inner.read_batch(reads)
        }

        fn write_batch(&self, writes: &[stetfs_block::Write<'_>]) -> stetfs_block::Result<()> {
            let mut fails = false;
            self.set(|s| {
                fails = std::mem::take(&mut s.fails_within);
                if fails {
                    s.pending.clear();
                }
            });
            if fails {
                return Err(eio());
            }
            self.inner.write_batch(writes)?;
            for write in writes {
                if write.fua {
                    self.kept.write(write.offset, &write.data.to_vec())?;
                } else {
                    let bytes = write.data.to_vec();
                    self.set(|s| s.pending.push((write.offset, bytes)));
                }
            }
            Ok(())
        }

        fn flush(&self) -> stetfs_block::Result<()> {
            let (mut pending, mut fails) = Default::default();
            self.set(|s| {
                pending = std::mem::take(&mut s.pending);
                fails = std::mem::take(&mut s.fails);
                s.has_failed |= fails;
                s.later += usize::from(s.has_failed && !fails);
            });
            if fails {
                self.await_that(|s| s.later > 0 && !s.waits);
                return Err(eio());
            }
            for (offset, bytes) in pending {
                self.kept.write(offset, &bytes)?;
            }
            Ok(())
        }

        fn discard(&self, range: std::ops::Range<u64>) -> stetfs_block::Result<()> {
            self.inner.discard(range)
        }

        fn stats(&self) -> stetfs_block::Stats {
            self.inner.stats()
        }
    }

    /// A volume on a device that drops; nothing is written by itself.
    fn dropping(journal: &str, canary: stetfs_journal::Canary) -> (Arc<Drops>, Arc<Fs>) {
        let base = mkfs(32, &Mkfs::blocks(4096));
        let device = Arc::new(Drops {
            inner: base.fork(),
            kept: base.fork(),
            state: Default::default(),
            changed: Default::default(),
        });
        let opts = FsOptions {
            commit_secs: 3600,
            dirty_expire: std::time::Duration::from_secs(3600),
            journal: journal.parse().unwrap(),
            canary,
            ..FsOptions::default()
        };
        let fs = Fs::open(device.clone(), opts).unwrap();
        (device, fs)
    }

    /// The first byte of a file on what the device kept.
    fn kept(device: &Drops, name: &[u8]) -> u8 {
        let again = Fs::open(Arc::new(device.kept.fork()), FsOptions::default()).unwrap();
        let ino = again.lookup(ROOT_INO, name).unwrap().ino;
        let file = again.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
        let mut data = vec![0; 4096];
        again.read(&file, 0, &mut data).unwrap();
        data[0]
    }

    /// The device flushes inside a write of other files' data, and that fails; the same write tried
    /// once more succeeds, and so would the next flush. The sync is not told that all is well.
    #[test]
    fn a_flush_that_fails_inside_a_write_concerns_who_syncs_after() {
        let after = |journal: &str, canary: stetfs_journal::Canary| {
            let (device, fs) = dropping(journal, canary);
            let files = [b"file", b"more", b"rest"].map(|name| {
                let made = fs.create(&Ctx::ROOT, ROOT_INO, name, 0o600, 0, libc::O_RDWR);
                made.unwrap().1
            });
            let write = |file: &OpenRef, value: u8| {
                fs.write(&Ctx::ROOT, file, 0, &[value; 4096], false)
                    .unwrap()
            };
            let home = |files: &[&OpenRef]| {
                let inodes: Vec<_> = files.iter().map(|file| &*file.inode).collect();
                fs.data.flush_files(&inodes)
            };
            let [file, more, rest] = &files;
            for file in &files {
                write(file, 1);
            }
            home(&[file, more, rest]).unwrap();
            fs.vol.journal.commit_all().unwrap();
            write(file, 2);
            home(&[file]).unwrap();
            write(more, 2);
            write(rest, 2);
            device.set(|s| s.fails_within = true);
            let moved = home(&[more, rest]).is_ok();
            let (done, is_done) = channel();
            let answer = Box::new(move |r| done.send(r).unwrap());
            fs.fsync(file, true, Wait::Deferred, answer);
            let told = is_done.recv().unwrap();
            drop((files, fs));
            (moved, told.is_ok(), kept(&device, b"file"))
        };
        for journal in ["ordered", "writeback", "ijournal"] {
            let seen = after(journal, Default::default());
            assert_eq!(seen, (false, false, 1), "{journal}");
        }
        let canary = stetfs_journal::Canary {
            forgive_inner_flush: true,
            ..Default::default()
        };
        assert_eq!(after("ordered", canary), (true, true, 1), "it was lost");
    }

    /// A commit's flush fails and drops the data that a sync beside it makes durable by a flush of
    /// its own, which succeeds. The sync is not told that all is well.
    #[test]
    fn a_flush_that_fails_concerns_who_flushes_beside_it() {
        let beside = |journal: &str, canary: stetfs_journal::Canary| {
            let is_forgiven = canary.forgive_flush;
            let (device, fs) = dropping(journal, canary);
            let create = |name: &[u8]| {
                fs.create(&Ctx::ROOT, ROOT_INO, name, 0o600, 0, libc::O_RDWR)
                    .unwrap()
            };
            let (_, file) = create(b"file");
            let write = |value: u8| {
                fs.write(&Ctx::ROOT, &file, 0, &[value; 4096], false)
                    .unwrap()
            };
            write(1);
            fs.data.flush_files(&[&file.inode]).unwrap();
            fs.vol.journal.commit_all().unwrap();
            write(2);
            fs.data.flush_files(&[&file.inode]).unwrap();
            create(b"other");
            // Where nobody stands back for the failure, the journal's stop must not come between.
            device.set(|s| (s.fails, s.waits) = (true, is_forgiven));
            let told = std::thread::scope(|scope| {
                let commit = scope.spawn(|| fs.vol.journal.commit_all());
                device.await_that(|s| s.has_failed);
                let (done, is_done) = channel();
                fs.fsync(
                    &file,
                    true,
                    Wait::Deferred,
                    Box::new(move |r| done.send(r).unwrap()),
                );
                let told = is_done.recv().unwrap();
                device.set(|s| s.waits = false);
                assert!(commit.join().unwrap().is_err());
                told
            });
            drop((file, fs));
            (told.is_ok(), kept(&device, b"file"))
        };
        for journal in ["ordered", "writeback", "ijournal"] {
            let (is_told_ok, kept) = beside(journal, Default::default());
            assert_eq!((is_told_ok, kept), (false, 1), "{journal}");
        }
        let canary = stetfs_journal::Canary {
            forgive_flush: true,
            ..Default::default()
        };
        assert_eq!(beside("ordered", canary), (true, 1), "it was lost");
    }
}
