//! Where threads run, and how many can.

use std::sync::OnceLock;

use rustix::process::getpid;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

/// Lets the calling thread run wherever the process's first thread may. It had that from the thread that started it, which may
/// be one that serves the requests of one processor.
pub fn run_anywhere() {
    if let Ok(all) = sched_getaffinity(Some(getpid())) {
        // Else it stays where it is, which is slower at worst.
        let _ = sched_setaffinity(None, &all);
    }
}

/// Threads that can run at once, as it was when this was first asked: the standard library reads a dozen files to tell.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let count = std::thread::spawn(|| {
            run_anywhere();
            std::thread::available_parallelism().map_or(1, usize::from)
        });
        count.join().unwrap_or(1)
    })
}

#[cfg(test)]
mod tests {
    use rustix::thread::CpuSet;

    use super::*;

    #[test]
    fn a_thread_leaves_the_processor_of_its_parent() {
        let everywhere = sched_getaffinity(Some(getpid())).map_or(0, |all| all.count());
        let seen = std::thread::spawn(|| {
            let first = sched_getaffinity(None)
                .ok()
                .and_then(|all| (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)));
            let mut one = CpuSet::new();
            one.set(first.unwrap_or(0));
            assert!(sched_setaffinity(None, &one).is_ok());
            let child = std::thread::spawn(|| {
                let inherited = sched_getaffinity(None).map_or(0, |mask| mask.count());
                run_anywhere();
                (
                    inherited,
                    sched_getaffinity(None).map_or(0, |mask| mask.count()),
                )
            });
            (child.join(), processors())
        });
        let (masks, processors) = seen.join().unwrap_or((Ok((0, 0)), 0));
        assert_eq!(masks.ok(), Some((1, everywhere)));
        assert!(processors >= 1 && processors <= everywhere as usize);
    }
}
