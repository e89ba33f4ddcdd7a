//! A device that records its requests: crash tests replay the log.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::write_zeros;
use crate::{
    BlockDevice, Read, Result, SECTOR, Share, ShareLimits, SharePair, Stats, Write, sharing_of,
};

/// A recorded event. The log is in the order of time: a request shows as its submission and its
/// [`Event::Done`], and concurrent requests overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A write was submitted.
    Write {
        /// Number of the request, unique per recorder.
        id: u64,
        /// First byte on the device.
        offset: u64,
        /// The data.
        data: Arc<[u8]>,
        /// Whether it is durable once done.
        fua: bool,
    },
    /// A discard was submitted.
    Discard {
        /// Number of the request.
        id: u64,
        /// The range in bytes.
        range: Range<u64>,
    },
    /// A SHARE batch was submitted.
    Share {
        /// Number of the request.
        id: u64,
        /// The pairs.
        pairs: Arc<[SharePair]>,
        /// The device's unit in bytes.
        unit: u32,
        /// Whether the device promises atomic batches.
        atomic: bool,
    },
    /// A flush was submitted. It covers the requests that were done before.
    Flush {
        /// Number of the request.
        id: u64,
    },
    /// A request returned.
    Done {
        /// Number of the request.
        id: u64,
        /// False if it failed, or was part of a batch that did; then any part of it may have
        /// reached the device.
        ok: bool,
    },
    /// A note of the test, e.g. "this fsync returned".
    Mark {
        /// The text of the note.
        label: String,
        /// A number that belongs to it.
        value: u64,
    },
}

/// A log of events, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// The events.
    pub events: Vec<Event>,
}

impl Log {
    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The marks among the first `n` events, in order: label and value.
    pub fn marks(&self, n: usize) -> impl Iterator<Item = (&str, u64)> {
        self.events.iter().take(n).filter_map(|e| match e {
            Event::Mark { label, value } => Some((label.as_str(), *value)),
            _ => None,
        })
    }
}

/// Wraps a device and records writes, discards, flushes and marks. Reads are not recorded.
/// [`Replay`](crate::Replay) builds crash states from the log.
#[derive(Debug)]
pub struct Recorder<D> {
    inner: D,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    log: Log,
    next_id: u64,
}

impl State {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl<D: BlockDevice> Recorder<D> {
    /// Records requests to `inner` from now on.
    pub fn new(inner: D) -> Self {
        Recorder {
            inner,
            state: Mutex::new(State::default()),
        }
    }

    /// The device below. Requests made to it directly are not recorded.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device below, without its recorder.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Adds a note to the log.
    pub fn mark(&self, label: impl Into<String>, value: u64) {
        self.state.lock().log.events.push(Event::Mark {
            label: label.into(),
            value,
        });
    }

    /// Number of events recorded since the log was last taken.
    pub fn position(&self) -> usize {
        self.state.lock().log.len()
    }

    /// Takes the log and begins a new one. Call it while no request runs: one that spans both logs
    /// belongs to neither.
    pub fn take_log(&self) -> Log {
        std::mem::take(&mut self.state.lock().log)
    }

    /// A copy of the log so far (the data is shared).
    pub fn log(&self) -> Log {
        self.state.lock().log.clone()
    }

    fn done(&self, ids: Range<u64>, ok: bool) {
        self.state
            .lock()
            .log
            .events
            .extend(ids.map(|id| Event::Done { id, ok }));
    }
}

impl<D> Recorder<D> {
    /// Records a discard before it is submitted; returns the request's number.
    fn discarded(&self, range: &Range<u64>) -> u64 {
        let mut state = self.state.lock();
        let id = state.id();
        state.log.events.push(Event::Discard {
            id,
            range: range.clone(),
        });
        id
    }
}

impl<D: BlockDevice> BlockDevice for Recorder<D> {
    crate::shape_of_inner!();

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.inner.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let copies: Vec<Arc<[u8]>> = writes.iter().map(|w| w.data.to_arc()).collect();
        let ids = {
            let mut state = self.state.lock();
            let first = state.next_id + 1;
            for (write, data) in writes.iter().zip(copies) {
                let id = state.id();
                state.log.events.push(Event::Write {
                    id,
                    offset: write.offset,
                    data,
                    fua: write.fua,
                });
            }
            first..state.next_id + 1
        };
        let result = self.inner.write_batch(writes);
        self.done(ids, result.is_ok());
        result
    }

    fn flush(&self) -> Result<()> {
        let id = {
            let mut state = self.state.lock();
            let id = state.id();
            state.log.events.push(Event::Flush { id });
            id
        };
        let result = self.inner.flush();
        self.done(id..id + 1, result.is_ok());
        result
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let id = self.discarded(&range);
        let result = self.inner.discard(range);
        self.done(id..id + 1, result.is_ok());
        result
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        let sector = u64::from(SECTOR);
        if !range.start.is_multiple_of(sector) || !range.end.is_multiple_of(sector) {
            return write_zeros(self, range);
        }
        // Recorded as a discard, which a replay turns into zeros.
        let id = self.discarded(&range);
        let result = self.inner.zero(range);
        self.done(id..id + 1, result.is_ok());
        result
    }

    fn snapshot(&self) -> Option<Arc<dyn BlockDevice>> {
        self.inner.snapshot()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl<D: BlockDevice> Share for Recorder<D> {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        let share = sharing_of(&self.inner)?;
        let limits = share.limits();
        let id = {
            let mut state = self.state.lock();
            let id = state.id();
            state.log.events.push(Event::Share {
                id,
                pairs: pairs.into(),
                unit: limits.unit,
                atomic: limits.atomic,
            });
            id
        };
        let result = share.share_batch(pairs);
        self.done(id..id + 1, result.is_ok());
        result
    }
}
