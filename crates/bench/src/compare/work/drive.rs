//! Threads that repeat a step, for a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::place::Place;

/// The interval of checks whether all threads have finished.
const LOOK: Duration = Duration::from_millis(5);

/// A step of a thread: returns the number of operations, or `None` when its work is done.
pub(crate) type Hand<'a> = Box<dyn FnMut() -> Result<Option<u64>> + Send + 'a>;

/// Runs each step function repeatedly in a thread, for `limit` seconds or until all have finished;
/// returns operations, and seconds.
pub(crate) fn drive(place: &Place<'_>, hands: Vec<Hand<'_>>, limit: u32) -> Result<(f64, f64)> {
    let (operations, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let limit = Duration::from_secs(limit.max(1).into());
    let start = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let (operations, over) = (&operations, &over);
        let threads: Vec<_> = (0..)
            .zip(hands)
            .map(|(t, mut hand)| {
                scope.spawn(move || -> Result<()> {
                    place.work_as(t);
                    while !over.load(Ordering::Relaxed)
                        && let Some(done) = hand()?
                    {
                        operations.fetch_add(done, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        while start.elapsed() < limit && !threads.iter().all(|t| t.is_finished()) {
            thread::sleep(LOOK);
        }
        over.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .map_err(|_| anyhow!("a worker thread panicked"))?
        })
    })?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((operations.load(Ordering::Relaxed) as f64, seconds))
}
