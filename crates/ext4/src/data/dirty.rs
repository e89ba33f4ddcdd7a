//! Dirty data: blocks of file data that are newer than their homes, and writing them there.
//!
//! Lock order here: a file's flush lock (`Rank::DataFlush`; several in ascending inode order), then
//! the map of a file (`Rank::InodeLeaf`). Whoever writes home holds nothing else.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Condvar;
use stetfs_block::{BlockError, WriteList};
use stetfs_cache::PageRef;
use stetfs_journal::{Block, BlockNr, CommitPoint, FlushMark, Handle, JournalError, Stamp, Submit};
use stetfs_sync::{Mutex, MutexGuard, Rank};

use super::failures::Failures;
use super::pages::Changed;
use super::precedence::WritebackPriority;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::types::{DataMode, FsOptions, Ino, OnDataError, OpenRef};

/// Bytes written home in one batch.
const BATCH_BYTES: usize = 8 << 20;
/// The same where syncs go before: one that comes waits behind no more.
const SMALL_BATCH_BYTES: usize = 1 << 20;

/// A file that has got so many bytes of new dirty data goes home behind its writer (BSD: clustered
/// writes): the device works while there is more to come, and whoever commits finds little left to
/// do.
const BEHIND_BYTES: u64 = 16 << 20;

/// The dirty data of one file (data.D2, data.D3).
pub(crate) struct DirtyData {
    /// Held while blocks are written home, and while they are taken out to be dropped.
    flush: Mutex<()>,
    state: Mutex<State>,
    /// Home writes that failed.
    pub(crate) failures: Failures,
}

#[derive(Default)]
struct State {
    /// By file block.
    blocks: BTreeMap<u32, Dirty>,
    /// New blocks whose data could not be written, and is not dirty any more.
    lost: BTreeSet<u32>,
    /// Blocks taken out and being written.
    in_flight: usize,
    /// Blocks that were new when they became dirty, since the file was last sent after its writer.
    behind: u64,
    /// When the oldest is to go home by itself; none while somebody sees to that.
    due: Option<Instant>,
    /// The transaction that last made blocks of this map reachable; it commits only after them.
    ordered: Option<CommitPoint>,
    /// So did an earlier one, which may be committing and still wait for its part of the map.
    ordered_before: bool,
    /// Blocks that a file-level record holds, and the record's stamp. `true`: what is dirty there
    /// is what it holds.
    logged: BTreeMap<u32, (Stamp, bool)>,
    /// Blocks went home since the device was last known to be flushed.
    unflushed: Option<FlushMark>,
}

struct Dirty {
    block: Arc<Block>,
    /// Its home holds nothing of the file yet.
    fresh: bool,
}

impl State {
    /// A record holds the block as it is.
    fn is_logged(&self, lblk: &u32) -> bool {
        self.logged.get(lblk).is_some_and(|(_, current)| *current)
    }

    /// What is dirty is to go home at `due` at the latest; `None` is never.
    fn is_due_at(&mut self, due: Option<Instant>) {
        self.due = match (self.due, due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// No transaction waits for the map any more.
    fn not_ordered(&mut self) {
        self.ordered = None;
        self.ordered_before = false;
    }
}

impl Default for DirtyData {
    fn default() -> DirtyData {
        DirtyData {
            flush: Mutex::new(Rank::DataFlush, ()),
            state: Mutex::new(Rank::InodeLeaf, State::default()),
            failures: Failures::default(),
        }
    }
}

impl DirtyData {
    /// Whether there is no dirty block, nor one on its way home.
    pub(crate) fn is_clean(&self) -> bool {
        let s = self.state.lock();
        s.blocks.is_empty() && s.in_flight == 0
    }

    /// Whether nothing would be lost with the inode: no dirty block, no lost one to hide, and no
    /// failure to tell of.
    pub(crate) fn may_leave(&self) -> bool {
        self.is_clean() && self.state.lock().lost.is_empty() && !self.failures.is_pending()
    }

    /// The new blocks whose data could not be written, but for those that have newer data. The
    /// inode's lock is held, so there will be no more of that.
    pub(super) fn take_lost(&self) -> BTreeSet<u32> {
        let mut s = self.state.lock();
        let mut lost = std::mem::take(&mut s.lost);
        lost.retain(|lblk| match s.blocks.get_mut(lblk) {
            Some(dirty) => {
                dirty.fresh = true;
                false
            }
            None => true,
        });
        lost
    }

    fn has_blocks(&self) -> bool {
        !self.state.lock().blocks.is_empty()
    }

    /// Whether a dirty block is old enough to go home.
    fn is_due(&self) -> bool {
        self.state
            .lock()
            .due
            .is_some_and(|due| due <= Instant::now())
    }
}

/// Why writing home failed.
enum HomeError {
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

/// The dirty data of a file that no record holds.
pub(super) struct Unlogged {
    /// File block, and its content; `None` if it is too much.
    pub(super) pages: Option<Vec<(u32, BlockNr, PageRef)>>,
    /// A record that is still alive holds older content of one of them, or of these blocks, which
    /// are not dirty any more: they went home for a transaction that is not valid, and a
    /// recovery would put the older content there.
    pub(super) superseding: bool,
    /// See `superseding`.
    pub(super) stale: Vec<u32>,
    /// What went home before may not be durable.
    pub(super) unflushed: bool,
}

/// All files with dirty data, and how much they have.
pub(crate) struct DirtySet {
    /// May hold numbers of files that are clean again.
    files: Mutex<BTreeSet<Ino>>,
    /// Those that go home behind their writers.
    streams: Mutex<BTreeSet<Ino>>,
    /// Those with new blocks whose data could not be written.
    pub(super) lost: Mutex<BTreeSet<Ino>>,
    /// Dirty bytes, those being written included.
    bytes: AtomicU64,
    /// Above this writers wait, bytes.
    bound: u64,
    /// For [`Fs::throttle_data`]: something was written home.
    room: Condvar,
    waiting: parking_lot::Mutex<()>,
}

impl DirtySet {
    pub(crate) fn new(opts: &FsOptions) -> DirtySet {
        DirtySet {
            files: Mutex::new(Rank::InodeLeaf, BTreeSet::new()),
            streams: Mutex::new(Rank::InodeLeaf, BTreeSet::new()),
            lost: Mutex::new(Rank::InodeLeaf, BTreeSet::new()),
            bytes: AtomicU64::new(0),
            bound: (opts.cache_bytes / 2).max(256 << 10),
            room: Condvar::new(),
            waiting: parking_lot::Mutex::new(()),
        }
    }

    /// Dirty bytes now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Whether there is something to be looked at again.
    pub(super) fn needs_care(&self) -> bool {
        self.bytes() > 0 || !self.lost.lock().is_empty()
    }

    /// From here on data is written home without waiting for its age.
    pub(crate) fn much(&self) -> u64 {
        self.bound / 2
    }

    fn less(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        let _waiting = self.waiting.lock();
        self.room.notify_all();
    }

    /// Waits until there are fewer dirty bytes than the bound, at most `longest`.
    pub(crate) fn wait_for_room(&self, longest: Duration) {
        let mut waiting = self.waiting.lock();
        if self.bytes() > self.bound {
            self.room.wait_for(&mut waiting, longest);
        }
    }

    /// Whether writers have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() > self.bound
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
    lblk: u32,
    dirty: Dirty,
    /// The snapshot that is written.
    page: PageRef,
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
        let at = self.locks.len().checked_sub(1)?;
        let mut s = self.locks.get(at)?.0.dirty.state.lock();
        if s.blocks.is_empty() || from > last {
            return None;
        }
        let mut rest = s.blocks.split_off(&from);
        let mut next = None;
        let mut taken = 0;
        while let Some(entry) = rest.first_entry() {
            if *entry.key() > last {
                break;
            }
            if taken >= room {
                next = Some(*entry.key());
                break;
            }
            let (lblk, dirty) = entry.remove_entry();
            if let Some(page) = dirty.block.page() {
                self.blocks.push(Taken {
                    file: at,
                    lblk,
                    dirty,
                    page,
                });
                taken += 1;
            }
        }
        s.blocks.append(&mut rest);
        s.in_flight += taken;
        next
    }
}

impl Fs {
    /// Makes blocks dirty that were just changed, given in ascending order. With `h`: they were
    /// just allocated, or converted from unwritten, in that handle (data.D4).
    pub(super) fn add_dirty(&self, inode: &Inode, blocks: Vec<Changed>, h: Option<&Handle<'_>>) {
        if blocks.is_empty() {
            return;
        }
        let added = if h.is_some() { blocks.len() as u64 } else { 0 };
        let expire = self.opts.dirty_expire;
        // No commit waits for these, but what it makes reachable is to be there soon.
        let soon = added > 0 && self.opts.journal.data() == DataMode::Writeback;
        let h = h.filter(|_| self.opts.journal.data() != DataMode::Writeback);
        let (mut new, first, is_stream);
        {
            let mut s = inode.dirty.state.lock();
            first = s.blocks.is_empty();
            new = 0;
            for Changed { lblk, block, fresh } in blocks {
                self.cache.dirtied(block.nr());
                if let Some((_, current)) = s.logged.get_mut(&lblk) {
                    *current = false;
                }
                match s.blocks.entry(lblk) {
                    Entry::Occupied(mut dirty) => dirty.get_mut().block = block,
                    Entry::Vacant(place) => {
                        place.insert(Dirty { block, fresh });
                        new += 1;
                    }
                }
            }
            if s.due.is_none() || soon {
                let age = if soon { self.early_age() } else { expire };
                s.is_due_at(Instant::now().checked_add(age));
            }
            s.behind += added;
            is_stream = s.behind * u64::from(self.geo.block_size) >= BEHIND_BYTES;
            if is_stream {
                s.behind = 0;
            }
            if let Some(h) = h {
                let point = h.point();
                s.ordered_before |= s.ordered.as_ref().is_some_and(|old| *old != point);
                s.ordered = Some(point);
            }
        }
        let set = &self.data.dirty;
        let before = set
            .bytes
            .fetch_add(new * u64::from(self.geo.block_size), Ordering::SeqCst);
        if first {
            set.files.lock().insert(inode.ino);
        }
        if let Some(h) = h {
            h.order_data(inode.ino);
        }
        if is_stream {
            set.streams.lock().insert(inode.ino);
        }
        if is_stream || before > set.much() || !self.data.is_watched() {
            self.wake_flusher();
        }
    }

    /// The age at which data goes home that has waited elsewhere, or that a commit may get ahead
    /// of.
    pub(super) fn early_age(&self) -> Duration {
        let commit = Duration::from_secs(u64::from(self.opts.commit_secs));
        commit.min(self.opts.dirty_expire)
    }

    /// What was written to the file last had been dirty for a while before it came here, in the
    /// kernel's page cache: it goes home no later than with the next commit, in place of
    /// waiting for its full age again.
    pub fn write_back_early(&self, f: &OpenRef) {
        let due = Instant::now().checked_add(self.early_age());
        let mut s = f.inode.dirty.state.lock();
        if !s.blocks.is_empty() {
            s.is_due_at(due);
        }
    }

    /// Forgets the dirty blocks of a range of file blocks that is about to be freed, or to become
    /// unwritten, in `h` (data.D3).
    ///
    /// # Errors
    /// The journal's, which has stopped then.
    pub(super) fn drop_dirty(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        range: Range<u64>,
    ) -> Result<()> {
        let (Ok(from), last) = (
            u32::try_from(range.start),
            u32::try_from(range.end).unwrap_or(u32::MAX),
        ) else {
            return Ok(());
        };
        let other = {
            let mut s = inode.dirty.state.lock();
            s.lost.retain(|lblk| !(from..last).contains(lblk));
            if s.in_flight == 0 && s.blocks.range(from..last).next().is_none() {
                return Ok(());
            }
            let is_before = s.ordered_before && !self.opts.canary.drop_awaited;
            is_before || s.ordered.as_ref().is_some_and(|p| *p != h.point())
        };
        // An earlier transaction that allocated these blocks may commit without this one, and then
        // they are reachable with what they held before.
        if other {
            match self.flush_and_tell(&[inode]) {
                // It is to be gone anyway.
                Ok(()) | Err(HomeError::Data(_)) => {}
                Err(HomeError::Journal(e)) => return Err(e.into()),
            }
        }
        let _flush = inode.dirty.flush.lock();
        let dropped = {
            let mut s = inode.dirty.state.lock();
            let mut gone = s.blocks.split_off(&from);
            let mut kept = gone.split_off(&last);
            s.blocks.append(&mut kept);
            s.lost.retain(|lblk| !(from..last).contains(lblk));
            if s.blocks.is_empty() {
                s.due = None;
                s.not_ordered();
            }
            gone.len() as u64
        };
        self.data
            .dirty
            .less(dropped * u64::from(self.geo.block_size));
        Ok(())
    }

    /// The dirty data of the file that no record holds, up to `most` blocks. Nothing becomes dirty
    /// meanwhile: the caller holds the inode's lock.
    pub(super) fn unlogged(&self, inode: &Inode, most: usize) -> Unlogged {
        // Nothing is on its way home.
        let _flush = inode.dirty.flush.lock();
        let mut s = inode.dirty.state.lock();
        let s = &mut *s;
        s.logged
            .retain(|_, (record, _)| self.journal.is_alive(*record));
        s.unflushed = s.unflushed.filter(|mark| !self.journal.is_flushed(*mark));
        let mut out = Unlogged {
            pages: Some(Vec::new()),
            superseding: s.logged.values().any(|(_, current)| !current),
            stale: Vec::new(),
            unflushed: s.unflushed.is_some(),
        };
        let stale = s
            .logged
            .iter()
            .filter(|(lblk, (_, current))| !current && !s.blocks.contains_key(lblk));
        out.stale.extend(stale.map(|(lblk, _)| *lblk));
        for (lblk, Dirty { block, .. }) in &s.blocks {
            if s.is_logged(lblk) {
                continue;
            }
            let full = out.pages.as_ref().is_some_and(|pages| pages.len() >= most);
            if full {
                out.pages = None;
            }
            if let (Some(pages), Some(page)) = (&mut out.pages, block.page()) {
                pages.push((*lblk, block.nr(), page));
            }
        }
        out
    }

    /// The record with this stamp holds these blocks as they are.
    pub(super) fn logged(&self, inode: &Inode, blocks: impl Iterator<Item = u32>, record: Stamp) {
        let mut s = inode.dirty.state.lock();
        s.logged.extend(blocks.map(|lblk| (lblk, (record, true))));
    }

    /// Writes home what is dirty now in these files, in ascending order of their numbers. The
    /// device has it on return; no flush.
    ///
    /// # Errors
    /// A failed write. Each file remembers its own for its openers.
    pub(super) fn flush_files(&self, files: &[&Inode]) -> Result<()> {
        Ok(self.flush_and_tell(files)?)
    }

    fn flush_and_tell(&self, files: &[&Inode]) -> Result<(), HomeError> {
        let device = &**self.cache.device();
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
            let (last, in_flight) = {
                let mut s = inode.dirty.state.lock();
                // All that is dirty now goes; what comes later has an age of its own.
                s.due = None;
                (s.blocks.last_key_value().map(|(k, _)| *k), s.in_flight > 0)
            };
            // What becomes dirty behind this is no business of this call, so it ends.
            let Some(last) = last else {
                // Somebody else may be writing it: wait for that.
                if in_flight {
                    batch.lock(inode);
                }
                continue;
            };
            let mut from = Some(0);
            while let Some(at) = from {
                let gives_way = self.gives_way(priority);
                if gives_way && batch.locks.is_empty() {
                    self.data.precedence.give_way();
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
            self.journal.abort(e.clone());
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
        (bytes / self.geo.block_size as usize).max(1)
    }

    /// Has `send` write a batch, and lets its files go. What could not be written is not dirty any
    /// more (as in the kernel): the file remembers the failure.
    fn submit(&self, batch: &mut Batch<'_>, send: &mut Submit<'_>) -> Result<(), HomeError> {
        let Batch { locks, mut blocks } = std::mem::take(batch);
        blocks.sort_unstable_by_key(|taken| taken.dirty.block.nr());
        let list = self.home_writes(blocks.iter());
        let written = match list.is_empty() {
            true => Ok(()),
            false => send(&list),
        };
        if written.is_ok() {
            let home = blocks.iter().map(|taken| taken.dirty.block.nr());
            self.cache.written(home);
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
            if let Err(e) = home {
                result = HomeError::and(result, Err(self.not_home(inode, own(), e)));
            }
            let mut s = inode.dirty.state.lock();
            s.in_flight -= count;
            if count > 0 {
                s.unflushed = Some(self.journal.flush_mark());
            }
            if s.blocks.is_empty() {
                s.not_ordered();
            }
        }
        self.data
            .dirty
            .less(blocks.len() as u64 * u64::from(self.geo.block_size));
        result
    }

    /// Blocks, given in ascending order, as writes.
    fn home_writes<'b>(&self, blocks: impl Iterator<Item = &'b Taken>) -> WriteList<'b> {
        let size = u64::from(self.geo.block_size);
        blocks
            .map(|taken| (taken.dirty.block.nr() * size, &taken.page[..]))
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
            false => part.submit(&**self.cache.device()),
        }
    }

    /// Takes note of data that could not be written home, and says whom that concerns.
    fn not_home<'b>(
        &self,
        inode: &Inode,
        blocks: impl Iterator<Item = &'b Taken>,
        e: BlockError,
    ) -> HomeError {
        let aborts = self.opts.data_err == OnDataError::Abort
            && self.opts.journal.data() == DataMode::Ordered;
        let (mut is_promised, mut lost) = (false, false);
        {
            let mut s = inode.dirty.state.lock();
            for taken in blocks {
                // The next commit ends a record that is alive, and with it the only copy of what
                // was synced.
                let record = s.logged.get(&taken.lblk);
                is_promised |= record.is_some_and(|(stamp, _)| self.journal.is_alive(*stamp));
                if taken.dirty.fresh {
                    lost = true;
                    s.lost.insert(taken.lblk);
                }
            }
        }
        if lost {
            self.data.dirty.lost.lock().insert(inode.ino);
            self.wake_flusher();
        }
        let e = FsError::from(e);
        self.data.failures.add(e.clone());
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
        let device = &**self.cache.device();
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
        let inos: Vec<Ino> = self.data.dirty.files.lock().iter().copied().collect();
        let mut old = Vec::new();
        for ino in inos {
            match self.inodes.find(ino).filter(|f| f.dirty.has_blocks()) {
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
        let streams = std::mem::take(&mut *self.data.dirty.streams.lock());
        for ino in streams {
            self.write_home(&[ino], WritebackPriority::Background)?;
        }
        Ok(())
    }

    /// Takes a clean file off the list of those with dirty data.
    fn forget_clean(&self, ino: Ino) {
        let files = &self.data.dirty.files;
        files.lock().remove(&ino);
        // It may have become dirty meanwhile: `add_dirty` fills the map first and then enters the
        // file, so either it is dirty here or it is entered after this.
        if self.inodes.find(ino).is_some_and(|f| f.dirty.has_blocks()) {
            files.lock().insert(ino);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::channel;

    use stetfs_block::{Fault, FaultInjector, Op};
    use stetfs_testkit::Mkfs;

    use super::*;
    use crate::testing::{ROOT, mkfs, open};
    use crate::types::{FallocateMode, FsOptions, ROOT_INO};

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
            .create(&ROOT, ROOT_INO, b"stream", 0o644, 0, libc::O_RDWR)
            .unwrap();
        let write = |mib: u64| fs.write(&ROOT, &file, mib << 20, &[7; 1 << 20], false);
        for mib in 0..BEHIND_BYTES >> 20 {
            assert!(fs.data.dirty.streams.lock().is_empty());
            write(mib).unwrap();
        }
        let patience = Instant::now() + Duration::from_secs(30);
        while fs.data.dirty.bytes() > 0 {
            assert!(Instant::now() < patience, "{}", fs.data.dirty.bytes());
            std::thread::sleep(Duration::from_millis(1));
        }
        // What is overwritten may be overwritten again.
        for mib in 0..BEHIND_BYTES >> 20 {
            write(mib).unwrap();
        }
        assert_eq!(fs.data.dirty.bytes(), BEHIND_BYTES);
    }

    /// An earlier transaction may have made blocks reachable, so their data goes home before they
    /// are freed. That it cannot is no reason not to free them.
    #[test]
    fn what_cannot_be_written_can_be_freed() {
        let device = Arc::new(FaultInjector::new(mkfs(32, &Mkfs::blocks(4096))));
        let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
        let (attr, file) = fs
            .create(&ROOT, ROOT_INO, b"file", 0o644, 0, libc::O_RDWR)
            .unwrap();
        fs.write(&ROOT, &file, 0, &[1; 8192], false).unwrap();
        let inode = fs.iget(attr.ino).unwrap();
        inode.dirty.state.lock().ordered_before = true;
        device.add(Fault::fail(Op::Write, libc::EIO));
        let punch = FallocateMode::PunchHole;
        fs.fallocate(&ROOT, &file, punch, 0, 4096).unwrap();
        assert!(device.hits() > 0 && fs.writable().is_ok());
        assert!(file.untold_failure().is_some());
        device.clear();
        drop((inode, file));
        fs.unmount().unwrap();
    }

    /// A transaction that commits has made blocks reachable; before their data is home, a later one
    /// writes to the file and frees them. Should only the first survive, they hold the data.
    /// (data.D3, data.D4)
    #[test]
    fn a_commit_under_way_keeps_the_data_that_it_waits_for() {
        assert!(punched_beside_a_commit(false), "freed data was lost");
        assert!(!punched_beside_a_commit(true), "the fault loses it");
    }

    /// Whether the data is there after the crash.
    fn punched_beside_a_commit(drop_awaited: bool) -> bool {
        let device = mkfs(32, &Mkfs::blocks(4096));
        let opts = FsOptions {
            canary: stetfs_journal::Canary {
                drop_awaited,
                ..Default::default()
            },
            ..FsOptions::default()
        };
        let fs = crate::fs::Fs::open(device.clone(), opts).unwrap();
        let create = |name: &[u8]| {
            fs.create(&ROOT, ROOT_INO, name, 0o644, 0, libc::O_RDWR)
                .unwrap()
        };
        let (blocker, first) = create(b"first");
        let (attr, file) = create(b"second");
        assert!(blocker.ino < attr.ino, "written home in this order");
        fs.write(&ROOT, &first, 0, &[1; 4096], false).unwrap();
        fs.write(&ROOT, &file, 0, &[2; 8192], false).unwrap();
        let before = fs.journal.begin(1).unwrap().point();

        let (held, is_held) = channel();
        let (go, may_go) = channel::<()>();
        let (done, is_done) = channel();
        std::thread::scope(|scope| {
            let inode = fs.iget(blocker.ino).unwrap();
            scope.spawn(move || {
                let _flush = inode.dirty.flush.lock();
                held.send(()).unwrap();
                may_go.recv().unwrap();
            });
            is_held.recv().unwrap();
            fs.sync_all(Box::new(move |result| done.send(result).unwrap()));
            // Now in the next transaction, with the first waiting for `blocker`.
            while fs.journal.begin(1).unwrap().point() == before {
                std::thread::yield_now();
            }
            fs.write(&ROOT, &file, 8192, &[3; 4096], false).unwrap();
            let punch = FallocateMode::PunchHole;
            fs.fallocate(&ROOT, &file, punch, 0, 4096).unwrap();
            go.send(()).unwrap();
            is_done.recv().unwrap().unwrap();
        });
        let crashed = std::sync::Arc::new(device.fork());

        let again = open(&crashed);
        let attr = again.lookup(ROOT_INO, b"second").unwrap();
        let file = again.open_inode(&ROOT, attr.ino, libc::O_RDONLY).unwrap();
        let mut data = vec![0; 12288];
        let n = again.read(&file, 0, &mut data).unwrap();
        assert_eq!(n, 8192);
        data[..n].iter().all(|b| *b == 2)
    }
}
