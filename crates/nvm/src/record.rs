//! A recorder of stores, flushes and fences: the crash lab replays its log to build crash states.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use stetfs_block::Result;

use crate::region::check_flush;
use crate::{Durability, LINE, Region};

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionEvent {
    /// The clock's value, see [`RegionRecorder::beside`]; never less than the previous event's.
    pub at: u64,
    /// Number of the thread; threads are numbered from 0 in the order of their first event.
    pub thread: u32,
    /// The event itself.
    pub what: What,
}

/// The kinds of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Bytes were stored, word by word upwards.
    Store {
        /// First byte.
        offset: u64,
        /// The stored bytes.
        data: Arc<[u8]>,
    },
    /// A flush of lines.
    Flush {
        /// The line numbers.
        lines: Range<u64>,
    },
    /// A fence that succeeded. A failed fence leaves no event: it made nothing durable.
    Fence,
    /// A note of the test, e.g. "this fsync returned".
    Mark {
        /// The text of the note.
        label: String,
        /// A number that belongs to it.
        value: u64,
    },
}

/// The log of a region: its events in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegionLog {
    /// The events.
    pub events: Vec<RegionEvent>,
}

impl RegionLog {
    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The number of events recorded before the clock reached `at`. With the position in a block
    /// device's log as the clock, a crash behind the first `at` events of the device comes behind
    /// this many events of the region, or more, up to `position_at(at + 1)`.
    pub fn position_at(&self, at: u64) -> usize {
        self.events.partition_point(|event| event.at < at)
    }
}

type Clock = Box<dyn Fn() -> u64 + Send + Sync>;
type Who = Box<dyn Fn() -> u32 + Send + Sync>;

/// Wraps a region and records stores, flushes, fences and marks. Loads are not recorded.
/// [`RegionReplay`](crate::RegionReplay) builds crash states from the log.
///
/// Stores are serialised, so the log has the order in which they became visible.
pub struct RegionRecorder<R> {
    inner: R,
    clock: Clock,
    /// Numbers the threads, instead of the system's thread identity.
    who: Option<Who>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: RegionLog,
    threads: HashMap<ThreadId, u32>,
}

impl<R: Region> RegionRecorder<R> {
    /// Records requests to `inner` from now on. The clock stands still.
    pub fn new(inner: R) -> Self {
        Self::beside(inner, || 0)
    }

    /// Records requests to `inner` from now on, stamped with `clock`. With the position of a block
    /// device's recorder (`move || disk.position() as u64`) both logs have one order: an event here
    /// at `n` is behind the first `n` events there and before the next one, so a crash can cut both
    /// at one moment. Take both logs together.
    pub fn beside(inner: R, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        RegionRecorder {
            inner,
            clock: Box::new(clock),
            who: None,
            state: Mutex::default(),
        }
    }

    /// Numbers threads by `who` instead of by the system's thread identity: in a model the threads
    /// are tasks of one thread.
    #[must_use]
    pub fn numbered(mut self, who: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        self.who = Some(Box::new(who));
        self
    }

    /// The region below. Requests made to it directly are not recorded.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// The region below, without its recorder.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// Adds a note to the log.
    pub fn mark(&self, label: impl Into<String>, value: u64) {
        let label = label.into();
        self.push(What::Mark { label, value });
    }

    /// Number of events recorded since the log was last taken.
    pub fn position(&self) -> usize {
        self.state.lock().log.len()
    }

    /// Takes the log and begins a new one. Take it when all stores are durable: a flush in the old
    /// log has no effect on the new one.
    pub fn take_log(&self) -> RegionLog {
        std::mem::take(&mut self.state.lock().log)
    }

    /// A copy of the log so far (the data is shared).
    pub fn log(&self) -> RegionLog {
        self.state.lock().log.clone()
    }

    fn stored(&self, offset: u64, bytes: &[u8], store: impl FnOnce() -> Result<()>) -> Result<()> {
        let data = Arc::from(bytes);
        let mut state = self.state.lock();
        // Read before the store is visible: a disk write in response to the store must be behind
        // it.
        let at = (self.clock)();
        store()?;
        state.push(at, self.who.as_deref(), What::Store { offset, data });
        Ok(())
    }

    fn push(&self, what: What) {
        let mut state = self.state.lock();
        state.push((self.clock)(), self.who.as_deref(), what);
    }
}

impl State {
    fn push(&mut self, at: u64, who: Option<&(dyn Fn() -> u32 + Send + Sync)>, what: What) {
        let next = self.threads.len() as u32;
        let mut of_system = || *self.threads.entry(thread::current().id()).or_insert(next);
        let thread = who.map_or_else(&mut of_system, |who| who());
        // The clock may have been set back when its own log was taken.
        let at = at.max(self.log.events.last().map_or(0, |last| last.at));
        self.log.events.push(RegionEvent { at, thread, what });
    }
}

impl<R: Region> Region for RegionRecorder<R> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buf)
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.stored(offset, bytes, || self.inner.store(offset, bytes))
    }

    fn load_u64(&self, offset: u64) -> Result<u64> {
        self.inner.load_u64(offset)
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<()> {
        self.stored(offset, &value.to_le_bytes(), || {
            self.inner.store_u64(offset, value)
        })
    }

    fn flush(&self, range: Range<u64>) -> Result<()> {
        check_flush(&range, self.size())?;
        if range.start >= range.end {
            return Ok(());
        }
        // Recorded before the flush: concurrent stores are not covered.
        let lines = range.start / LINE..range.end.div_ceil(LINE);
        self.push(What::Flush { lines });
        self.inner.flush(range)
    }

    fn fence(&self) -> Result<()> {
        self.inner.fence()?;
        self.push(What::Fence);
        Ok(())
    }

    fn snapshot(&self) -> Option<Arc<dyn Region>> {
        self.inner.snapshot()
    }
}

impl<R: fmt::Debug> fmt::Debug for RegionRecorder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionRecorder")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
