//! A region that writes down what is asked of it.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use stetfs_block::Result;

use crate::region::check_flush;
use crate::{Durability, LINE, Region};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionEvent {
    /// What the clock showed, see [`RegionRecorder::beside`]; never less than in the event before.
    pub at: u64,
    /// Number of the thread that did it, from 0 in the order in which they came.
    pub thread: u32,
    /// What it was.
    pub what: What,
}

/// What happened to a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Bytes were stored, word by word upwards.
    Store {
        /// First byte.
        offset: u64,
        /// What was stored.
        data: Arc<[u8]>,
    },
    /// Lines were sent on their way.
    Flush {
        /// Their numbers.
        lines: Range<u64>,
    },
    /// A fence returned, with success. One that failed leaves no event: it made nothing durable.
    Fence,
    /// A note of the test's, e.g. "this fsync returned".
    Mark {
        /// What it says.
        label: String,
        /// A number to go with it.
        value: u64,
    },
}

/// A record of what was done to a region, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegionLog {
    /// What happened.
    pub events: Vec<RegionEvent>,
}

impl RegionLog {
    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True if nothing happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// How many events had happened when the clock went on to `at`: with a clock that is the
    /// position in a block device's log, a crash behind the first `at` events of that one comes
    /// behind as many of this, or any more up to `position_at(at + 1)`.
    pub fn position_at(&self, at: u64) -> usize {
        self.events.partition_point(|event| event.at < at)
    }
}

type Clock = Box<dyn Fn() -> u64 + Send + Sync>;
type Who = Box<dyn Fn() -> u32 + Send + Sync>;

/// Wraps a region and records stores, flushes, fences and marks. Loads are not recorded.
/// [`RegionReplay`](crate::RegionReplay) makes from the record what a crash could have left.
///
/// Stores run one after the other, so that the record's order is that in which they were seen.
pub struct RegionRecorder<R> {
    inner: R,
    clock: Clock,
    /// Numbers of threads that are not the system's.
    who: Option<Who>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: RegionLog,
    threads: HashMap<ThreadId, u32>,
}

impl<R: Region> RegionRecorder<R> {
    /// Records what goes to `inner` from now on. The clock stands still.
    pub fn new(inner: R) -> Self {
        Self::beside(inner, || 0)
    }

    /// Records what goes to `inner` from now on, with what `clock` shows. With the position of a
    /// block device's recorder (`move || disk.position() as u64`) both records have one order:
    /// an event here at `n` is behind the first `n` there and before the next one, and so a
    /// crash can cut both at one moment. Take both logs together.
    pub fn beside(inner: R, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        RegionRecorder {
            inner,
            clock: Box::new(clock),
            who: None,
            state: Mutex::default(),
        }
    }

    /// Has `who` number the threads, where they are not the system's: in a model they are tasks of
    /// one thread.
    #[must_use]
    pub fn numbered(mut self, who: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        self.who = Some(Box::new(who));
        self
    }

    /// The region below. What is done to it directly is not recorded.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// The region below, without its recorder.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// Adds a note to the record.
    pub fn mark(&self, label: impl Into<String>, value: u64) {
        let label = label.into();
        self.push(What::Mark { label, value });
    }

    /// Number of events recorded since the log was last taken.
    pub fn position(&self) -> usize {
        self.state.lock().log.len()
    }

    /// Takes the record and begins a new one. Take it when all that was stored is durable: a flush
    /// of the one counts not for the other.
    pub fn take_log(&self) -> RegionLog {
        std::mem::take(&mut self.state.lock().log)
    }

    /// A copy of the record so far (the data is shared).
    pub fn log(&self) -> RegionLog {
        self.state.lock().log.clone()
    }

    fn stored(&self, offset: u64, bytes: &[u8], store: impl FnOnce() -> Result<()>) -> Result<()> {
        let data = Arc::from(bytes);
        let mut state = self.state.lock();
        // Before it is seen: who answers to it with a write to the disk is behind it.
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
        // The clock may have been set back with its own record.
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
        // Recorded first: what is stored meanwhile is not covered.
        let lines = range.start / LINE..range.end.div_ceil(LINE);
        self.push(What::Flush { lines });
        self.inner.flush(range)
    }

    fn fence(&self) -> Result<()> {
        self.inner.fence()?;
        self.push(What::Fence);
        Ok(())
    }
}

impl<R: fmt::Debug> fmt::Debug for RegionRecorder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionRecorder")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
