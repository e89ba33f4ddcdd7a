//! Syncs: a file is made durable by a record or by a commit.

use std::sync::Arc;

use stetfs_journal::{Done as Answer, JournalError, Wait};

use crate::data::store::DataStore;
use crate::data::syncs::record::SyncOutcome;
use crate::data::writeback::precedence::WritebackPriority;
use crate::durability::SyncReason;
use crate::error::{FsError, Result};
use crate::inode::Inode;
use crate::state::failures::Opener;
use crate::types::{Done, FileType};

/// The least dirty data, bytes, for which another thread makes the sync. Otherwise further requests
/// of the calling thread would wait for the device, too.
const MUCH: u64 = 512 << 10;

/// The number of other syncs under way from which a file is synced by a commit that they share.
/// (With 16 threads of a mail server two, four and eight are about as fast. A few programs should
/// not wait for each other.)
const CROWD: u64 = 4;

impl DataStore {
    /// Whether a sync of the file, by a commit or without one, has much to write.
    pub(crate) fn writes_much(&self, inode: &Inode) -> bool {
        // Another thread writes what does not fit into a record.
        if self.dirty_bytes() < MUCH || self.vol.journal.records().is_some() {
            return false;
        }
        // A commit may have to write data of other files.
        let commits = !self.vol.journal.is_valid(inode.metadata.lock().upto(false));
        let own = || inode.dirty.ledger.lock().dirty_blocks();
        commits || own() * u64::from(self.vol.geo.block_size) >= MUCH
    }

    /// Whether so many syncs are under way that one commit for them is less work than a record for
    /// each, and does not write much data of files that are not synced.
    fn is_crowded(&self) -> bool {
        let journal = &self.vol.journal;
        let crowd = self.state.precedence.running() + journal.waiting();
        let metadata = || journal.running_blocks() * u64::from(self.vol.geo.block_size);
        crowd >= CROWD && self.dirty_bytes() + metadata() < MUCH
    }

    /// Makes a file durable, and reports lost data to this opener.
    pub(crate) fn sync_file(
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
            // The check comes after the write-back, so that it includes this failure. It comes
            // before the result of the journal: if the failure also stopped the journal, it is the
            // reason.
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
        // Not in this thread if others must end first. If other files are being synced, too, more
        // syncs share a flush when their threads go on, unless records need no flush.
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

    /// For a file that was only overwritten: writes its data back before its times are committed
    /// and the device is flushed, as the kernel does. If the device rejects writes for a while,
    /// this costs the file its data, but does not stop the volume's journal, as a failed flush
    /// would. Data in new blocks goes with the log.
    ///
    /// # Errors
    /// A failure that this opener was not told of. Nothing was committed or flushed.
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

    /// Answers the sync, or has a commit do what no record could.
    fn synced_alone(
        self: Arc<Self>,
        inode: Arc<Inode>,
        datasync: bool,
        synced: Result<SyncOutcome, JournalError>,
        answer: Answer,
    ) {
        if let Ok(SyncOutcome::NeedsCommit | SyncOutcome::TooLarge) = synced {
            // A commit that is under way may serve.
            return self.sync_by_commit(&inode, datasync, Wait::Inline, answer);
        }
        // The receiver of the answer may close the volume at once.
        drop((self, inode));
        answer(synced.map(drop));
    }

    /// Makes a file durable by a commit of the transactions that changed it.
    fn sync_by_commit(&self, inode: &Inode, datasync: bool, wait: Wait, answer: Answer) {
        let upto = {
            // A directory's content is its entries, which are metadata; fdatasync must make them
            // readable.
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
    use crate::fs::Fs;
    use crate::ops::inodes::OpenRef;
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

    /// Otherwise further requests of the thread would wait for the device.
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
        // New blocks, which any commit writes.
        write(&file, MUCH);
        write(&other, 4096);
        assert!(!is_here(&other));
        // Blocks that already exist.
        write(&file, MUCH);
        assert!(!is_here(&file));
        write(&file, MUCH / 2);
        assert!(is_here(&file));
    }

    /// Many syncs at once share a commit, unless it has to write much data of other files.
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
        // Data of another file, which the commit would write.
        let other = open("other");
        let much = vec![1; usize::try_from(MUCH).unwrap()];
        fs.write(&Ctx::ROOT, &other, 0, &much, false).unwrap();
        assert!(is_record());
        fs.vol.journal.commit_all().unwrap();
        assert!(!is_record());
        // Names of other files.
        let name = "n".repeat(250);
        for n in 0.. {
            if fs.vol.journal.running_blocks() * 4096 >= MUCH {
                break;
            }
            open(&format!("{name}{n}"));
        }
        assert!(is_record());
    }

    /// A device whose flush fails once: it then drops what was written since the last good flush,
    /// and reports the failure only after another flush has succeeded.
    struct Drops {
        inner: stetfs_block::MemDevice,
        /// The content that it keeps.
        kept: stetfs_block::MemDevice,
        state: parking_lot::Mutex<Drop>,
        changed: parking_lot::Condvar,
    }

    #[derive(Default)]
    struct Drop {
        pending: Vec<(u64, Vec<u8>)>,
        /// The next flush fails.
        fails: bool,
        /// The next write flushes first, and that flush fails.
        fails_within: bool,
        has_failed: bool,
        /// Flushes that succeeded after the failure.
        later: usize,
        /// It does not report the failure before the other flush is answered.
        waits: bool,
        /// The failing flush waits for no other: there is one flush at a time.
        alone: bool,
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
                self.await_that(|s| (s.later > 0 || s.alone) && !s.waits);
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

    /// A volume on such a device; nothing is written in the background.
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

    /// The first byte of a file in the content that the device kept.
    fn kept(device: &Drops, name: &[u8]) -> u8 {
        let again = Fs::open(Arc::new(device.kept.fork()), FsOptions::default()).unwrap();
        let ino = again.lookup(ROOT_INO, name).unwrap().ino;
        let file = again.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
        let mut data = vec![0; 4096];
        again.read(&file, 0, &mut data).unwrap();
        data[0]
    }

    /// The device flushes inside a write of other files' data, and that flush fails. The same write
    /// succeeds when it is tried again, and so would the next flush. The sync must not report
    /// success.
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
                fs.data.write_back_files(&inodes)
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

    /// A commit's flush fails and drops data that a sync beside it makes durable by a flush of its
    /// own, which succeeds. The sync must not report success.
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
            fs.data.write_back_files(&[&file.inode]).unwrap();
            fs.vol.journal.commit_all().unwrap();
            write(2);
            fs.data.write_back_files(&[&file.inode]).unwrap();
            create(b"other");
            // With the fault, nothing waits for the failed flush; the journal's stop must not come
            // between.
            // Frames share the flushes of syncs; theirs fails when the sync has been asked for.
            let alone = journal == "ijournal";
            device.set(|s| (s.fails, s.alone, s.waits) = (true, alone, is_forgiven || alone));
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
                if alone {
                    device.set(|s| s.waits = false);
                }
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
