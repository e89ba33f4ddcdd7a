//! Dirty data: blocks of file data that are newer than their homes, and writing them there.
//!
//! Lock order here: a file's flush lock (`Rank::DataFlush`; several in ascending inode order), then
//! the map of a file (`Rank::InodeLeaf`). Whoever writes home holds nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Condvar;
use stetfs_block::WriteList;
use stetfs_cache::PageRef;
use stetfs_journal::{Block, BlockNr, CommitPoint, FlushMark, Handle};
use stetfs_sync::{Mutex, MutexGuard, Rank};

use super::precedence::Haste;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::types::{DataMode, FsOptions, Ino};

/// Bytes written home in one batch.
const BATCH_BYTES: usize = 8 << 20;
/// The same where syncs go before: one that comes waits behind no more.
const SMALL_BATCH_BYTES: usize = 1 << 20;

/// A file that has got so many bytes of new dirty data goes home behind its writer (BSD: clustered writes): the device works
/// while there is more to come, and whoever commits finds little left to do.
const BEHIND_BYTES: u64 = 16 << 20;

/// The dirty data of one file (invariants D2, D3).
pub(crate) struct DirtyData {
    /// Held while blocks are written home, and while they are taken out to be dropped.
    flush: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By file block.
    blocks: BTreeMap<u32, Arc<Block>>,
    /// Blocks taken out and being written.
    in_flight: usize,
    /// Blocks that were new when they became dirty, since the file was last sent after its writer.
    behind: u64,
    /// When the oldest became dirty.
    since: Option<Instant>,
    /// The transaction that last made blocks of this map reachable; it commits only after them.
    ordered: Option<CommitPoint>,
    /// So did an earlier one, which may be committing and still wait for its part of the map.
    ordered_before: bool,
    /// Blocks that a file-level record holds, until this is valid. `true`: what is dirty there is what it holds.
    logged: BTreeMap<u32, (CommitPoint, bool)>,
    /// Blocks went home since the device was last known to be flushed.
    unflushed: Option<FlushMark>,
    /// Home writes that failed, counted, and the last failure (the kernel: `errseq_t`).
    failed: u64,
    error: Option<FsError>,
}

impl State {
    /// A record holds the block as it is.
    fn is_logged(&self, lblk: &u32) -> bool {
        self.logged.get(lblk).is_some_and(|(_, current)| *current)
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
        }
    }
}

impl DirtyData {
    /// Whether nothing would be lost with the inode: no dirty block, and no failure to tell of.
    pub(crate) fn is_clean(&self) -> bool {
        let s = self.state.lock();
        s.blocks.is_empty() && s.in_flight == 0 && s.error.is_none()
    }

    /// What to compare later failures with: an opener learns of those that come after it.
    pub(crate) fn failures(&self) -> u64 {
        self.state.lock().failed
    }

    /// The last failure, if there was one after `seen`; `seen` is brought up to date.
    pub(crate) fn failure_since(&self, seen: &AtomicU64) -> Option<FsError> {
        let s = self.state.lock();
        let before = seen.swap(s.failed, Ordering::AcqRel);
        (before < s.failed).then(|| s.error.clone()).flatten()
    }

    /// When the oldest dirty block became so.
    fn since(&self) -> Option<Instant> {
        self.state.lock().since
    }
}

/// The dirty data of a file that no record holds.
pub(super) struct Unlogged {
    /// File block, and its content; `None` if it is too much.
    pub(super) pages: Option<Vec<(u32, BlockNr, PageRef)>>,
    /// A record that is still alive holds older content of one of them, or of these blocks, which are not dirty any more: they
    /// went home for a transaction that is not valid, and a recovery would put the older content there.
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
            bytes: AtomicU64::new(0),
            bound: (opts.cache_bytes / 2).max(256 << 10),
            room: Condvar::new(),
            waiting: parking_lot::Mutex::new(()),
        }
    }

    /// Dirty bytes now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
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

/// Blocks on their way home, and the locks that keep D2 and D3 meanwhile.
struct Batch<'a> {
    locks: Vec<(&'a Inode, MutexGuard<'a, ()>)>,
    /// Index into `locks`, block, snapshot.
    blocks: Vec<(usize, Arc<Block>, PageRef)>,
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
            let block = entry.remove();
            if let Some(page) = block.page() {
                self.blocks.push((at, block, page));
                taken += 1;
            }
        }
        s.blocks.append(&mut rest);
        s.in_flight += taken;
        if s.blocks.is_empty() {
            s.since = None;
        }
        next
    }
}

impl Fs {
    /// Makes blocks dirty that were just changed, given in ascending order. With `h`: they were just
    /// allocated, or converted from unwritten, in that handle (D4).
    pub(super) fn add_dirty(
        &self,
        inode: &Inode,
        blocks: Vec<(u32, Arc<Block>)>,
        h: Option<&Handle<'_>>,
    ) {
        if blocks.is_empty() {
            return;
        }
        let added = if h.is_some() { blocks.len() as u64 } else { 0 };
        let h = h.filter(|_| self.opts.data != DataMode::Writeback);
        let (mut new, first, is_stream);
        {
            let mut s = inode.dirty.state.lock();
            first = s.blocks.is_empty();
            new = 0;
            for (lblk, block) in blocks {
                if let Some((_, current)) = s.logged.get_mut(&lblk) {
                    *current = false;
                }
                if s.blocks.insert(lblk, block).is_none() {
                    new += 1;
                }
            }
            s.since.get_or_insert_with(Instant::now);
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
            .fetch_add(new * u64::from(self.geo.block_size), Ordering::AcqRel);
        if first {
            set.files.lock().insert(inode.ino);
        }
        if let Some(h) = h {
            h.order_data(inode.ino);
        }
        if is_stream {
            set.streams.lock().insert(inode.ino);
        }
        if is_stream || before > set.much() {
            self.wake_flusher();
        }
    }

    /// Forgets the dirty blocks of a range of file blocks that is about to be freed, or to become
    /// unwritten, in `h` (D3).
    ///
    /// # Errors
    /// A failed home write of data that another transaction waits for.
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
            let s = inode.dirty.state.lock();
            if s.in_flight == 0 && s.blocks.range(from..last).next().is_none() {
                return Ok(());
            }
            s.ordered_before || s.ordered.as_ref().is_some_and(|p| *p != h.point())
        };
        // An earlier transaction that allocated these blocks may commit without this one, and then
        // they are reachable with what they held before.
        if other {
            self.flush_files(&[inode])?;
        }
        let _flush = inode.dirty.flush.lock();
        let dropped = {
            let mut s = inode.dirty.state.lock();
            let mut gone = s.blocks.split_off(&from);
            let mut kept = gone.split_off(&last);
            s.blocks.append(&mut kept);
            if s.blocks.is_empty() {
                s.since = None;
                s.not_ordered();
            }
            gone.len() as u64
        };
        self.data
            .dirty
            .less(dropped * u64::from(self.geo.block_size));
        Ok(())
    }

    /// The dirty data of the file that no record holds, up to `most` blocks. Nothing becomes dirty meanwhile: the caller
    /// holds the inode's lock.
    pub(super) fn unlogged(&self, inode: &Inode, most: usize) -> Unlogged {
        // Nothing is on its way home.
        let _flush = inode.dirty.flush.lock();
        let mut s = inode.dirty.state.lock();
        let s = &mut *s;
        s.logged
            .retain(|_, (point, _)| !self.journal.is_valid(point));
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
        for (lblk, block) in &s.blocks {
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

    /// A record that is alive until `point` is valid holds these blocks as they are.
    pub(super) fn logged(
        &self,
        inode: &Inode,
        blocks: impl Iterator<Item = u32>,
        point: &CommitPoint,
    ) {
        let mut s = inode.dirty.state.lock();
        for lblk in blocks {
            s.logged.insert(lblk, (point.clone(), true));
        }
    }

    /// Writes home what is dirty now in these files, in ascending order of their numbers. The device
    /// has it on return; no flush.
    ///
    /// # Errors
    /// The first failed write. Each file remembers its own for its openers.
    pub(super) fn flush_files(&self, files: &[&Inode]) -> Result<()> {
        self.flush_files_and(files, &WriteList::new(), Haste::Awaited)
    }

    /// The same, with other writes in the last batch.
    fn flush_files_and(&self, files: &[&Inode], also: &WriteList<'_>, haste: Haste) -> Result<()> {
        let mut batch = Batch {
            locks: Vec::new(),
            blocks: Vec::new(),
        };
        let mut result = Ok(());
        for inode in files {
            // What becomes dirty behind this is no business of this call, so it ends.
            let Some(last) = inode
                .dirty
                .state
                .lock()
                .blocks
                .last_key_value()
                .map(|(k, _)| *k)
            else {
                // Somebody else may be writing it: wait for that.
                if inode.dirty.state.lock().in_flight > 0 {
                    batch.lock(inode);
                }
                continue;
            };
            let mut from = Some(0);
            while let Some(at) = from {
                let gives_way = self.gives_way(haste);
                if gives_way && batch.locks.is_empty() {
                    self.data.precedence.give_way();
                }
                let room = self.batch_blocks(gives_way);
                batch.lock(inode);
                from = batch.take(at, last, room.saturating_sub(batch.blocks.len()));
                if batch.blocks.len() >= room {
                    result = result.and(self.submit(&mut batch, &WriteList::new()));
                }
            }
        }
        result.and(self.submit(&mut batch, also))
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

    /// Writes a batch, with `also`, and lets its files go.
    fn submit(&self, batch: &mut Batch<'_>, also: &WriteList<'_>) -> Result<()> {
        let Batch { locks, blocks } = std::mem::replace(
            batch,
            Batch {
                locks: Vec::new(),
                blocks: Vec::new(),
            },
        );
        let mut order: Vec<_> = blocks.iter().collect();
        order.sort_unstable_by_key(|(_, block, _)| block.nr());
        let mut list = WriteList::new();
        for (_, block, page) in order {
            list.push(block.nr() * u64::from(self.geo.block_size), &page[..]);
        }
        list.extend(also);
        let result = if list.is_empty() {
            Ok(())
        } else {
            list.submit(&**self.cache.device())
        };
        let result = result.map_err(FsError::from);
        let mut each = vec![0usize; locks.len()];
        for (at, ..) in &blocks {
            each[*at] += 1;
        }
        for ((inode, _lock), taken) in locks.iter().zip(&each) {
            let mut s = inode.dirty.state.lock();
            s.in_flight -= taken;
            if *taken > 0 {
                s.unflushed = Some(self.journal.flush_mark());
            }
            match &result {
                Ok(()) if s.blocks.is_empty() => s.not_ordered(),
                Err(e) if *taken > 0 => {
                    s.failed += 1;
                    s.error = Some(e.clone());
                }
                _ => {}
            }
        }
        self.data
            .dirty
            .less(blocks.len() as u64 * u64::from(self.geo.block_size));
        result
    }

    /// Writes home the dirty data of these inodes, and `also` in the last batch.
    ///
    /// # Errors
    /// As [`flush_files`](Self::flush_files).
    pub(super) fn flush_inodes(
        &self,
        inos: &[Ino],
        also: &WriteList<'_>,
        haste: Haste,
    ) -> Result<()> {
        let inos: BTreeSet<Ino> = inos.iter().copied().collect();
        let files: Vec<Arc<Inode>> = inos
            .into_iter()
            .filter_map(|ino| self.inodes.find(ino))
            .collect();
        let files: Vec<&Inode> = files.iter().map(|f| &**f).collect();
        self.flush_files_and(&files, also, haste)
    }

    /// Writes home the dirty data of files that have some since before `until`, in the background.
    ///
    /// # Errors
    /// As [`flush_files`](Self::flush_files).
    pub(super) fn flush_old(&self, until: Instant) -> Result<()> {
        let inos: Vec<Ino> = self.data.dirty.files.lock().iter().copied().collect();
        let mut old = Vec::new();
        for ino in inos {
            let file = self.inodes.find(ino);
            match file.as_ref().map(|f| f.dirty.since()) {
                Some(Some(since)) if since <= until => old.extend(file),
                Some(Some(_)) => {}
                _ => self.forget_clean(ino),
            }
        }
        let old: Vec<&Inode> = old.iter().map(|f| &**f).collect();
        self.flush_files_and(&old, &WriteList::new(), Haste::Background)
    }

    /// Writes home, in the background, what files have got that are written as streams.
    ///
    /// # Errors
    /// As [`flush_files`](Self::flush_files).
    pub(super) fn flush_streams(&self) -> Result<()> {
        let streams = std::mem::take(&mut *self.data.dirty.streams.lock());
        for ino in streams {
            self.flush_inodes(&[ino], &WriteList::new(), Haste::Background)?;
        }
        Ok(())
    }

    /// Takes a clean file off the list of those with dirty data.
    fn forget_clean(&self, ino: Ino) {
        let files = &self.data.dirty.files;
        files.lock().remove(&ino);
        // It may have become dirty meanwhile: `add_dirty` fills the map first and then enters the
        // file, so either it is dirty here or it is entered after this.
        if self
            .inodes
            .find(ino)
            .is_some_and(|f| f.dirty.since().is_some())
        {
            files.lock().insert(ino);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::channel;

    use stetfs_testkit::Mkfs;

    use super::*;
    use crate::testing::{ROOT, mkfs, open};
    use crate::types::{FallocateMode, ROOT_INO};

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

    /// A transaction that commits has made blocks reachable; before their data is home, a later one
    /// writes to the file and frees them. Should only the first survive, they hold the data.
    #[test]
    fn a_commit_under_way_keeps_the_data_that_it_waits_for() {
        let device = mkfs(32, &Mkfs::blocks(4096));
        let fs = open(&device);
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
        assert!(data[..n].iter().all(|b| *b == 2), "freed data was lost");
    }
}
