//! Threads that sync files by records: they wait for the device instead of the calling thread.

use std::sync::Arc;

use stetfs_sync::timed::{
    atomic::{AtomicUsize, Ordering},
    channel::{Receiver, Sender, unbounded},
};

/// The most threads, and so the most syncs that share a flush.
const THREADS: usize = 32;

type Job = Box<dyn FnOnce() + Send>;

/// The threads. They start when they are needed, and end when this is dropped.
pub(crate) struct Syncers {
    jobs: Sender<Job>,
    queue: Receiver<Job>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    threads: AtomicUsize,
    /// Threads without a job.
    idle: AtomicUsize,
    /// Jobs without a thread.
    waiting: AtomicUsize,
}

impl Default for Syncers {
    fn default() -> Syncers {
        let (jobs, queue) = unbounded();
        Syncers {
            jobs,
            queue,
            counts: Arc::default(),
        }
    }
}

impl Syncers {
    /// Runs the job in one of the threads, or in the calling thread if none can be started.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let waiting = self.counts.waiting.fetch_add(1, Ordering::AcqRel) + 1;
        if waiting > self.counts.idle.load(Ordering::Acquire) {
            self.start();
        }
        if self.counts.threads.load(Ordering::Acquire) == 0 {
            self.counts.waiting.fetch_sub(1, Ordering::AcqRel);
            return job();
        }
        // The queue has a receiver here, so this cannot fail.
        let _ = self.jobs.send(Box::new(job));
    }

    fn start(&self) {
        let (counts, queue) = (Arc::clone(&self.counts), self.queue.clone());
        if counts.threads.fetch_add(1, Ordering::AcqRel) >= THREADS {
            counts.threads.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let thread = stetfs_sync::timed::thread::Builder::new()
            .name("stet-file-sync".into())
            .spawn(move || {
                stetfs_sync::run_anywhere();
                counts.idle.fetch_add(1, Ordering::AcqRel);
                for job in queue {
                    counts.idle.fetch_sub(1, Ordering::AcqRel);
                    counts.waiting.fetch_sub(1, Ordering::AcqRel);
                    job();
                    counts.idle.fetch_add(1, Ordering::AcqRel);
                }
            });
        if let Err(e) = thread {
            tracing::warn!("cannot start another thread for syncs: {e}");
            self.counts.threads.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;

    #[test]
    fn jobs_run_at_the_same_time_and_the_threads_end() {
        let syncers = Syncers::default();
        let (done, is_done) = unbounded();
        for _ in 0..3 {
            // No job can continue before all run.
            let barrier = Arc::new(Barrier::new(8));
            for i in 0..8 {
                let (barrier, done) = (Arc::clone(&barrier), done.clone());
                syncers.run(move || {
                    barrier.wait();
                    assert!(done.send(i).is_ok());
                });
            }
            let mut all: Vec<i32> = is_done.iter().take(8).collect();
            all.sort_unstable();
            assert_eq!(all, (0..8).collect::<Vec<_>>());
        }
        let counts = Arc::downgrade(&syncers.counts);
        drop(syncers);
        for _ in 0..1000 {
            if counts.strong_count() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("threads stay");
    }
}
