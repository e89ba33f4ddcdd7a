//! The preparing thread: it allocates memory ahead of its use, and returns unused memory to the
//! kernel.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::chunk::POOL;
use super::pages::Pages;
use super::pool::{Job, MemoryStats, Pool, QUIET};

/// The current memory of the process for blocks.
pub fn memory_stats() -> MemoryStats {
    POOL.stats()
}

/// Number of taken regions after which the owner is asked for the bound again.
const REGIONS: u64 = 8;
/// Time after which it is asked, if fewer were taken.
const TIME: Duration = Duration::from_secs(1);
/// Time after which it is asked on an idle system: the machine's memory may have changed.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// A thread that prepares memory for blocks ahead of its use, until this is dropped: up to 64 MiB
/// under heavy use, 4 MiB on an idle system. Without it the first access to memory waits for the
/// kernel.
#[derive(Debug)]
pub struct Preparer {
    bound: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Preparer {
    /// Starts the thread. It prepares nothing while more than `bound` bytes are in use or ready:
    /// the size of the cache. The bounds of several preparers add up.
    ///
    /// `ask` is called in the thread, and returns the new bound if it has changed: at each 16 MiB
    /// and at least each second while memory is taken, otherwise each ten seconds.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(
        bound: u64,
        ask: impl FnMut() -> Option<u64> + Send + 'static,
    ) -> io::Result<Preparer> {
        let bound = Arc::new(AtomicU64::new(bound));
        let stop = Arc::new(AtomicBool::new(false));
        let (until, asked) = (Arc::clone(&stop), Asked::new(ask, Arc::clone(&bound)));
        let thread = std::thread::Builder::new()
            .name("stet-memory".into())
            .spawn(move || run(&POOL, &until, asked))?;
        let mut state = POOL.state.lock();
        state.allow(bound.load(Ordering::Relaxed), 0);
        state.preparers += 1;
        drop(state);
        POOL.changed.notify_all();
        Ok(Preparer {
            bound,
            stop,
            thread: Some(thread),
        })
    }

    /// Sets another bound.
    pub fn set_bound(&self, bound: u64) {
        set_bound(&self.bound, bound);
        POOL.changed.notify_all();
    }
}

/// Changes the part of the pool's bound that belongs to one thread, in bytes.
fn set_bound(own: &AtomicU64, bound: u64) {
    let mut state = POOL.state.lock();
    let old = own.swap(bound, Ordering::Relaxed);
    state.allow(bound, old);
}

/// Decides when to ask the owner of a thread for its bound.
struct Asked<F> {
    ask: F,
    bound: Arc<AtomicU64>,
    /// Regions taken at the last time it was asked, and that time.
    taken: u64,
    at: Instant,
}

impl<F: FnMut() -> Option<u64>> Asked<F> {
    fn new(ask: F, bound: Arc<AtomicU64>) -> Asked<F> {
        Asked {
            ask,
            bound,
            taken: 0,
            at: Instant::now(),
        }
    }

    /// Whether it is time to ask; `taken` is the number of regions taken since the process began.
    fn is_due(&self, taken: u64) -> bool {
        let time = if taken > self.taken { TIME } else { IDLE_TIME };
        taken >= self.taken + REGIONS || self.at.elapsed() >= time
    }

    /// Asks the owner. The pool's lock must not be held.
    fn ask(&mut self, taken: u64) {
        (self.taken, self.at) = (taken, Instant::now());
        if let Some(bound) = (self.ask)() {
            set_bound(&self.bound, bound);
        }
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        let mut state = POOL.state.lock();
        state.allow(0, self.bound.load(Ordering::Relaxed));
        state.preparers -= 1;
        self.stop.store(true, Ordering::Relaxed);
        drop(state);
        POOL.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic; if it did there would be nothing to do.
            let _ = thread.join();
        }
    }
}

/// Does the jobs, and waits for more.
fn run(pool: &Pool, stop: &AtomicBool, mut asked: Asked<impl FnMut() -> Option<u64>>) {
    let (mut seen, mut pages) = (0, Pages::default());
    let mut state = pool.state.lock();
    loop {
        let taken = state.taken();
        if asked.is_due(taken) && !stop.load(Ordering::Relaxed) {
            drop(state);
            asked.ask(taken);
            state = pool.state.lock();
        } else if let Some(job) = state.job() {
            let (Job::Prepare(nr) | Job::GiveBack(nr)) = job;
            let region = state.region(nr);
            drop(state);
            let well = match job {
                Job::Prepare(_) => pages.prepare(region, || pool.state.lock().is_short()),
                Job::GiveBack(_) => {
                    // SAFETY: `job` took it out of the pool's lists, in which no region is in use.
                    unsafe { region.give_back() };
                    true
                }
            };
            state = pool.state.lock();
            state.done(&job, well);
        } else if stop.load(Ordering::Relaxed) {
            return;
        } else if state.busy() {
            let quiet = pool.changed.wait_for(&mut state, QUIET).timed_out();
            if quiet && state.taken() == seen {
                state.quiet();
            }
            seen = state.taken();
        } else {
            pool.changed.wait_for(&mut state, IDLE_TIME);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::chunk;
    use super::super::pool::{CLASSES, IDLE};
    use super::super::region::REGION;
    use super::*;

    fn within(seconds: u64, what: impl Fn() -> bool) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(seconds) {
            if what() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    #[test]
    fn it_prepares_while_it_lives_and_leaves_nothing() {
        let bound = Arc::new(AtomicU64::new(0));
        let said = Arc::clone(&bound);
        let ask = move || Some(said.load(Ordering::Relaxed)).filter(|bound| *bound > 0);
        let preparer = Preparer::start(256 << 20, ask).unwrap();
        assert!(within(20, || memory_stats().ready >= (IDLE * REGION) as u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..20 {
                        let mut list = Vec::new();
                        chunk::take(2, 700, &mut list);
                        assert_eq!(list.len(), 700);
                        for chunk in &list {
                            // SAFETY: the chunk is not shared, and has as many bytes.
                            unsafe { chunk.ptr().as_ptr().write_bytes(0x5A, CLASSES[2]) };
                        }
                        chunk::give(list.into_iter());
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(memory_stats().prepared > 0);
        // It asks for the bound while memory is taken.
        bound.store(1 << 20, Ordering::Relaxed);
        let mut list = Vec::new();
        chunk::take(4, 2 * REGIONS as usize + 2, &mut list);
        assert!(within(20, || preparer.bound.load(Ordering::Relaxed) == 1 << 20));
        chunk::give(list.into_iter());
        preparer.set_bound(0);
        assert!(within(20, || memory_stats().ready == 0));
        drop(preparer);
        assert_eq!(POOL.state.lock().preparers, 0);
    }
}
