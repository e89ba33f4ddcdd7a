//! Threads that repeat a step, for a time.

use std::time::Duration;

use anyhow::{Result, anyhow};
use stetfs_sync::timed::{
    Instant,
    atomic::{AtomicBool, Ordering},
    thread,
};

use super::place::Place;

/// The interval of checks whether all threads have finished.
const LOOK: Duration = Duration::from_millis(5);

/// A step of a thread: returns the number of operations, or `None` when its work is done.
pub(crate) type Hand<'a> = Box<dyn FnMut() -> Result<Option<u64>> + Send + 'a>;

/// Runs each step function repeatedly in a thread, for `limit` or until all have finished; returns
/// operations, and seconds.
pub(crate) fn drive(
    place: &Place<'_>,
    hands: Vec<Hand<'_>>,
    limit: Duration,
) -> Result<(f64, f64)> {
    let over = AtomicBool::new(false);
    let start = Instant::now();
    let operations = thread::scope(|scope| -> Result<u64> {
        let over = &over;
        let threads: Vec<_> = (0..)
            .zip(hands)
            .map(|(t, mut hand)| {
                scope.spawn(move || -> Result<u64> {
                    place.work_as(t);
                    let mut operations = 0;
                    while !over.load(Ordering::Relaxed)
                        && let Some(done) = hand()?
                    {
                        operations += done;
                    }
                    Ok(operations)
                })
            })
            .collect();
        while start.elapsed() < limit && !threads.iter().all(|t| t.is_finished()) {
            thread::sleep(LOOK.min(limit));
        }
        over.store(true, Ordering::Relaxed);
        let ended = threads.into_iter().map(|thread| {
            thread
                .join()
                .map_err(|_| anyhow!("a worker thread panicked"))?
        });
        ended.sum()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((operations as f64, seconds))
}
