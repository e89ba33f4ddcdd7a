//! The shared state of the serving threads and of the keeper threads.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use super::hold::Hold;
use super::spin;

/// Number of requests that begins a burst …
pub(super) const BURST: u64 = 8;

/// … within one span of this length, in µs as a power of two: 4 ms.
pub(super) const SPAN_BITS: u32 = 12;

/// Interval of the checks whether the burst goes on.
const LOOK: Duration = Duration::from_millis(100);

/// Number of requests between two checks below which the burst has ended: at one per millisecond
/// nobody notices the gain.
const FEW: u64 = 100;

/// Statistics of keeping processors awake.
#[derive(Clone, Debug, Serialize)]
pub struct AwakeStats {
    /// The means.
    pub by: &'static str,
    /// The reason why it is not the kernel's file, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// The reason why the processors sleep all the same, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_effect: Option<&'static str>,
    /// Whether processors are kept awake now.
    pub held_now: bool,
    /// Number of times that they were kept awake.
    pub times: u64,
    /// Total time for which they were kept awake, milliseconds.
    pub held_ms: u64,
    /// Time since it was started, milliseconds.
    pub of_ms: u64,
    /// Processor time of threads that polled for their next request instead of sleeping,
    /// milliseconds.
    pub looked_ms: u64,
}

/// One thread's request count, on a cache line of its own. Only that thread writes it.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Count(pub(super) AtomicU64);

pub(super) struct Shared {
    pub(super) began: Instant,
    pub(super) hold: Hold,
    pub(super) counts: Mutex<Vec<Arc<Count>>>,
    /// Whether the keeper is awake and checks the counts itself.
    pub(super) watched: AtomicBool,
    /// While it is not: the current span since `began`, and below it ([`Shared::COUNT_BITS`]) the
    /// requests in it.
    pub(super) quiet: AtomicU64,
    pub(super) keepers: OnceLock<Vec<Thread>>,
    /// For each keeper: whether a burst began.
    pub(super) burst: Vec<AtomicBool>,
    pub(super) end: AtomicBool,
    pub(super) attended: Attended,
    pub(super) times: AtomicU64,
    pub(super) held_micros: AtomicU64,
    pub(super) since: Mutex<Option<Instant>>,
}

impl Shared {
    const COUNT_BITS: u32 = 16;

    fn all(&self) -> u64 {
        let counts = self.counts.lock();
        counts.iter().map(|c| c.0.load(Ordering::Relaxed)).sum()
    }

    /// Records a request while the keeper sleeps.
    pub(super) fn quiet_beat(&self) {
        let micros = self.began.elapsed().as_micros() as u64;
        let span = (micros >> SPAN_BITS) << Self::COUNT_BITS;
        let old = self.quiet.load(Ordering::Relaxed);
        let n = if old >> Self::COUNT_BITS << Self::COUNT_BITS == span {
            old - span + 1
        } else {
            1
        };
        // Concurrent requests may count as one; the next request makes up for it.
        self.quiet.store(span | n, Ordering::Relaxed);
        if n < BURST {
            return;
        }
        let keepers = self.keepers.get().into_iter().flatten();
        for (burst, keeper) in self.burst.iter().zip(keepers) {
            if !burst.swap(true, Ordering::AcqRel) {
                keeper.unpark();
            }
        }
    }

    /// The main loop of each keeper. The first one does the accounting.
    pub(super) fn keep(&self, nth: usize) {
        if let Err(e) = self.hold.prepare() {
            tracing::warn!("cannot keep processors awake: {e}");
            return;
        }
        let burst = &self.burst[nth];
        while !self.ends() {
            if !burst.swap(false, Ordering::AcqRel) {
                std::thread::park();
                continue;
            }
            if nth > 0 {
                self.hold_on();
                continue;
            }
            self.watched.store(true, Ordering::Relaxed);
            let held = self.one_burst();
            self.watched.store(false, Ordering::Relaxed);
            if let Err(e) = held {
                tracing::warn!("processors are not kept awake any more: {e}");
                return;
            }
        }
    }

    fn ends(&self) -> bool {
        self.end.load(Ordering::Acquire)
    }

    /// Keeps processors awake until the burst ends.
    fn one_burst(&self) -> io::Result<()> {
        self.hold.take()?;
        let since = Instant::now();
        *self.since.lock() = Some(since);
        self.times.fetch_add(1, Ordering::Relaxed);
        self.hold_on();
        let given = self.hold.give_back();
        *self.since.lock() = None;
        let held = since.elapsed().as_micros() as u64;
        self.held_micros.fetch_add(held, Ordering::Relaxed);
        given
    }

    /// Returns when the burst has ended.
    fn hold_on(&self) {
        if self.hold.takes_threads() {
            return spin::spin(|| self.all(), || self.ends());
        }
        let mut last = self.all();
        loop {
            self.rest(LOOK);
            let now = self.all();
            if self.ends() || now.wrapping_sub(last) < FEW {
                return;
            }
            last = now;
        }
    }

    /// Sleeps for `time`, unless it ends.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.ends() {
            match until.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                _ => return,
            }
        }
    }

    pub(super) fn stats(&self) -> AwakeStats {
        let since = *self.since.lock();
        let now = since.map_or(Duration::ZERO, |at| at.elapsed());
        let before = Duration::from_micros(self.held_micros.load(Ordering::Relaxed));
        AwakeStats {
            by: self.hold.name(),
            why_not: self.hold.why_not().map(str::to_owned),
            no_effect: self.hold.no_effect(),
            held_now: since.is_some(),
            times: self.times.load(Ordering::Relaxed),
            held_ms: (before + now).as_millis() as u64,
            of_ms: self.began.elapsed().as_millis() as u64,
            looked_ms: self.attended.ms(),
        }
    }
}

/// The shared state of polling threads.
#[derive(Default)]
pub(super) struct Attended {
    /// The number of the thread that received the last request.
    pub(super) last: AtomicU64,
    pub(super) threads: AtomicU64,
    pub(super) micros: AtomicU64,
}

impl Attended {
    /// Processor time spent polling, milliseconds.
    pub(super) fn ms(&self) -> u64 {
        self.micros.load(Ordering::Relaxed) / 1000
    }
}
