//! Making a file durable.

use std::sync::Arc;

use stetfs_block::WriteList;
use stetfs_journal::{Done as Answer, JournalError};

use super::failures::Opener;
use super::precedence::Haste;
use super::record::{Alone, Patience};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::types::{Done, FileType, OpenRef};

impl Fs {
    /// Makes durable what was written to the file and, unless `datasync`, every change of its inode;
    /// `done` is told when it is, from the journal's side. With `datasync` a transaction commits only
    /// if the data could not be read back without it. Of a directory it covers the entries.
    ///
    /// `done` gets the error once for every opener after data of the file could not be written home, also
    /// if that was in the background. That data is lost then; what is written later is not.
    pub fn fsync(&self, f: &OpenRef, datasync: bool, done: Done) {
        self.sync_file(f, datasync, false, done);
    }

    /// As [`fsync`](Self::fsync), by a thread that has nothing else to do: it may wait for the device itself, which is quicker
    /// than to have another thread do so.
    pub fn fsync_here(&self, f: &OpenRef, datasync: bool, done: Done) {
        self.sync_file(f, datasync, true, done);
    }

    fn sync_file(&self, f: &OpenRef, datasync: bool, here: bool, done: Done) {
        let inode = f.inode.clone();
        let told = f.opener.clone();
        if self.writable().is_err() {
            let failed = inode.dirty.failures.tell_opener(&told).or(self.stopped());
            return done(failed.map_or(Ok(()), Err));
        }
        if !datasync && let Err(e) = self.write_lazy_time(&inode) {
            return done(Err(e));
        }
        if here && let Err(e) = self.data_first(&inode, &told) {
            return done(Err(e));
        }
        let answer: Answer = Box::new(move |result| {
            // Looked at after the data went home, so that this very failure is included. It comes first: where it stopped the
            // journal, too, it is the reason.
            let failed = inode.dirty.failures.tell_opener(&told);
            done(failed.map_or(result.map_err(FsError::from), Err));
        });
        let inode = f.inode.clone();
        let Some(fs) = self.me.upgrade().filter(|_| self.journal.logs_files()) else {
            return self.sync_by_commit(&inode, datasync, here, answer);
        };
        // Not where others must end first. Where others sync, too, more of them share a flush if their threads go on.
        let here = here && !self.data.precedence.is_running();
        let turn = here.then(|| inode.turn.try_lock()).flatten();
        let synced = turn.map(|turn| self.sync_alone(&inode, datasync, turn, Patience::Short));
        match synced {
            Some(Ok(Alone::Long)) | None => {}
            Some(synced) => return fs.synced_alone(inode, datasync, synced, answer),
        }
        self.data.syncers.run(move || {
            let synced = fs.sync_alone(&inode, datasync, inode.turn.lock(), Patience::Long);
            fs.synced_alone(inode, datasync, synced, answer);
        });
    }

    /// Of a file that was only written over: writes its data home before its times are committed and the device is flushed, as the
    /// kernel does. A device that takes nothing for a while then costs the file its data, not the volume its journal, which a
    /// flush that fails stops. Data in new blocks goes with the log.
    ///
    /// # Errors
    /// A failure that this opener was not told of; nothing was committed or flushed.
    fn data_first(&self, inode: &Inode, told: &Opener) -> Result<()> {
        if self.journal.logs_files() {
            return Ok(());
        }
        if !self.journal.is_valid(&inode.sync.lock().data) {
            return Ok(());
        }
        let home = match inode.dirty.is_clean() {
            true => Ok(()),
            false => self.write_home(&[inode.ino], &WriteList::new(), Haste::Awaited),
        };
        let failed = inode.dirty.failures.tell_opener(told);
        failed.map_or(home.map_err(FsError::from), Err)
    }

    /// What was written to the file last passes the cache by (O_DIRECT): it goes home at once, without a flush, so that who wrote it
    /// is told of a failure. Data that goes through the journal stays for that, as in the kernel.
    ///
    /// # Errors
    /// The device's. The file and the volume remember it, too.
    pub fn write_through(&self, f: &OpenRef) -> Result<()> {
        if self.journals_data(&f.inode.body.read()) {
            return Ok(());
        }
        self.flush_files(&[&f.inode])
    }

    /// Answers, or has a commit do what no record could.
    fn synced_alone(
        self: Arc<Self>,
        inode: Arc<Inode>,
        datasync: bool,
        synced: Result<Alone, JournalError>,
        answer: Answer,
    ) {
        if let Ok(Alone::Commit | Alone::Long) = synced {
            // By a commit of others, if one is under way.
            return self.sync_by_commit(&inode, datasync, true, answer);
        }
        // Whoever hears of it may close the volume at once.
        drop((self, inode));
        answer(synced.map(drop));
    }

    /// Makes a file durable with all that its last transactions hold.
    fn sync_by_commit(&self, inode: &Inode, datasync: bool, here: bool, answer: Answer) {
        let upto = {
            let points = inode.sync.lock();
            // What fdatasync makes readable of a directory is its entries, and they are metadata.
            if datasync && inode.kind != FileType::Directory {
                points.data.clone()
            } else {
                points.meta.clone()
            }
        };
        let data = if inode.dirty.is_clean() {
            Vec::new()
        } else {
            vec![inode.ino]
        };
        match here {
            true => self.journal.commit_here(upto, data, answer),
            false => self.journal.commit_then(upto, data, answer),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::{TryRecvError, channel};

    use stetfs_testkit::Mkfs;

    use super::*;
    use crate::testing::{ROOT, mkfs};
    use crate::types::{FsOptions, ROOT_INO};

    #[test]
    fn the_calling_thread_syncs_itself_where_nobody_is_in_the_way() {
        let opts = FsOptions {
            journal: "ordered,records=1".parse().unwrap(),
            ..FsOptions::default()
        };
        let fs = Fs::open(mkfs(32, &Mkfs::blocks(4096)), opts).unwrap();
        let (attr, file) = fs
            .create(&ROOT, ROOT_INO, b"file", 0o600, 0, libc::O_RDWR)
            .unwrap();
        let sync = || {
            fs.write(&ROOT, &file, 0, &[1; 4096], false).unwrap();
            let (done, is_done) = channel();
            fs.fsync_here(&file, false, Box::new(move |r| done.send(r).unwrap()));
            is_done
        };
        assert!(sync().try_recv().unwrap().is_ok());
        let inode = fs.iget(attr.ino).unwrap();
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
}
