//! The façade of the journal: all that the file system sees of it.

use std::sync::{Arc, Weak};

use stetfs_ondisk::num::count32;
use stetfs_sync::plain::{
    Mutex, mpsc,
    thread::{self, JoinHandle},
};

use crate::canary::Canary;
use crate::engine::Engine;
use crate::engine::config::{Done, FileState, JournalConfig, Wait};
use crate::error::{JournalError, Result};
use crate::handle::Handle;
use crate::head::{Block, Cache};
use crate::ids::{CommitPoint, Credits, Ino, Near};
use crate::policy::Scheme;
use crate::stats::{JournalLatency, JournalStats};

/// A running journal. Dropping it without [`shutdown`](Journal::shutdown) is a crash: nothing
/// more is written.
pub struct Journal {
    engine: Arc<Engine>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Journal {
    /// Starts a journal over an empty (recovered) log.
    ///
    /// # Errors
    /// `Aborted` if a thread cannot be started; `Unsupported` if a ring is too small for any
    /// transaction.
    pub fn start(cache: Arc<Cache>, scheme: Scheme, config: JournalConfig) -> Result<Arc<Journal>> {
        let engine = Engine::new(cache, scheme, config)?;
        let journal = Journal {
            engine: Arc::clone(&engine),
            threads: Mutex::new(Vec::new()),
        };
        for (name, run) in engine.threads() {
            let engine = Arc::clone(&engine);
            let thread = thread::Builder::new()
                .name(name.into())
                .spawn(move || run(&engine));
            let thread = thread.map_err(|e| {
                JournalError::Aborted(format!("cannot start the journal's thread {name}: {e}"))
            })?;
            journal.threads.lock().push(thread);
        }
        Ok(Arc::new(journal))
    }

    /// A journal that takes no changes, for a volume that is opened read-only, with or without a
    /// log.
    pub fn read_only(cache: Arc<Cache>) -> Result<Arc<Journal>> {
        let codec = crate::jbd2::Jbd2Codec {
            config: stetfs_ondisk::jbd2::Config {
                block_size: count32(cache.block_size()),
                wide: true,
                csum: stetfs_ondisk::jbd2::superblock::Csum::None,
                seed: 0,
            },
            uuid: [0; 16],
            async_commit: false,
            canary: Canary::default(),
        };
        let scheme = Scheme {
            ordering: Box::new(crate::policy::OneLane),
            codec: Box::new(codec),
            media: Vec::new(),
            home: Box::new(crate::policy::CopyHome),
            records: None,
        };
        Journal::start(cache, scheme, JournalConfig::default())
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// For tests: threads of this journal wait at `place` as long as the hold lives. Places are the
    /// calls of `Base::point`, which does nothing in release builds.
    pub fn hold(&self, place: &'static str) -> stetfs_sync::Hold {
        stetfs_sync::Hold::at(&*self.engine.base, place)
    }

    /// Registers the file system. Only the first call counts.
    pub fn attach(&self, fs: Weak<dyn FileState>) {
        self.engine.base.attach(fs);
    }

    /// Opens a handle that may change `need` blocks. May wait for a snapshot to be taken or for
    /// room; call [`throttle`](Self::throttle) before taking locks to make that rare.
    ///
    /// # Errors
    /// `TooLarge` if no transaction can hold so much; `Aborted` once the journal stopped.
    pub fn begin(&self, need: Credits) -> Result<Handle<'_>> {
        self.begin_in(None, need)
    }

    /// As [`begin`](Self::begin), for changes in a neighbourhood: the scheme may give each a lane.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_near(&self, near: Near, need: Credits) -> Result<Handle<'_>> {
        self.begin_in(Some(near), need)
    }

    fn begin_in(&self, near: Option<Near>, need: Credits) -> Result<Handle<'_>> {
        let held = stetfs_sync::hold(stetfs_sync::Rank::Handle, false);
        let margin = self.engine.lanes.margin();
        let tx = self.engine.enter(need.saturating_add(margin), near)?;
        Ok(Handle::new(&self.engine, tx, near, need, margin, held))
    }

    /// The most credits one handle can have, in blocks.
    pub fn max_credits(&self) -> Credits {
        self.engine.max_credits()
    }

    /// Gives every later handle `margin` credits beyond what it asks for, which its
    /// [`Handle::credits_left`] does not show. They are for changes that any handle may make on the
    /// side.
    pub fn set_margin(&self, margin: Credits) {
        self.engine.lanes.set_margin(margin);
    }

    /// Commits all transactions up to a point. They are durable on return.
    ///
    /// # Errors
    /// The error of the failed commit: whether its changes are durable is then unknown.
    pub fn commit(&self, upto: &CommitPoint) -> Result<()> {
        let (tx, rx) = mpsc::sync_channel(1);
        self.sync(
            upto.clone(),
            Vec::new(),
            Wait::Deferred,
            Box::new(move |r| {
                let _ = tx.send(r);
            }),
        );
        rx.recv()
            .unwrap_or_else(|_| Err(self.engine.base.stop_error()))
    }

    /// Writes home the dirty data of the inodes in `data`, commits up to `upto` if that is not
    /// durable yet, flushes the device, then calls `done`. Requests that arrive while another is
    /// under way share the next commit and flush.
    pub fn sync(&self, upto: CommitPoint, data: Vec<Ino>, wait: Wait, done: Done) {
        self.engine.sync(upto, data, wait, done);
    }

    /// Commits everything that was changed before the call.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_all(&self) -> Result<()> {
        self.commit(&self.everything())
    }

    /// Whether a caller waits for a commit or a flush, or for room that a commit makes.
    pub fn is_awaited(&self) -> bool {
        self.waiting() > 0
    }

    /// The number of callers that wait for a commit or a flush, or for room that a commit makes.
    pub fn waiting(&self) -> u64 {
        self.engine.syncs.waiting()
    }

    /// The number of blocks that the running transactions have changed so far.
    pub fn running_blocks(&self) -> u64 {
        self.engine.lanes.running_blocks()
    }

    /// A point that covers every change made before the call.
    pub fn everything(&self) -> CommitPoint {
        self.engine.lanes.everything()
    }

    /// Waits until memory and log have room for more changes. Call it with no lock held.
    ///
    /// # Errors
    /// `Aborted` once the journal stopped.
    pub fn throttle(&self) -> Result<()> {
        self.engine.throttle()
    }

    /// Writes home everything that is committed.
    ///
    /// # Errors
    /// The error of the failed write; the journal stops.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint_all()
    }

    /// Commits, writes everything home, and leaves the log as [`shutdown`](Self::shutdown) does,
    /// but the journal stays usable: until [`wake`](Self::wake) a caller that begins a handle
    /// waits, and there is no room for a record (rest.R1).
    ///
    /// # Errors
    /// The first failure; the log then keeps what is not home, and stays in use.
    pub fn rest(&self) -> Result<()> {
        self.engine.go_to_rest(|| self.commit_all())
    }

    /// Marks the log as in use again, durably, before [`wake`](Self::wake) ends a
    /// [`rest`](Self::rest).
    ///
    /// # Errors
    /// The device's; the journal must not be used after it.
    pub fn resume(&self) -> Result<()> {
        self.engine.resume()
    }

    /// Ends a [`rest`](Self::rest), after [`resume`](Self::resume): callers that wait to begin a
    /// handle continue.
    pub fn wake(&self) {
        self.engine.open_gate();
    }

    /// Commits, writes everything home, empties the log and ends the threads. A second call does
    /// nothing.
    ///
    /// # Errors
    /// The first failure; the log then keeps what is not home.
    pub fn shutdown(&self) -> Result<()> {
        let result = self.engine.end(|| self.commit_all());
        self.join_threads();
        result
    }

    /// The error that stopped the journal, if one did.
    pub fn aborted(&self) -> Option<JournalError> {
        self.engine.base.stopped_by()
    }

    /// Stops the journal because of an error seen elsewhere, such as a failed write of file data.
    pub fn abort(&self, why: JournalError) {
        self.engine.base.stop(Some(why));
    }

    /// Sets the seconds between periodic commits (`commit=`).
    pub fn set_commit_secs(&self, secs: u32) {
        self.engine.syncs.set_period(secs);
    }

    /// Notes that a block could not be written home outside the journal: its next changes alone
    /// would not bring its home location up to date (changes.C1).
    pub fn is_unlike_home(&self, block: &Arc<Block>) {
        block.write().head().unlike_home = true;
    }

    /// Sets the bound on the memory that transactions and pending checkpoints hold, in bytes. Above
    /// it callers of [`throttle`](Self::throttle) wait until enough is home. The bound on a single
    /// transaction stays as the first value set it.
    pub fn set_memory(&self, bytes: u64) {
        self.engine.space.set_memory(bytes);
    }

    /// The codec's present decision and its reason, as text for people.
    pub fn codec_note(&self) -> Option<String> {
        self.engine.base.codec.note()
    }

    /// Counters.
    pub fn stats(&self) -> JournalStats {
        self.engine.base.counters.read()
    }

    /// The times that commits and checkpoints took.
    pub fn latency(&self) -> JournalLatency {
        self.engine.base.times.read()
    }

    /// The free log blocks and all log blocks, over all lanes.
    pub fn log_space(&self) -> (u64, u64) {
        self.engine.log_space()
    }

    fn join_threads(&self) {
        self.engine.quit();
        let me = thread::current().id();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // The last Arc may be dropped by one of the journal's own threads, through a callback.
            if thread.thread().id() != me {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.engine.base.stop(None);
        self.join_threads();
    }
}
