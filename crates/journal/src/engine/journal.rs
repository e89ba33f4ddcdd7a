//! A journal as others see it: what it is told, and what it asks of the file system.

use std::sync::{Arc, OnceLock, Weak};

use stetfs_block::WriteList;
use stetfs_ondisk::num::{count32, to_usize};
use stetfs_sync::plain::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    mpsc,
    thread::{self, JoinHandle},
};

use super::Inner;
use super::canary::Canary;
use super::checkpoint_list::CheckpointList;
use super::files::RecordedData;
use super::flush::SharedFlush;
use super::lane::{LaneState, check_rings};
use super::queue::Queue;
use super::spread::{CheckpointSignal, SyncTime};
use crate::error::{JournalError, Result};
use crate::handle::Handle;
use crate::head::Cache;
use crate::ids::{CommitPoint, Credits, Ino, Lane, Stamp};
use crate::policy::Scheme;
use crate::stats::{Counters, JournalLatency, JournalStats, Times};

/// The name of the thread that brings blocks home.
pub const CHECKPOINT_THREAD: &str = "stet-ckpt";

/// What the journal needs from the file system. All calls come from the journal's own threads,
/// with no lock held.
pub trait FileState: Send + Sync {
    /// Hands out all dirty data of these inodes, in batches: `send` gives each to the device, and
    /// says what became of it. No flush. Takes nothing that ranks before `Rank::DataFlush` and
    /// opens no handle; `send` is called with the files' flush locks held.
    ///
    /// # Errors
    /// Of data that the journal cannot go on without; it stops. Of other data that is not home the
    /// file system remembers who is to be told.
    fn hand_out(&self, inos: &[Ino], send: &mut Submit<'_>) -> Result<()>;
    /// The journal stopped: the file system turns read-only.
    fn aborted(&self, why: &JournalError);
}

/// Gives a batch of dirty data to the device: its places are bytes of the volume, in ascending
/// order. When it returns the device has them, or the error tells that some of them may not be
/// there.
pub type Submit<'a> = dyn FnMut(&WriteList<'_>) -> stetfs_block::Result<()> + 'a;

/// An answer that is given once, from a thread of the journal.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// How somebody waits for what he wants durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// By his own thread, which does the work if no other does: that is quicker than to have
    /// another do it. He is answered before the call returns, mostly, and holds no lock that a
    /// commit takes.
    Inline,
    /// His thread goes on, and a thread of the journal answers.
    Deferred,
}

/// How a journal runs.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// Seconds after which a transaction with changes commits by itself.
    pub commit_secs: u32,
    /// Flush the device at commits and checkpoints.
    pub barrier: bool,
    /// Bound of the memory that transactions and pending checkpoints hold, bytes.
    pub memory: u64,
    /// Stamps go on from here: above those in a log that is gone on with.
    pub first_stamp: Stamp,
    /// File-level records above this stamp stay alive, whatever commits, until
    /// [`Journal::release_horizon`]: they are being applied.
    pub hold_horizon: Option<Stamp>,
    /// Deliberate faults.
    pub canary: Canary,
}

impl Default for JournalConfig {
    fn default() -> JournalConfig {
        JournalConfig {
            commit_secs: 5,
            barrier: true,
            memory: 64 << 20,
            first_stamp: 0,
            hold_horizon: None,
            canary: Canary::default(),
        }
    }
}

/// A running journal. Dropping it without [`shutdown`](Journal::shutdown) is a crash: nothing
/// more is written.
pub struct Journal {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Journal {
    /// Starts a journal over an empty (recovered) log.
    ///
    /// # Errors
    /// Thread creation; `Unsupported` for a ring too small for any transaction.
    pub fn start(cache: Arc<Cache>, scheme: Scheme, config: JournalConfig) -> Result<Arc<Journal>> {
        let device = cache.device().clone();
        let Scheme {
            ordering,
            codec,
            media,
            home,
            records,
        } = scheme;
        let log = CheckpointList::new(&media, config.canary);
        let lanes = (0..).map(Lane).zip(media);
        let lanes = lanes.map(|(lane, medium)| LaneState::new(lane, medium));
        let lanes: Vec<LaneState> = lanes.collect();
        check_rings(&*codec, &lanes)?;
        let inner = Arc::new(Inner {
            device,
            cache,
            logs_changes: codec.change_unit().is_some(),
            margin: AtomicU32::new(0),
            memory: config.memory.into(),
            commit_millis: AtomicU64::new(u64::from(config.commit_secs.max(1)) * 1000),
            lanes,
            stamp: AtomicU64::new(config.first_stamp),
            superseded: AtomicU64::new(0),
            gate: Arc::default(),
            held: Mutex::new(config.hold_horizon),
            recorded: RecordedData::default(),
            config,
            flushes: SharedFlush::default(),
            log: Mutex::new(log),
            log_changed: Condvar::new(),
            pinned: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            commits: Queue::new(Inner::commit_for),
            plain: Queue::new(Inner::flush_for),
            checkpoint_signal: CheckpointSignal::default(),
            sync_time: SyncTime::default(),
            home_io: Mutex::new(()),
            tails: Mutex::new(()),
            fs: OnceLock::new(),
            stopped: AtomicBool::new(false),
            why: Mutex::new(None),
            quit: AtomicBool::new(false),
            counters: Counters::default(),
            times: Times::default(),
            ordering,
            codec,
            home,
            records,
        });
        let journal = Journal {
            inner: inner.clone(),
            threads: Mutex::new(Vec::new()),
        };
        let spawn = |name: &str, run: fn(&Inner)| {
            let inner = inner.clone();
            thread::Builder::new()
                .name(name.into())
                .spawn(move || run(&inner))
        };
        for (name, run) in [
            ("stet-commit", Inner::commit_loop as fn(&Inner)),
            ("stet-sync", Inner::plain_loop),
            (CHECKPOINT_THREAD, Inner::checkpoint_loop),
        ] {
            let thread = spawn(name, run).map_err(|e| {
                JournalError::Aborted(format!("cannot start the journal's thread {name}: {e}"))
            })?;
            journal.threads.lock().push(thread);
        }
        Ok(Arc::new(journal))
    }

    /// A journal that takes no changes: for a volume that is only read, with or without a log.
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

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// For tests: threads of this journal that come to a place wait there while the hold lives.
    /// Places are the calls of `Inner::point`; in release builds nobody comes.
    pub fn hold(&self, place: &'static str) -> stetfs_sync::Hold {
        stetfs_sync::Hold::at(self.inner(), place)
    }

    /// Registers the file system. Only the first call counts.
    pub fn attach(&self, fs: Weak<dyn FileState>) {
        let _ = self.inner.fs.set(fs);
    }

    /// Opens a handle that may change `need` blocks. May wait for a snapshot to be taken or for
    /// room; call [`throttle`](Self::throttle) before taking locks to make that rare.
    ///
    /// # Errors
    /// `TooLarge` if no transaction can hold so much; `Aborted` once the journal stopped.
    pub fn begin(&self, need: Credits) -> Result<Handle<'_>> {
        let held = stetfs_sync::hold(stetfs_sync::Rank::Handle, false);
        let margin = self.inner.margin();
        let tx = self.inner.enter(need.saturating_add(margin))?;
        Ok(Handle::new(self, tx, need, margin, held))
    }

    /// The most credits one handle can have, in blocks.
    pub fn max_credits(&self) -> Credits {
        count32(to_usize(self.inner.max_tx(0))).saturating_sub(self.inner.margin())
    }

    /// From now on every handle may change `margin` blocks more than it asks for, which its
    /// [`Handle::credits_left`] does not show: for what each of them does besides.
    pub fn set_margin(&self, margin: Credits) {
        self.inner.margin.store(margin, Ordering::Release);
    }

    /// Commits up to a point; durable on return.
    ///
    /// # Errors
    /// The commit failed: nothing can be said about what it held.
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
        rx.recv().unwrap_or_else(|_| Err(self.inner.stop_error()))
    }

    /// Writes home the dirty data of `data`, commits up to `upto` if that is not durable yet,
    /// flushes the device, then calls `done`. Requests that come while another is under way share
    /// the next commit and flush.
    pub fn sync(&self, upto: CommitPoint, data: Vec<Ino>, wait: Wait, done: Done) {
        self.inner.sync(upto, data, wait, done);
    }

    /// Commits everything that was changed before the call.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_all(&self) -> Result<()> {
        self.commit(&self.everything())
    }

    /// Whether somebody waits for a commit or a flush, or for room that a commit makes.
    pub fn is_awaited(&self) -> bool {
        self.waiting() > 0
    }

    /// How many do.
    pub fn waiting(&self) -> u64 {
        self.inner.waiting.load(Ordering::Acquire)
    }

    /// Blocks that the running transactions changed so far.
    pub fn running_blocks(&self) -> u64 {
        let lanes = self.inner.lanes.iter();
        let blocks = lanes.map(|lane| lane.run.lock().tx.state.lock().blocks.len() as u64);
        blocks.sum()
    }

    /// A point that covers every change made before the call.
    pub fn everything(&self) -> CommitPoint {
        let mut point = CommitPoint::none();
        for lane in &self.inner.lanes {
            point.add(lane.run.lock().tx.id);
        }
        point
    }

    /// Waits until memory and log have room for more changes. Call it with no lock held.
    ///
    /// # Errors
    /// `Aborted` once the journal stopped.
    pub fn throttle(&self) -> Result<()> {
        self.inner.throttle()
    }

    /// Brings home everything that is committed.
    ///
    /// # Errors
    /// A failed write; the journal stops.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.checkpoint_all()
    }

    /// Commits, brings everything home, and leaves the log as [`shutdown`](Self::shutdown) does,
    /// but the journal stays: until [`wake`](Self::wake) who begins a handle waits, and there is no
    /// room for a record (rest.R1).
    ///
    /// # Errors
    /// The first failure; the log then still holds what did not get home, and goes on.
    pub fn rest(&self) -> Result<()> {
        self.inner.go_to_rest(|| self.commit_all())
    }

    /// Before the end of a [`rest`](Self::rest): the log is in use, durably.
    ///
    /// # Errors
    /// The device's; the journal must not be used then.
    pub fn resume(&self) -> Result<()> {
        self.inner.resume()
    }

    /// Ends a [`rest`](Self::rest), after [`resume`](Self::resume): who waits to begin goes on.
    pub fn wake(&self) {
        self.inner.open_gate();
    }

    /// Commits, brings everything home, empties the log and ends the threads. Idempotent.
    ///
    /// # Errors
    /// The first failure; the log then still holds what did not get home.
    pub fn shutdown(&self) -> Result<()> {
        let stopped = self.inner.has_stopped();
        // A sync that was asked for before writes no record to a log that others have by then.
        self.inner.close_gate();
        let mut result = match stopped {
            true => self.aborted().map_or(Ok(()), Err),
            false => self.commit_all(),
        };
        let commits = self.inner.commits.close();
        // A log at rest is as this leaves it.
        if !stopped && !self.inner.gate.is_resting() {
            result = result
                .and_then(|()| self.inner.empty_log())
                .and_then(|()| self.inner.retire());
        }
        self.inner.stop(None);
        drop(commits);
        self.join_threads();
        result
    }

    /// Why the journal stopped, if an error stopped it.
    pub fn aborted(&self) -> Option<JournalError> {
        self.inner.why.lock().clone()
    }

    /// Stops the journal because of an error seen elsewhere (a failed home write of data).
    pub fn abort(&self, why: JournalError) {
        self.inner.stop(Some(why));
    }

    /// Seconds between periodic commits (`commit=`), from now on.
    pub fn set_commit_secs(&self, secs: u32) {
        self.inner
            .commit_millis
            .store(u64::from(secs.max(1)) * 1000, Ordering::Relaxed);
    }

    /// Another bound of the memory that transactions and pending checkpoints hold, bytes. Above it
    /// callers of [`throttle`](Self::throttle) wait until enough is home. How long a transaction
    /// gets stays as the first bound had it.
    pub fn set_memory(&self, bytes: u64) {
        self.inner.memory.store(bytes, Ordering::Relaxed);
        self.inner.checkpoint_signal.ask();
    }

    /// For people: what the codec decides, and why.
    pub fn codec_note(&self) -> Option<String> {
        self.inner.codec.note()
    }

    /// Counters.
    pub fn stats(&self) -> JournalStats {
        self.inner.counters.read()
    }

    /// How long commits and checkpoints took.
    pub fn latency(&self) -> JournalLatency {
        self.inner.times.read()
    }

    /// Log blocks that are free and in all, over all lanes.
    pub fn log_space(&self) -> (u64, u64) {
        let lanes = &self.inner.lanes;
        let free = lanes.iter().map(LaneState::room);
        let all = lanes.iter().map(|lane| lane.medium.capacity());
        (free.sum(), all.sum())
    }

    fn join_threads(&self) {
        self.inner.quit.store(true, Ordering::Release);
        self.inner.commits.wake();
        self.inner.plain.wake();
        self.inner.checkpoint_signal.ask();
        let me = thread::current().id();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // The last Arc may be dropped by one of our own threads, through a callback.
            if thread.thread().id() != me {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.inner.stop(None);
        self.join_threads();
    }
}
