//! Synchronous changes, which are durable when the operation returns: on volumes opened with `sync`
//! or `dirsync`, and of inodes with `chattr +S` or `+D`. Every operation that changes something
//! ends here, with no lock and no handle held.

use stetfs_journal::{JournalError, Wait};
use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_sync::timed::mpsc;

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::ops::inodes::OpenRef;

impl Fs {
    /// Whether changes of this inode's content and attributes are durable at once.
    pub(crate) fn is_synchronous(&self, body: &InodeBody) -> bool {
        self.vol.opts.sync || body.flags().contains(InodeFlags::SYNC)
    }

    /// Whether changes of the names in this directory are durable at once.
    fn has_synchronous_names(&self, dir: &InodeBody) -> bool {
        self.vol.opts.dirsync
            || self.is_synchronous(dir)
            || dir.flags().contains(InodeFlags::DIRSYNC)
    }

    /// Whether a write to this file is durable when it returns.
    pub fn writes_synchronously(&self, f: &OpenRef) -> bool {
        self.is_synchronous(&f.inode.body.read())
    }

    /// Ends a write to a file: makes its data durable if the file is synchronous.
    ///
    /// # Errors
    /// As for [`fsync`](Self::fsync).
    pub(crate) fn settle_data(&self, f: &OpenRef) -> Result<()> {
        if !self.writes_synchronously(f) {
            return Ok(());
        }
        let (done, is_done) = mpsc::sync_channel(1);
        self.fsync(
            f,
            true,
            Wait::Inline,
            Box::new(move |synced| drop(done.send(synced))),
        );
        is_done.recv().unwrap_or_else(|_| Err(self.why_stopped()))
    }

    /// Ends a change of an inode other than a write: makes it durable if the inode is synchronous.
    ///
    /// # Errors
    /// Errors of the device or the journal.
    pub(crate) fn settle(&self, inode: &Inode) -> Result<()> {
        if !self.is_synchronous(&inode.body.read()) {
            return Ok(());
        }
        self.commit_inode(inode)
    }

    /// Ends a change of the names in a directory: makes it durable if names in it are synchronous.
    ///
    /// # Errors
    /// Errors of the device or the journal.
    pub(crate) fn settle_names(&self, dir: &Inode) -> Result<()> {
        if !self.has_synchronous_names(&dir.body.read()) {
            return Ok(());
        }
        self.commit_inode(dir)
    }

    /// Commits all changes of an inode, with the data that belongs to them.
    ///
    /// # Errors
    /// Errors of the device or the journal.
    pub(crate) fn commit_inode(&self, inode: &Inode) -> Result<()> {
        let upto = inode.metadata.lock().upto(true).clone();
        let data = match inode.dirty.is_clean() {
            true => Vec::new(),
            false => vec![inode.ino],
        };
        let (done, is_done) = mpsc::sync_channel(1);
        let answer = Box::new(move |synced| drop(done.send(synced)));
        self.vol.journal.sync(upto, data, Wait::Inline, answer);
        let synced: std::result::Result<(), JournalError> = match is_done.recv() {
            Ok(synced) => synced,
            Err(_) => return Err(self.why_stopped()),
        };
        Ok(synced?)
    }

    /// The reason why a sync was not answered.
    fn why_stopped(&self) -> FsError {
        self.vol.stopped().unwrap_or(FsError::Errno(libc::EIO))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use stetfs_block::MemDevice;
    use stetfs_testkit::Mkfs;

    use crate::fs::Fs;
    use crate::testing::{mkfs, open};
    use crate::types::{Attr, Ctx, FsOptions, Ino, ROOT_INO, SetAttr, XattrSet};

    use super::*;

    /// A volume with a file of 9000 bytes and a directory, with these flags; both durable.
    fn volume(opts: FsOptions, file: InodeFlags, dir: InodeFlags) -> (Arc<MemDevice>, Arc<Fs>) {
        let device = mkfs(16, &Mkfs::blocks(4096));
        let fs = open(&device);
        let (attr, f) = fs
            .create(&Ctx::ROOT, ROOT_INO, b"f", 0o644, 0, libc::O_RDWR)
            .unwrap();
        fs.write(&Ctx::ROOT, &f, 0, &[b'o'; 9000], false).unwrap();
        drop(f);
        let d = fs.mkdir(&Ctx::ROOT, ROOT_INO, b"d", 0o755, 0).unwrap();
        for (ino, flags) in [(attr.ino, file), (d.ino, dir)] {
            let flags = fs.get_flags(ino).unwrap() | flags.bits();
            fs.set_flags(&Ctx::ROOT, ino, flags).unwrap();
        }
        fs.unmount().unwrap();
        drop(fs);
        let fs = Fs::open(device.clone(), opts).unwrap();
        (device, fs)
    }

    fn find(fs: &Fs, name: &str) -> Option<Attr> {
        let mut at: Ino = ROOT_INO;
        let mut found = None;
        for part in name.split('/') {
            found = fs.lookup(at, part.as_bytes()).ok();
            at = found.as_ref()?.ino;
        }
        found
    }

    /// Whether a change survives a crash right after it.
    fn survives(
        (device, fs): (Arc<MemDevice>, Arc<Fs>),
        change: fn(&Fs),
        is_there: fn(&Fs) -> bool,
    ) -> bool {
        change(&fs);
        assert!(is_there(&fs));
        let crashed = Arc::new(device.fork());
        let again = open(&crashed);
        let survived = is_there(&again);
        again.unmount().unwrap();
        survived
    }

    /// A change, and the check whether it is there.
    type Case = (fn(&Fs), fn(&Fs) -> bool);

    fn size(fs: &Fs) -> u64 {
        find(fs, "f").unwrap().size
    }

    const FILE: [Case; 5] = [
        (
            |fs| {
                let f = fs
                    .open_inode(&Ctx::ROOT, find(fs, "f").unwrap().ino, libc::O_RDWR)
                    .unwrap();
                assert_eq!(
                    fs.write(&Ctx::ROOT, &f, 9000, &[b'n'; 16384], false)
                        .unwrap(),
                    16384
                );
            },
            |fs| size(fs) == 9000 + 16384,
        ),
        (
            |fs| {
                let f = fs
                    .open_inode(&Ctx::ROOT, find(fs, "f").unwrap().ino, libc::O_RDWR)
                    .unwrap();
                fs.write(&Ctx::ROOT, &f, 5000, b"new", false).unwrap();
            },
            |fs| {
                let f = fs
                    .open_inode(&Ctx::ROOT, find(fs, "f").unwrap().ino, libc::O_RDONLY)
                    .unwrap();
                let mut text = [0; 3];
                fs.read(&f, 5000, &mut text).unwrap();
                &text == b"new"
            },
        ),
        (
            |fs| {
                let set = SetAttr {
                    size: Some(100),
                    ..SetAttr::default()
                };
                fs.setattr(&Ctx::ROOT, find(fs, "f").unwrap().ino, &set)
                    .unwrap();
            },
            |fs| size(fs) == 100,
        ),
        (
            |fs| {
                let ino = find(fs, "f").unwrap().ino;
                fs.setxattr(&Ctx::ROOT, ino, b"user.a", b"1", XattrSet::Any)
                    .unwrap();
            },
            |fs| fs.getxattr(find(fs, "f").unwrap().ino, b"user.a").is_ok(),
        ),
        (
            |fs| {
                let ino = find(fs, "f").unwrap().ino;
                fs.set_flags(&Ctx::ROOT, ino, InodeFlags::EXTENTS.bits() | 0x40)
                    .unwrap();
            },
            |fs| fs.get_flags(find(fs, "f").unwrap().ino).unwrap() & 0x40 != 0,
        ),
    ];

    const NAMES: [Case; 2] = [
        (
            |fs| {
                fs.mkdir(&Ctx::ROOT, find(fs, "d").unwrap().ino, b"new", 0o755, 0)
                    .unwrap();
            },
            |fs| find(fs, "d/new").is_some(),
        ),
        (
            |fs| {
                let dir = find(fs, "d").unwrap().ino;
                let flags = crate::types::RenameFlags::default();
                fs.rename(&Ctx::ROOT, ROOT_INO, b"f", dir, b"moved", flags)
                    .unwrap();
            },
            |fs| find(fs, "d/moved").is_some(),
        ),
    ];

    #[track_caller]
    fn all(cases: &[Case], expected: bool, opts: &FsOptions, file: InodeFlags, dir: InodeFlags) {
        for (i, (change, is_there)) in cases.iter().enumerate() {
            let volume = volume(opts.clone(), file, dir);
            assert_eq!(survives(volume, *change, *is_there), expected, "change {i}");
        }
    }

    #[test]
    fn what_is_synchronous_is_there_after_a_crash_and_nothing_else() {
        let (none, sync) = (InodeFlags::empty(), InodeFlags::SYNC);
        let plain = FsOptions {
            commit_secs: 300,
            ..FsOptions::default()
        };
        all(&FILE, false, &plain, none, none);
        all(&NAMES, false, &plain, none, none);
        all(&FILE, true, &plain, sync, none);
        all(&NAMES, true, &plain, none, sync);
        all(&NAMES, true, &plain, none, InodeFlags::DIRSYNC);
        let dirsync = FsOptions {
            dirsync: true,
            ..plain.clone()
        };
        all(&NAMES, true, &dirsync, none, none);
        all(&FILE, false, &dirsync, none, none);
        let sync = FsOptions {
            sync: true,
            ..plain
        };
        all(&FILE, true, &sync, none, none);
        all(&NAMES, true, &sync, none, none);
    }
}
