//! Writing dirty data home, in batches.
//!
//! Lock order here: a file's flush lock (`Rank::DataFlush`; several in ascending inode order), then
//! its ledger (`Rank::InodeLeaf`). Whoever writes home holds nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use stetfs_block::{BlockError, WriteList};
use stetfs_journal::{FileState, JournalError, Submit};
use stetfs_sync::MutexGuard;

use super::precedence::WritebackPriority;
use super::store::DataStore;
use crate::durability::Leaving;
use crate::error::{FsError, Result};
use crate::inode::Inode;
use crate::types::{DataMode, Ino, OnDataError};

/// Bytes written home in one batch.
const BATCH_BYTES: usize = 8 << 20;
/// The same where syncs go before: one that comes waits behind no more.
const SMALL_BATCH_BYTES: usize = 1 << 20;

/// Why writing home failed.
pub(super) enum HomeError {
    /// Data of files, which remember it for their openers.
    Data(FsError),
    /// What the journal cannot go on without.
    Journal(JournalError),
}

impl HomeError {
    /// Of two, what is worse.
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

/// Blocks on their way home, and the locks that keep data.D2 and data.D3 meanwhile.
#[derive(Default)]
struct Batch<'a> {
    locks: Vec<(&'a Inode, MutexGuard<'a, ()>)>,
    blocks: Vec<Taken>,
}

/// A block on its way home.
struct Taken {
    /// Index into [`Batch::locks`].
    file: usize,
    leaving: Leaving,
}

impl<'a> Batch<'a> {
    fn lock(&mut self, inode: &'a Inode) {
        if self.locks.last().is_none_or(|(i, _)| i.ino != inode.ino) {
            self.locks.push((inode, inode.dirty.flush.lock_nested()));
        }
    }

    /// Takes dirty blocks out of the last locked file, from `from` to `last`, as many as there is
    /// room for. Returns where to go on, or `None` when the file is done.
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
    /// Whether syncs that are to be expected go before, so that little is given to the device at
    /// once.
    pub(super) fn gives_way(&self, priority: WritebackPriority) -> bool {
        let may = match priority {
            WritebackPriority::Awaited => false,
            WritebackPriority::Commit => !self.vol.journal.is_awaited(),
            WritebackPriority::Background => true,
        };
        may && self.state.precedence.is_claimed()
    }

    /// Writes home what is dirty now in these files, in ascending order of their numbers. The
    /// device has it on return; no flush.
    ///
    /// # Errors
    /// A failed write. Each file remembers its own for its openers.
    pub(super) fn flush_files(&self, files: &[&Inode]) -> Result<()> {
        Ok(self.flush_and_tell(files)?)
    }

    pub(super) fn flush_and_tell(&self, files: &[&Inode]) -> Result<(), HomeError> {
        let device = &**self.vol.cache.device();
        self.flush_by(files, WritebackPriority::Awaited, &mut |batch| {
            batch.submit(device)
        })
    }

    /// Has `send` give what is dirty now in these files to the device. The journal stops where it
    /// cannot go on without what failed.
    fn flush_by(
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
            // What becomes dirty behind this is no business of this call, so it ends.
            let Some(last) = last else {
                // Somebody else may be writing it: wait for that.
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

    /// Blocks written home in one batch.
    fn batch_blocks(&self, gives_way: bool) -> usize {
        let bytes = if gives_way {
            SMALL_BATCH_BYTES
        } else {
            BATCH_BYTES
        };
        (bytes / self.vol.geo.block_size as usize).max(1)
    }

    /// Has `send` write a batch, and lets its files go. What could not be written is not dirty any
    /// more (as in the kernel): the file remembers the failure.
    fn submit(&self, batch: &mut Batch<'_>, send: &mut Submit<'_>) -> Result<(), HomeError> {
        let Batch { locks, mut blocks } = std::mem::take(batch);
        blocks.sort_unstable_by_key(|taken| taken.leaving.block.nr());
        let list = self.home_writes(blocks.iter());
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
                Err(e) if count > 0 => self.again(e, &self.home_writes(own()), &list),
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

    /// Blocks, given in ascending order, as writes.
    fn home_writes<'b>(&self, blocks: impl Iterator<Item = &'b Taken>) -> WriteList<'b> {
        let size = u64::from(self.vol.geo.block_size);
        blocks
            .map(|taken| (taken.leaving.block.nr() * size, &taken.leaving.page[..]))
            .collect()
    }

    /// After a batch failed: what became of a part of it. One error tells of a whole batch, so the
    /// part is written once more, unless it was all.
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

    /// Takes note of data that could not be written home, and says whom that concerns.
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
                // The next commit ends a record that is alive, and with it the only copy of what
                // was synced.
                let record = ledger.record_of(taken.leaving.lblk);
                is_promised |= record.is_some_and(|stamp| self.vol.journal.is_alive(stamp));
                lost |= ledger.was_lost(&taken.leaving);
            }
        }
        blocks.for_each(|taken| self.vol.journal.is_unlike_home(&taken.leaving.block));
        if lost {
            self.state.dirty.lost.lock().entry(inode.ino).or_default();
            self.wake_flusher();
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

    /// Writes home the dirty data of these inodes. The device has it on return; no flush. Of data
    /// that could not be written its file remembers that.
    ///
    /// # Errors
    /// What the journal cannot go on without; it has stopped.
    pub(crate) fn write_home(
        &self,
        inos: &[Ino],
        priority: WritebackPriority,
    ) -> Result<(), JournalError> {
        let device = &**self.vol.cache.device();
        self.hand_out_data(inos, priority, &mut |batch| batch.submit(device))
    }

    /// The same by `send` ([`FileState::hand_out`](stetfs_journal::FileState::hand_out)).
    ///
    /// # Errors
    /// As [`write_home`](Self::write_home).
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
        match self.flush_by(&files, priority, send) {
            Ok(()) | Err(HomeError::Data(_)) => Ok(()),
            Err(HomeError::Journal(e)) => Err(e),
        }
    }

    /// Writes home, in the background, the dirty data of files that have some of its age, or `all`.
    ///
    /// # Errors
    /// As [`write_home`](Self::write_home).
    pub(super) fn flush_old(&self, all: bool) -> Result<(), JournalError> {
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

    /// Writes home, in the background, what files have got that are written as streams.
    ///
    /// # Errors
    /// As [`write_home`](Self::write_home).
    pub(super) fn flush_streams(&self) -> Result<(), JournalError> {
        let streams = std::mem::take(&mut *self.state.dirty.streams.lock());
        for ino in streams {
            self.write_home(&[ino], WritebackPriority::Background)?;
        }
        Ok(())
    }

    /// Takes a clean file off the list of those with dirty data.
    fn forget_clean(&self, ino: Ino) {
        let files = &self.state.dirty.files;
        files.lock().remove(&ino);
        // It may have become dirty meanwhile: `add_dirty` fills the ledger first and then enters
        // the file, so either it is dirty here or it is entered after this.
        if self.inodes.find(ino).is_some_and(|f| f.dirty.has_dirty()) {
            files.lock().insert(ino);
        }
    }
}
