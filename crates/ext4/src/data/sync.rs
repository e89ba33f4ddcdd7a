//! Making a file durable.

use stetfs_journal::Done as Answer;

use crate::error::FsError;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::types::{Done, FileType, OpenRef};

impl Fs {
    /// Makes durable what was written to the file and, unless `datasync`, every change of its inode;
    /// `done` is told when it is, from the journal's side. With `datasync` a transaction commits only
    /// if the data could not be read back without it. Of a directory it covers the entries.
    ///
    /// `done` gets EIO once for every opener after data of the file could not be written home, also
    /// if that was in the background.
    pub fn fsync(&self, f: &OpenRef, datasync: bool, done: Done) {
        let inode = f.inode.clone();
        let seen = f.failures_seen.clone();
        if self.writable().is_err() {
            let failed = inode.dirty.failure_since(&seen).or(self.stopped());
            return done(failed.map_or(Ok(()), Err));
        }
        if !datasync && let Err(e) = self.write_lazy_time(&inode) {
            return done(Err(e));
        }
        let answer: Answer = Box::new(move |result| {
            // Looked at after the data went home, so that this very failure is included.
            let failed = inode.dirty.failure_since(&seen);
            done(
                result
                    .map_err(FsError::from)
                    .and(failed.map_or(Ok(()), Err)),
            );
        });
        let inode = f.inode.clone();
        let Some(fs) = self.me.upgrade().filter(|_| self.journal.logs_files()) else {
            return self.sync_by_commit(&inode, datasync, answer);
        };
        self.data.syncers.run(move || {
            match fs.sync_alone(&inode, datasync) {
                Ok(false) => fs.sync_by_commit(&inode, datasync, answer),
                done => {
                    // Whoever hears of it may close the volume at once.
                    drop((fs, inode));
                    answer(done.map(drop));
                }
            }
        });
    }

    /// Makes a file durable with all that its last transactions hold.
    fn sync_by_commit(&self, inode: &Inode, datasync: bool, answer: Answer) {
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
        self.journal.commit_then(upto, data, answer);
    }
}
