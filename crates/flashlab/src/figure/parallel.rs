//! Parallel jobs on all processors.

use anyhow::Result;

/// Calls `one` for each of `jobs` on all processors. The results are in the order of the jobs.
pub(super) fn parallel<J: Sync, A: Send>(
    jobs: &[J],
    one: impl Fn(&J) -> Result<A> + Sync,
) -> Result<Vec<A>> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut done = Vec::new();
        while let Some((at, job)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(at).map(|job| (at, job))
        } {
            done.push((at, one(job)));
        }
        done
    };
    let mut all: Vec<(usize, Result<A>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(jobs.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<(usize, Result<A>)>>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().flat_map(join).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, answer)| answer).collect()
}
