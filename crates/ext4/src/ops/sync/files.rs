//! fsync(2) and fdatasync(2).

use crate::error::Result;
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::types::Done;
use std::sync::Arc;
use stetfs_journal::Wait;

impl Fs {
    /// Makes durable what was written to the file and, unless `datasync`, every change of its
    /// inode; calls `done` when it is. With `datasync` a transaction commits only if the data could
    /// not be read back without it. For a directory it covers the entries.
    ///
    /// After a failed write-back of the file's data, also in the background, `done` gets the error
    /// once for every opener. That data is lost; later writes are not affected.
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

    /// Writes the file's dirty data back at once, without a flush, because its last write was meant
    /// to bypass the cache (O_DIRECT). So the writer is told of a failure. Data that goes through
    /// the journal stays for the commit, as in the kernel.
    ///
    /// # Errors
    /// Errors of the device. The file and the volume remember them, too.
    pub fn write_through(&self, f: &OpenRef) -> Result<()> {
        if self.data.journals_data(&f.inode.body.read()) {
            return Ok(());
        }
        self.data.write_back_files(&[&f.inode])
    }
}
