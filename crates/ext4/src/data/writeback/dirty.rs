//! Dirty data: blocks of file data that are newer than their home locations.

use std::ops::Range;

use stetfs_journal::{Handle, Stamp};
use stetfs_sync::timed::Instant;

use crate::data::store::DataStore;
use crate::data::writeback::home::HomeError;
use crate::durability::{Changed, Dropping, Overwriting, Unlogged};
use crate::error::Result;
use crate::inode::Inode;
use crate::types::DataMode;

/// A file that has this many bytes of new dirty data is written back behind its writer (BSD:
/// clustered writes). So the device works while more data comes, and a commit has little left to
/// write.
const BEHIND_BYTES: u64 = 16 << 20;

impl DataStore {
    /// Makes changed blocks dirty; they are given in ascending order. With `h`: the blocks were
    /// just allocated, or converted from unwritten, in that handle (data.D4).
    pub(in crate::data) fn add_dirty(
        &self,
        inode: &Inode,
        blocks: Vec<Changed>,
        h: Option<&Handle<'_>>,
    ) {
        if blocks.is_empty() {
            return;
        }
        let added = if h.is_some() { blocks.len() as u64 } else { 0 };
        let expire = self.vol.opts.dirty_expire;
        let has_records = self.vol.journal.records().is_some();
        // No commit waits for this data, but what the transaction makes reachable should be written
        // soon.
        let soon = added > 0 && self.vol.opts.journal.data() == DataMode::Writeback;
        let h = h.filter(|_| self.vol.opts.journal.data() != DataMode::Writeback);
        let (new, first, is_stream);
        {
            let mut ledger = inode.dirty.ledger.lock();
            for changed in &blocks {
                self.vol.cache.dirtied(changed.block.nr());
            }
            first = !ledger.has_dirty();
            if has_records {
                ledger.keep_records();
            }
            new = ledger.change(blocks, h.map(Handle::point));
            if ledger.due().is_none() || soon {
                let age = if soon { self.early_age() } else { expire };
                ledger.is_due_at(Instant::now().checked_add(age));
            }
            let size = u64::from(self.vol.geo.block_size);
            is_stream = ledger.is_stream(added, BEHIND_BYTES.div_ceil(size));
        }
        let set = &self.state.dirty;
        let before = set.more(new * u64::from(self.vol.geo.block_size));
        if first {
            set.files.lock().insert(inode.ino);
        }
        if let Some(h) = h {
            h.order_data(inode.ino);
        }
        if is_stream {
            set.streams.lock().insert(inode.ino);
        }
        if is_stream || before > set.much() || !self.state.is_watched() {
            self.wake_write_back();
        }
    }

    /// Drops the dirty blocks of a range of file blocks that is about to be freed, or to become
    /// unwritten, in `h` (data.D3).
    ///
    /// # Errors
    /// Errors of the journal, which has stopped then.
    pub(in crate::data) fn drop_dirty(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        range: Range<u64>,
    ) -> Result<()> {
        let Ok(from) = u32::try_from(range.start) else {
            return Ok(());
        };
        let range = from..u32::try_from(range.end).unwrap_or(u32::MAX);
        let dropping = {
            let mut ledger = inode.dirty.ledger.lock();
            ledger.forget_lost(&range);
            ledger.dropping(&range, &h.point())
        };
        let other = match dropping {
            Dropping::Nothing => return Ok(()),
            Dropping::Free => false,
            Dropping::Awaited => true,
            Dropping::AwaitedBefore => !self.vol.opts.canary.drop_awaited,
        };
        // An earlier transaction that allocated these blocks may commit without this one. Then the
        // blocks are reachable with their former content.
        if other {
            self.write_back_awaited(inode)?;
        }
        let _flush = inode.dirty.write_back.lock();
        let dropped = inode.dirty.ledger.lock().free(range);
        self.state
            .dirty
            .less(dropped * u64::from(self.vol.geo.block_size));
        Ok(())
    }

    /// Whether a change of file block `lblk`, which holds data, is written back with the dirty data
    /// there (data.D5). This is so only if no other transaction than that of `h` made the file's
    /// dirty data reachable. Otherwise the block is to be journaled, and all data of the file is
    /// written back now, or reported as lost.
    ///
    /// # Errors
    /// Errors of the journal, which has stopped then.
    pub(in crate::data) fn goes_home_with(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        lblk: u32,
    ) -> Result<bool> {
        let overwriting = inode.dirty.ledger.lock().overwriting(lblk, &h.point());
        match overwriting {
            Overwriting::Own => return Ok(true),
            Overwriting::Awaited if self.vol.opts.canary.overwrite_awaited => return Ok(true),
            Overwriting::Home => return Ok(self.vol.opts.canary.overwrite_home),
            Overwriting::Leaving => drop(inode.dirty.write_back.lock()),
            Overwriting::Awaited => self.write_back_awaited(inode)?,
        }
        inode.dirty.ledger.lock().replaced(lblk);
        Ok(false)
    }

    /// Writes back data of a file that an earlier transaction made reachable and that may commit
    /// without the running one.
    ///
    /// # Errors
    /// Errors of the journal, which has stopped then.
    fn write_back_awaited(&self, inode: &Inode) -> Result<()> {
        match self.write_back_and_tell(&[inode]) {
            // The lost data is about to be replaced anyway.
            Ok(()) | Err(HomeError::Data(_)) => Ok(()),
            Err(HomeError::Journal(e)) => Err(e.into()),
        }
    }

    /// The dirty data of the file that no record holds, up to `most` blocks. The caller holds the
    /// inode's lock, so nothing becomes dirty meanwhile.
    pub(in crate::data) fn unlogged(&self, inode: &Inode, most: usize) -> Unlogged {
        // With the lock, no write-back is under way.
        let _flush = inode.dirty.write_back.lock();
        let journal = &self.vol.journal;
        inode.dirty.ledger.lock().unlogged(
            most,
            journal.horizon(),
            |record| journal.is_alive(record),
            |mark| journal.is_flushed(mark),
        )
    }

    /// [`unlogged`](Self::unlogged) for a file whose data is journaled: it has no such data.
    pub(in crate::data) fn unlogged_of_journaled(&self, inode: &Inode) -> Unlogged {
        let journal = &self.vol.journal;
        let mut ledger = inode.dirty.ledger.lock();
        ledger.prune(journal.horizon(), |record| journal.is_alive(record));
        Unlogged::nothing()
    }

    /// Notes that the record with this stamp holds these blocks in their present state. If the data
    /// is `journaled`, only dirty blocks are written back outside the journal, so only these count.
    pub(in crate::data) fn logged(
        &self,
        inode: &Inode,
        journaled: bool,
        blocks: impl Iterator<Item = u32>,
        record: Stamp,
    ) {
        let mut ledger = inode.dirty.ledger.lock();
        match journaled {
            true => ledger.record_dirty(blocks, record),
            false => ledger.record(blocks, record),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use stetfs_block::{Fault, FaultInjector, Op};
    use stetfs_testkit::Mkfs;
    use stetfs_testkit::wait_until;

    use super::*;
    use crate::fs::Fs;
    use crate::ops::inodes::OpenRef;
    use crate::testing::{mkfs, open};
    use crate::types::{Ctx, FallocateMode, FsOptions, ROOT_INO};

    #[test]
    fn a_stream_goes_home_behind_its_writer() {
        let device = mkfs(64, &Mkfs::blocks(4096));
        let opts = FsOptions {
            commit_secs: 3600,
            cache_bytes: 1 << 30,
            ..FsOptions::default()
        };
        let fs = Fs::open(device, opts).unwrap();
        let (_, file) = fs
            .create(&Ctx::ROOT, ROOT_INO, b"stream", 0o644, 0, libc::O_RDWR)
            .unwrap();
        let write = |mib: u64| fs.write(&Ctx::ROOT, &file, mib << 20, &[7; 1 << 20], false);
        for mib in 0..BEHIND_BYTES >> 20 {
            assert!(fs.data.state.dirty.streams.lock().is_empty());
            write(mib).unwrap();
        }
        wait_until("all goes home", || fs.data.state.dirty.bytes() == 0);
        // Overwritten data may be overwritten again, so it is not written back early.
        for mib in 0..BEHIND_BYTES >> 20 {
            write(mib).unwrap();
        }
        assert_eq!(fs.data.state.dirty.bytes(), BEHIND_BYTES);
    }

    /// An earlier transaction may have made blocks reachable, so their data is written back before
    /// they are freed. A failure of that does not prevent the free.
    #[test]
    fn what_cannot_be_written_can_be_freed() {
        let device = Arc::new(FaultInjector::new(mkfs(32, &Mkfs::blocks(4096))));
        let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
        let (attr, file) = fs
            .create(&Ctx::ROOT, ROOT_INO, b"file", 0o644, 0, libc::O_RDWR)
            .unwrap();
        fs.write(&Ctx::ROOT, &file, 0, &[1; 8192], false).unwrap();
        let inode = fs.inodes.iget(attr.ino).unwrap();
        inode.dirty.ledger.lock().was_ordered_before();
        device.add(Fault::fail(Op::Write, libc::EIO));
        let punch = FallocateMode::PunchHole;
        fs.fallocate(&Ctx::ROOT, &file, punch, 0, 4096).unwrap();
        assert!(device.hits() > 0 && fs.vol.writable().is_ok());
        assert!(file.untold_failure().is_some());
        device.clear();
        drop((inode, file));
        fs.unmount().unwrap();
    }

    /// A committing transaction has made blocks reachable. Before their data is written back, a
    /// later transaction writes to the file and frees the blocks. If only the first survives a
    /// crash, the blocks hold the data. (data.D3, data.D4)
    #[test]
    fn a_commit_under_way_keeps_the_data_that_it_waits_for() {
        assert!(punched_beside_a_commit(false), "freed data was lost");
        assert!(!punched_beside_a_commit(true), "the fault loses it");
    }

    /// Whether the data is there after the crash.
    fn punched_beside_a_commit(drop_awaited: bool) -> bool {
        let opts = FsOptions {
            canary: stetfs_journal::Canary {
                drop_awaited,
                ..Default::default()
            },
            ..FsOptions::default()
        };
        is_kept_beside_a_commit(opts, |fs, file| {
            fs.write(&Ctx::ROOT, file, 8192, &[3; 4096], false).unwrap();
            let punch = FallocateMode::PunchHole;
            fs.fallocate(&Ctx::ROOT, file, punch, 0, 4096).unwrap();
        })
    }

    /// The same for a later transaction that overwrites blocks which an earlier one made reachable.
    /// (data.D5)
    #[test]
    fn a_commit_under_way_has_the_data_as_it_was() {
        for journal in ["ordered,data=overwrites", "stet", "stet,sync=compound"] {
            for zeroes in [false, true] {
                let is_kept = |overwrite_awaited: bool| {
                    let opts = FsOptions {
                        canary: stetfs_journal::Canary {
                            overwrite_awaited,
                            ..Default::default()
                        },
                        journal: journal.parse().unwrap(),
                        ..FsOptions::default()
                    };
                    is_kept_beside_a_commit(opts, |fs, file| match zeroes {
                        true => {
                            let punch = FallocateMode::PunchHole;
                            fs.fallocate(&Ctx::ROOT, file, punch, 10, 4000).unwrap();
                        }
                        false => {
                            let write = fs.write(&Ctx::ROOT, file, 4000, &[3; 200], false);
                            assert_eq!(write.unwrap(), 200);
                        }
                    })
                };
                assert!(is_kept(false), "{journal}: a later change was there");
                assert!(!is_kept(true), "{journal}: the fault brings it there");
            }
        }
    }

    /// Whether a file of two blocks has the content of its commit after a crash, although a later
    /// transaction changed it while that commit waited for the data.
    fn is_kept_beside_a_commit(opts: FsOptions, later: impl FnOnce(&Fs, &OpenRef)) -> bool {
        let device = mkfs(32, &Mkfs::blocks(4096));
        let fs = Fs::open(device.clone(), opts).unwrap();
        let create = |name: &[u8]| {
            fs.create(&Ctx::ROOT, ROOT_INO, name, 0o644, 0, libc::O_RDWR)
                .unwrap()
        };
        let (blocker, first) = create(b"first");
        let (attr, file) = create(b"second");
        assert!(blocker.ino < attr.ino, "written home in this order");
        fs.write(&Ctx::ROOT, &first, 0, &[1; 4096], false).unwrap();
        fs.write(&Ctx::ROOT, &file, 0, &[2; 8192], false).unwrap();
        let before = fs.vol.journal.begin(1).unwrap().point();

        let (held, is_held) = channel();
        let (go, may_go) = channel::<()>();
        let (done, is_done) = channel();
        std::thread::scope(|scope| {
            let inode = fs.inodes.iget(blocker.ino).unwrap();
            scope.spawn(move || {
                let _flush = inode.dirty.write_back.lock();
                held.send(()).unwrap();
                may_go.recv().unwrap();
            });
            is_held.recv().unwrap();
            fs.sync_all(Box::new(move |result| done.send(result).unwrap()));
            // The next transaction is running now, and the first waits for `blocker`.
            while fs.vol.journal.begin(1).unwrap().point() == before {
                std::thread::yield_now();
            }
            later(&fs, &file);
            go.send(()).unwrap();
            is_done.recv().unwrap().unwrap();
        });
        let crashed = std::sync::Arc::new(device.fork());

        let again = open(&crashed);
        let attr = again.lookup(ROOT_INO, b"second").unwrap();
        let file = again
            .open_inode(&Ctx::ROOT, attr.ino, libc::O_RDONLY)
            .unwrap();
        let mut data = vec![0; 12288];
        let n = again.read(&file, 0, &mut data).unwrap();
        assert_eq!(n, 8192);
        data[..n].iter().all(|b| *b == 2)
    }
}
