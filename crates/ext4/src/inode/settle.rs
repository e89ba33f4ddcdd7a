//! Changes that are durable when the operation returns: of volumes opened with `sync` or `dirsync`, and of inodes with `chattr +S` or
//! `+D`. Every operation that changes something ends here, with no lock and no handle held.

use std::sync::mpsc;

use stetfs_journal::JournalError;
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::{Inode, InodeBody};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::OpenRef;

impl Fs {
    /// Whether changes of this inode's content and attributes are durable at once.
    pub(crate) fn is_synchronous(&self, body: &InodeBody) -> bool {
        self.opts.sync || body.flags().contains(InodeFlags::SYNC)
    }

    /// Whether changes of the names in this directory are durable at once.
    fn has_synchronous_names(&self, dir: &InodeBody) -> bool {
        self.opts.dirsync || self.is_synchronous(dir) || dir.flags().contains(InodeFlags::DIRSYNC)
    }

    /// Whether a write to this file is durable when it returns.
    pub fn writes_synchronously(&self, f: &OpenRef) -> bool {
        self.is_synchronous(&f.inode.body.read())
    }

    /// Ends a write to a file: makes its data durable if it is to be.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub(crate) fn settle_data(&self, f: &OpenRef) -> Result<()> {
        if !self.writes_synchronously(f) {
            return Ok(());
        }
        let (done, is_done) = mpsc::sync_channel(1);
        self.fsync_here(f, true, Box::new(move |synced| drop(done.send(synced))));
        is_done.recv().unwrap_or_else(|_| Err(self.why_stopped()))
    }

    /// Ends a change of an inode other than by writing: makes it durable if it is to be.
    ///
    /// # Errors
    /// The device or the journal failed.
    pub(crate) fn settle(&self, inode: &Inode) -> Result<()> {
        if !self.is_synchronous(&inode.body.read()) {
            return Ok(());
        }
        self.commit_inode(inode)
    }

    /// Ends a change of the names in a directory: makes it durable if it is to be.
    ///
    /// # Errors
    /// The device or the journal failed.
    pub(crate) fn settle_names(&self, dir: &Inode) -> Result<()> {
        if !self.has_synchronous_names(&dir.body.read()) {
            return Ok(());
        }
        self.commit_inode(dir)
    }

    /// Commits all that was changed of an inode, and what of its data belongs to that.
    ///
    /// # Errors
    /// The device or the journal failed.
    pub(crate) fn commit_inode(&self, inode: &Inode) -> Result<()> {
        let upto = inode.sync.lock().meta.clone();
        let data = match inode.dirty.is_clean() {
            true => Vec::new(),
            false => vec![inode.ino],
        };
        let (done, is_done) = mpsc::sync_channel(1);
        let answer = Box::new(move |synced| drop(done.send(synced)));
        self.journal.commit_here(upto, data, answer);
        let synced: std::result::Result<(), JournalError> = match is_done.recv() {
            Ok(synced) => synced,
            Err(_) => return Err(self.why_stopped()),
        };
        Ok(synced?)
    }

    /// Why a sync was not answered.
    fn why_stopped(&self) -> FsError {
        self.stopped().unwrap_or(FsError::Errno(libc::EIO))
    }
}
