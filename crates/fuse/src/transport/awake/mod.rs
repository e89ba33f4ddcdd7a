//! Keeps processors from sleeping between closely following requests (decisions/0018).
//!
//! With one client most of a round trip is the wake-up of a sleeping processor: the server's by the
//! request, the client's by the answer. During a burst of requests the processors are kept awake
//! ([`hold`]); this ends a fraction of a second after the burst. Serving threads count their
//! requests ([`Pulse`]), and do nothing else for it.

mod attend;
mod hold;
mod shared;
mod spin;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;

pub(crate) use self::attend::Attention;
use self::hold::Hold;
pub(crate) use self::hold::PATH;
pub use self::hold::idle_driver;
pub use self::shared::AwakeStats;
use self::shared::{Attended, Count, Shared};

/// The option to keep processors from sleeping between closely following requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LowLatency {
    /// Used if possible.
    #[default]
    Auto,
    /// Required: the mount fails without it.
    On,
    /// Not used.
    Off,
}

/// The means to keep processors awake; `None` if that is off.
#[derive(Default)]
pub(crate) struct Means(Option<Hold>);

impl Means {
    /// Finds the means that the option allows. The caller must be allowed to open the kernel's
    /// file.
    ///
    /// # Errors
    /// It is required, and not possible.
    pub(crate) fn find(wanted: LowLatency) -> io::Result<Means> {
        Ok(Means(match wanted {
            LowLatency::Off => None,
            LowLatency::On => Some(Hold::by_kernel()?),
            LowLatency::Auto => Some(
                Hold::by_kernel()
                    .unwrap_or_else(|e| Hold::by_threads(Some(format!("{}: {e}", hold::PATH)))),
            ),
        }))
    }
}

/// Keeps processors awake for the threads that have a [`Pulse`] of it. It ends when this is
/// dropped.
pub(crate) struct Awake {
    /// `None` if it is off.
    shared: Option<Arc<Shared>>,
    keepers: Vec<JoinHandle<()>>,
}

/// The statistics of [`Awake`], readable from any thread.
#[derive(Clone)]
pub(crate) struct AwakeView(Option<Arc<Shared>>);

impl AwakeView {
    /// The statistics; `None` if it is off.
    pub(crate) fn stats(&self) -> Option<AwakeStats> {
        self.0.as_ref().map(|shared| shared.stats())
    }
}

impl Awake {
    /// An instance that does nothing.
    pub(crate) fn off() -> Awake {
        Awake {
            shared: None,
            keepers: Vec::new(),
        }
    }

    /// Starts it with the given means.
    ///
    /// # Errors
    /// The threads could not be started.
    pub(crate) fn start(means: Means) -> io::Result<Awake> {
        match means.0 {
            None => Ok(Awake::off()),
            Some(hold) => Awake::with(hold),
        }
    }

    fn with(hold: Hold) -> io::Result<Awake> {
        let n = hold.keepers();
        let shared = Arc::new(Shared {
            began: Instant::now(),
            hold,
            counts: Mutex::default(),
            watched: AtomicBool::new(false),
            quiet: AtomicU64::new(0),
            keepers: OnceLock::new(),
            burst: (0..n).map(|_| AtomicBool::new(false)).collect(),
            end: AtomicBool::new(false),
            attended: Attended::default(),
            times: AtomicU64::new(0),
            held_micros: AtomicU64::new(0),
            since: Mutex::new(None),
        });
        let mut awake = Awake {
            shared: Some(Arc::clone(&shared)),
            keepers: Vec::new(),
        };
        for nth in 0..n {
            let its = Arc::clone(&shared);
            let keeper = std::thread::Builder::new()
                .name("awake".into())
                .spawn(move || its.keep(nth))?;
            awake.keepers.push(keeper);
        }
        // Set once, here.
        let threads = awake.keepers.iter().map(|k| k.thread().clone());
        let _ = shared.keepers.set(threads.collect());
        Ok(awake)
    }

    /// A pulse for one serving thread.
    pub(crate) fn pulse(&self) -> Pulse {
        Pulse(self.shared.as_ref().map(|shared| {
            let count = Arc::new(Count::default());
            shared.counts.lock().push(Arc::clone(&count));
            (count, Arc::clone(shared))
        }))
    }

    /// Access to the statistics.
    pub(crate) fn view(&self) -> AwakeView {
        AwakeView(self.shared.clone())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.end.store(true, Ordering::Release);
        }
        for keeper in self.keepers.drain(..) {
            keeper.thread().unpark();
            // It does not panic: a bug ends the process.
            let _ = keeper.join();
        }
    }
}

/// The request count of one thread.
pub(crate) struct Pulse(Option<(Arc<Count>, Arc<Shared>)>);

impl Pulse {
    /// The polling state of its thread. `others` says whether there are processors other than the
    /// one that its requests come from; without them there is no polling.
    pub(crate) fn attention(&self, others: bool) -> Attention {
        let shared = self.0.as_ref().filter(|_| others);
        Attention::new(shared.map(|(_, shared)| shared))
    }

    /// Records a request.
    pub(crate) fn beat(&self) {
        let Some((count, shared)) = &self.0 else {
            return;
        };
        let n = count.0.load(Ordering::Relaxed);
        count.0.store(n.wrapping_add(1), Ordering::Relaxed);
        if !shared.watched.load(Ordering::Relaxed) {
            shared.quiet_beat();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::shared::{BURST, SPAN_BITS};
    use super::*;

    /// Threads of the idle class are available everywhere, and do not affect other tests.
    fn awake() -> (Awake, Pulse) {
        let awake = Awake::with(Hold::by_threads(None)).unwrap();
        let pulse = awake.pulse();
        (awake, pulse)
    }

    fn times(awake: &Awake) -> u64 {
        awake.view().stats().unwrap().times
    }

    fn wait_for(what: &str, done: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < until, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn requests_now_and_then_hold_nothing() {
        let (awake, pulse) = awake();
        let span = Duration::from_micros(2 << SPAN_BITS);
        for _ in 0..3 * BURST {
            pulse.beat();
            std::thread::sleep(span / (BURST as u32 / 2));
        }
        assert_eq!(times(&awake), 0);
    }

    #[test]
    fn a_burst_is_noticed_and_ends() {
        let (awake, pulse) = awake();
        for round in 1..=3 {
            wait_for("the burst is not noticed", || {
                (0..BURST).for_each(|_| pulse.beat());
                times(&awake) >= round
            });
            wait_for("it does not end", || {
                !awake.view().stats().unwrap().held_now
            });
        }
        let stats = awake.view().stats().unwrap();
        assert!(stats.held_ms <= stats.of_ms);
    }

    #[test]
    fn it_can_end_in_the_middle() {
        let (awake, pulse) = awake();
        wait_for("the burst is not noticed", || {
            (0..BURST).for_each(|_| pulse.beat());
            times(&awake) >= 1
        });
        drop(awake);
        pulse.beat();
    }

    #[test]
    fn off_is_off() {
        let awake = Awake::start(Means::find(LowLatency::Off).unwrap()).unwrap();
        awake.pulse().beat();
        assert!(awake.view().stats().is_none());
    }
}
