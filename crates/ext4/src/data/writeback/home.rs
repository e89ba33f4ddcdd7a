//! Write-back of dirty data to its home locations, in batches.
//!
//! Lock order here: a file's write-back lock (`Rank::WriteBack`; several in ascending inode order),
//! then its ledger (`Rank::InodeLeaf`). Write-back holds no other lock.

use std::collections::BTreeSet;
use std::sync::Arc;

use stetfs_block::{BlockError, WriteList};
use stetfs_journal::{FileState, JournalError, Submit};
use stetfs_sync::MutexGuard;

use crate::data::store::DataStore;
use crate::data::writeback::precedence::WritebackPriority;
use crate::durability::Leaving;
use crate::error::{FsError, Result};
use crate::inode::Inode;
use crate::types::{DataMode, Ino, OnDataError};

/// Bytes in one batch.
const BATCH_BYTES: usize = 8 << 20;
/// Bytes in one batch while syncs have precedence: a sync that arrives waits for less.
const SMALL_BATCH_BYTES: usize = 1 << 20;

/// The reason why a write-back failed.
pub(crate) enum HomeError {
    /// Data of files; each file remembers the failure for its openers.
    Data(FsError),
    /// Data that the journal cannot do without.
    Journal(JournalError),
}

impl HomeError {
    /// The worse of two results.
    fn and(a: Result<(), HomeError>, b: Result<(), HomeError>) -> Result<(), HomeError> {
        match (&a, &b) {
            (Err(HomeError::Data(_)), Err(HomeError::Journal(_))) | (Ok(()), _) => b,
            _ => a,
        }
    }
}

impl From<HomeError> for FsError {
    fn from(e: HomeError) -> FsError {
        match e {
            HomeError::Data(e) => e,
            HomeError::Journal(e) => e.into(),
        }
    }
}

/// Blocks that are being written back, and the write-back locks that keep data.D2 and data.D3
/// meanwhile.
#[derive(Default)]
struct Batch<'a> {
    locks: Vec<(&'a Inode, MutexGuard<'a, ()>)>,
    blocks: Vec<Taken>,
}

/// A block that is being written back.
struct Taken {
    /// Index into [`Batch::locks`].
    file: usize,
    leaving: Leaving,
}

impl<'a> Batch<'a> {
    fn lock(&mut self, inode: &'a Inode) {
        if self.locks.last().is_none_or(|(i, _)| i.ino != inode.ino) {
            self.locks
                .push((inode, inode.dirty.write_back.lock_nested()));
        }
    }

    /// Takes dirty blocks from `from` to `last` out of the last locked file, as far as there is
    /// room. Returns the block to continue with, or `None` when the file is done.
    fn take(&mut self, from: u32, last: u32, room: usize) -> Option<u32> {
        let file = self.locks.len().checked_sub(1)?;
        let mut ledger = self.locks.get(file)?.0.dirty.ledger.lock();
        let blocks = &mut self.blocks;
        ledger.take(from, last, room, |leaving| {
            blocks.push(Taken { file, leaving });
        })
    }
}

impl FileState for DataStore {
    fn hand_out(&self, inos: &[Ino], send: &mut Submit<'_>) -> Result<(), JournalError> {
        self.hand_out_data(inos, WritebackPriority::Commit, send)
    }

    fn aborted(&self, why: &JournalError) {
        self.vol.journal_stopped(why);
    }
}

impl DataStore {
    /// Whether write-back of this priority gives way to expected syncs, so that the device gets
    /// little at once.
    pub(in crate::data) fn gives_way(&self, priority: WritebackPriority) -> bool {
        let may = match priority {
            WritebackPriority::Awaited => false,
            WritebackPriority::Commit => !self.vol.journal.is_awaited(),
            WritebackPriority::Background => true,
        };
        may && self.state.precedence.is_claimed()
    }

    /// Writes back the data of these files that is dirty now. The files are in ascending order of
    /// their numbers. The device has received the data on return; it is not flushed.
    ///
    /// # Errors
    /// A failed write. Each file remembers its own failure for its openers.
    pub(crate) fn write_back_files(&self, files: &[&Inode]) -> Result<()> {
        Ok(self.write_back_and_tell(files)?)
    }

    pub(in crate::data) fn write_back_and_tell(&self, files: &[&Inode]) -> Result<(), HomeError> {
        let device = &**self.vol.cache.device();
        self.write_back_by(files, WritebackPriority::Awaited, &mut |batch| {
            batch.submit(device)
        })
    }

    /// Lets `send` write the data of these files that is dirty now. The journal stops if it cannot
    /// do without data that failed.
    fn write_back_by(
        &self,
        files: &[&Inode],
        priority: WritebackPriority,
        send: &mut Submit<'_>,
    ) -> Result<(), HomeError> {
        let mut batch = Batch::default();
        let mut result = Ok(());
        for inode in files {
            let (last, has_leaving) = {
                let mut ledger = inode.dirty.ledger.lock();
                ledger.is_seen_to();
                (ledger.last(), ledger.has_leaving())
            };
            // Data that becomes dirty behind this block is not part of this call, so the call ends.
            let Some(last) = last else {
                // Another thread may be writing the last blocks: wait for it.
                if has_leaving {
                    batch.lock(inode);
                }
                continue;
            };
            let mut from = Some(0);
            while let Some(at) = from {
                let gives_way = self.gives_way(priority);
                if gives_way && batch.locks.is_empty() {
                    self.state.precedence.give_way();
                }
                let room = self.batch_blocks(gives_way);
                batch.lock(inode);
                from = batch.take(at, last, room.saturating_sub(batch.blocks.len()));
                if batch.blocks.len() >= room {
                    result = HomeError::and(result, self.submit(&mut batch, send));
                }
            }
        }
        result = HomeError::and(result, self.submit(&mut batch, send));
        if let Err(HomeError::Journal(e)) = &result {
            self.vol.journal.abort(e.clone());
        }
        result
    }

    /// Blocks in one batch.
    fn batch_blocks(&self, gives_way: bool) -> usize {
        let bytes = if gives_way {
            SMALL_BATCH_BYTES
        } else {
            BATCH_BYTES
        };
        (bytes / self.vol.geo.block_size as usize).max(1)
    }

    /// Lets `send` write a batch, and releases its files. A block that could not be written is not
    /// dirty any more (as in the kernel), and its file remembers the failure.
    fn submit(&self, batch: &mut Batch<'_>, send: &mut Submit<'_>) -> Result<(), HomeError> {
        let Batch { locks, mut blocks } = std::mem::take(batch);
        blocks.sort_unstable_by_key(|taken| taken.leaving.block.nr());
        let list = self.write_list(blocks.iter());
        let written = match list.is_empty() {
            true => Ok(()),
            false => send(&list),
        };
        if written.is_ok() {
            let home = blocks.iter().map(|taken| taken.leaving.block.nr());
            self.vol.cache.written(home);
        }
        let mut each = vec![0usize; locks.len()];
        for taken in &blocks {
            each[taken.file] += 1;
        }
        let mut result = Ok(());
        for ((at, (inode, _lock)), count) in locks.iter().enumerate().zip(each) {
            let own = || blocks.iter().filter(move |taken| taken.file == at);
            let home = match &written {
                Err(e) if count > 0 => self.again(e, &self.write_list(own()), &list),
                _ => Ok(()),
            };
            let is_home = home.is_ok();
            if let Err(e) = home {
                result = HomeError::and(result, Err(self.not_home(inode, own(), e)));
            }
            let mark = || self.vol.journal.flush_mark();
            let mut ledger = inode.dirty.ledger.lock();
            if is_home && ledger.has_lost() {
                own().for_each(|taken| ledger.replaced(taken.leaving.lblk));
            }
            ledger.came_home(count, mark);
        }
        self.state
            .dirty
            .less(blocks.len() as u64 * u64::from(self.vol.geo.block_size));
        result
    }

    /// The writes of these blocks, which are given in ascending order.
    fn write_list<'b>(&self, blocks: impl Iterator<Item = &'b Taken>) -> WriteList<'b> {
        let size = u64::from(self.vol.geo.block_size);
        blocks
            .map(|taken| (taken.leaving.block.nr() * size, &taken.leaving.page[..]))
            .collect()
    }

    /// Finds the result for a part of a failed batch. The error covers the whole batch, so the part
    /// is written once more, unless it was the whole batch.
    fn again(
        &self,
        failed: &BlockError,
        part: &WriteList<'_>,
        all: &WriteList<'_>,
    ) -> Result<(), BlockError> {
        match part.bytes() == all.bytes() {
            true => Err(failed.clone()),
            false => part.submit(&**self.vol.cache.device()),
        }
    }

    /// Notes data that could not be written back, and returns whether that concerns files or the
    /// journal.
    fn not_home<'b>(
        &self,
        inode: &Inode,
        blocks: impl Iterator<Item = &'b Taken> + Clone,
        e: BlockError,
    ) -> HomeError {
        let aborts = self.vol.opts.data_err == OnDataError::Abort
            && matches!(
                self.vol.opts.journal.data(),
                DataMode::Ordered | DataMode::Overwrites
            );
        let (mut is_promised, mut lost) = (false, false);
        {
            let mut ledger = inode.dirty.ledger.lock();
            for taken in blocks.clone() {
                // The next commit ends a live record, and with it the only copy of data that was
                // synced.
                let record = ledger.record_of(taken.leaving.lblk);
                is_promised |= record.is_some_and(|stamp| self.vol.journal.is_alive(stamp));
                lost |= ledger.was_lost(&taken.leaving);
            }
        }
        blocks.for_each(|taken| self.vol.journal.is_unlike_home(&taken.leaving.block));
        if lost {
            self.state.dirty.lost.lock().entry(inode.ino).or_default();
            self.wake_write_back();
        }
        let e = FsError::from(e);
        self.state.failures.add(e.clone());
        if inode.dirty.failures.add(e.clone()) {
            tracing::error!("data of inode {} is lost: {e}", inode.ino);
        }
        match e {
            FsError::Device(cause) if aborts || is_promised => {
                HomeError::Journal(JournalError::Device(cause))
            }
            e => HomeError::Data(e),
        }
    }

    /// Writes back the dirty data of these inodes. The device has received it on return; it is not
    /// flushed. A file remembers the failure of its data.
    ///
    /// # Errors
    /// A failure that the journal cannot do without; it has stopped.
    pub(crate) fn write_home(
        &self,
        inos: &[Ino],
        priority: WritebackPriority,
    ) -> Result<(), JournalError> {
        let device = &**self.vol.cache.device();
        self.hand_out_data(inos, priority, &mut |batch| batch.submit(device))
    }

    /// [`write_home`](Self::write_home) with the writes done by `send`
    /// ([`FileState::hand_out`](stetfs_journal::FileState::hand_out)).
    ///
    /// # Errors
    /// As for [`write_home`](Self::write_home).
    pub(crate) fn hand_out_data(
        &self,
        inos: &[Ino],
        priority: WritebackPriority,
        send: &mut Submit<'_>,
    ) -> Result<(), JournalError> {
        let inos: BTreeSet<Ino> = inos.iter().copied().collect();
        let files: Vec<Arc<Inode>> = inos
            .into_iter()
            .filter_map(|ino| self.inodes.find(ino))
            .collect();
        let files: Vec<&Inode> = files.iter().map(|f| &**f).collect();
        match self.write_back_by(&files, priority, send) {
            Ok(()) | Err(HomeError::Data(_)) => Ok(()),
            Err(HomeError::Journal(e)) => Err(e),
        }
    }

    /// Writes back, in the background, the dirty data of files that have some that is old enough,
    /// or of all files.
    ///
    /// # Errors
    /// As for [`write_home`](Self::write_home).
    pub(in crate::data) fn write_back_old(&self, all: bool) -> Result<(), JournalError> {
        let inos: Vec<Ino> = self.state.dirty.files.lock().iter().copied().collect();
        let mut old = Vec::new();
        for ino in inos {
            match self.inodes.find(ino).filter(|f| f.dirty.has_dirty()) {
                Some(file) if all || file.dirty.is_due() => old.push(ino),
                Some(_) => {}
                None => self.forget_clean(ino),
            }
        }
        self.write_home(&old, WritebackPriority::Background)
    }

    /// Writes back, in the background, the dirty data of files that are written as streams.
    ///
    /// # Errors
    /// As for [`write_home`](Self::write_home).
    pub(in crate::data) fn write_back_streams(&self) -> Result<(), JournalError> {
        let streams = std::mem::take(&mut *self.state.dirty.streams.lock());
        for ino in streams {
            self.write_home(&[ino], WritebackPriority::Background)?;
        }
        Ok(())
    }

    /// Removes a clean file from the files with dirty data.
    fn forget_clean(&self, ino: Ino) {
        let files = &self.state.dirty.files;
        files.lock().remove(&ino);
        // The file may have become dirty meanwhile. `add_dirty` fills the ledger before it enters
        // the file, so either the file is dirty here, or it is entered after this.
        if self.inodes.find(ino).is_some_and(|f| f.dirty.has_dirty()) {
            files.lock().insert(ino);
        }
    }
}
