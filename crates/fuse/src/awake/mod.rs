//! Keeps processors from sleeping while requests come one after another (decisions/0018).
//!
//! With one client most of a round trip is a sleeping processor being woken: the server's by the
//! request, the client's by the answer. While a burst of requests lasts, something is held that
//! keeps them awake ([`hold`]); it is given back a fraction of a second after the burst. Threads
//! that serve count their requests ([`Pulse`]), and nothing else is asked of them while it is held.

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

/// Whether processors are kept from sleeping while requests come one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LowLatency {
    /// Where it can be.
    #[default]
    Auto,
    /// Yes, or the mount fails.
    On,
    /// No.
    Off,
}

/// What processors are kept awake with; nothing where that is off.
#[derive(Default)]
pub(crate) struct Means(Option<Hold>);

impl Means {
    /// As is wanted. To be called by who may open the kernel's file.
    ///
    /// # Errors
    /// It must be, and cannot.
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

/// Keeps processors awake for the threads that have a [`Pulse`] of it. What it holds is given back
/// when it is dropped.
pub(crate) struct Awake {
    /// None: it is off.
    shared: Option<Arc<Shared>>,
    keepers: Vec<JoinHandle<()>>,
}

/// What [`Awake`] did, to be asked from any thread.
#[derive(Clone)]
pub(crate) struct AwakeView(Option<Arc<Shared>>);

impl AwakeView {
    /// None: it is off.
    pub(crate) fn stats(&self) -> Option<AwakeStats> {
        self.0.as_ref().map(|shared| shared.stats())
    }
}

impl Awake {
    /// Does nothing.
    pub(crate) fn off() -> Awake {
        Awake {
            shared: None,
            keepers: Vec::new(),
        }
    }

    /// With what was found for it.
    ///
    /// # Errors
    /// There are no threads for it.
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

    /// For one thread that serves requests.
    pub(crate) fn pulse(&self) -> Pulse {
        Pulse(self.shared.as_ref().map(|shared| {
            let count = Arc::new(Count::default());
            shared.counts.lock().push(Arc::clone(&count));
            (count, Arc::clone(shared))
        }))
    }

    /// To ask what it did.
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

/// The requests of one thread.
pub(crate) struct Pulse(Option<(Arc<Count>, Arc<Shared>)>);

impl Pulse {
    /// Whether its thread looks for requests; never without `others`, processors than the one that
    /// they come from.
    pub(crate) fn attention(&self, others: bool) -> Attention {
        let shared = self.0.as_ref().filter(|_| others);
        Attention::new(shared.map(|(_, shared)| shared))
    }

    /// A request comes.
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

    /// The threads of the idle class can be had everywhere; what they hold is nothing that another
    /// test would see.
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
