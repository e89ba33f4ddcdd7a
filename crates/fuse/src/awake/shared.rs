//! What the threads that serve and those that keep processors awake have in common.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use super::hold::Hold;
use super::spin;

/// A burst begins with so many requests …
pub(super) const BURST: u64 = 8;

/// … in the same one of these spans, µs as a power of two: 4 ms.
pub(super) const SPAN_BITS: u32 = 12;

/// How often it is looked whether the burst goes on.
const LOOK: Duration = Duration::from_millis(100);

/// Fewer requests than this between two looks, and it has ended: one a millisecond gains nothing
/// that is felt.
const FEW: u64 = 100;

/// What keeping awake did and cost.
#[derive(Clone, Debug, Serialize)]
pub struct AwakeStats {
    /// By what.
    pub by: &'static str,
    /// Why not by the kernel's switch for it, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// Why the processors sleep all the same, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_effect: Option<&'static str>,
    /// Held now.
    pub held_now: bool,
    /// How often it was held.
    pub times: u64,
    /// How long in all, milliseconds.
    pub held_ms: u64,
    /// How long it was there to be held, milliseconds.
    pub of_ms: u64,
    /// Processor time of threads that looked for their next request instead of sleeping,
    /// milliseconds.
    pub looked_ms: u64,
}

/// One thread's requests, on a cache line of their own. Only that thread writes it.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Count(pub(super) AtomicU64);

pub(super) struct Shared {
    pub(super) began: Instant,
    pub(super) hold: Hold,
    pub(super) counts: Mutex<Vec<Arc<Count>>>,
    /// The keeper is awake and looks itself.
    pub(super) watched: AtomicBool,
    /// While it is not: a span since `began`, and below it ([`Shared::COUNT_BITS`]) the requests
    /// in it.
    pub(super) quiet: AtomicU64,
    pub(super) keepers: OnceLock<Vec<Thread>>,
    /// For each keeper: a burst began.
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

    /// A request came while nobody looks.
    pub(super) fn quiet_beat(&self) {
        let micros = self.began.elapsed().as_micros() as u64;
        let span = (micros >> SPAN_BITS) << Self::COUNT_BITS;
        let old = self.quiet.load(Ordering::Relaxed);
        let n = if old >> Self::COUNT_BITS << Self::COUNT_BITS == span {
            old - span + 1
        } else {
            1
        };
        // Two threads at once may count for one; the next request makes up for it.
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

    /// What each keeper does. The first of them does the counting.
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

    /// Holds until the burst ends.
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

    /// Passes the time, unless it ends.
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

/// What is known of all threads of a connection.
#[derive(Default)]
pub(super) struct Attended {
    /// The number of the thread that the last request came to.
    pub(super) last: AtomicU64,
    pub(super) threads: AtomicU64,
    pub(super) micros: AtomicU64,
}

impl Attended {
    /// Processor time spent looking, milliseconds.
    pub(super) fn ms(&self) -> u64 {
        self.micros.load(Ordering::Relaxed) / 1000
    }
}
