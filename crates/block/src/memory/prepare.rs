//! The thread that prepares memory, and gives back what nobody uses.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::chunk::POOL;
use super::pages::Pages;
use super::pool::{Job, MemoryStats, Pool, QUIET};

/// Memory of the process for blocks, now.
pub fn memory_stats() -> MemoryStats {
    POOL.stats()
}

/// A thread that prepares memory for blocks ahead of its use, until this is dropped: up to 64 MiB
/// for who uses much, 4 MiB on an idle system. Without one who touches memory first waits for it.
#[derive(Debug)]
pub struct Preparer {
    bound: u64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Preparer {
    /// Starts it. It prepares nothing while more than `bound` bytes are in use or ready: the size
    /// of the cache. The bounds of several add up.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn start(bound: u64) -> io::Result<Preparer> {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("stet-memory".into())
            .spawn(move || run(&POOL, &until))?;
        let mut state = POOL.state.lock();
        state.allow(bound, 0);
        state.preparers += 1;
        drop(state);
        POOL.changed.notify_all();
        Ok(Preparer {
            bound,
            stop,
            thread: Some(thread),
        })
    }

    /// Another bound from now on.
    pub fn set_bound(&mut self, bound: u64) {
        let old = std::mem::replace(&mut self.bound, bound);
        POOL.state.lock().allow(bound, old);
        POOL.changed.notify_all();
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        let mut state = POOL.state.lock();
        state.allow(0, self.bound);
        state.preparers -= 1;
        self.stop.store(true, Ordering::Relaxed);
        drop(state);
        POOL.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It cannot panic; and if it did there is nothing to do.
            let _ = thread.join();
        }
    }
}

/// Does what there is to do, and waits for more.
fn run(pool: &Pool, stop: &AtomicBool) {
    let (mut seen, mut pages) = (0, Pages::default());
    let mut state = pool.state.lock();
    loop {
        if let Some(job) = state.job() {
            let (Job::Prepare(nr) | Job::GiveBack(nr)) = job;
            let region = state.region(nr);
            drop(state);
            let well = match job {
                Job::Prepare(_) => pages.prepare(region, || pool.state.lock().is_short()),
                Job::GiveBack(_) => {
                    // SAFETY: `job` took it out of the lists of the pool, where nobody used it.
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
            pool.changed.wait(&mut state);
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
        let mut preparer = Preparer::start(256 << 20).unwrap();
        assert!(within(20, || memory_stats().ready >= (IDLE * REGION) as u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..20 {
                        let mut list = Vec::new();
                        chunk::take(2, 700, &mut list);
                        assert_eq!(list.len(), 700);
                        for chunk in &list {
                            // SAFETY: the chunk is ours alone, and has as many bytes.
                            unsafe { chunk.ptr().as_ptr().write_bytes(0x5A, CLASSES[2]) };
                        }
                        chunk::give(list.into_iter());
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(memory_stats().prepared > 0);
        preparer.set_bound(0);
        assert!(within(20, || memory_stats().ready == 0));
        drop(preparer);
        assert_eq!(POOL.state.lock().preparers, 0);
    }
}
